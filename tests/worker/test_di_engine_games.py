"""Battle collectors and evaluators play DI-engine's envs of two players through DI-engine's managers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from ding_like.envs import BaseEnv, BaseEnvManager, BaseEnvTimestep
from ding_like.worker import create_serial_collector, create_serial_evaluator
from ding_like.worker.collector.battle import BattleEpisodeSerialCollector, BattleSampleSerialCollector
from tests.worker.collector.scripted_game import ScriptedActor

pytestmark = pytest.mark.usefixtures("in_tmp")

MOVES = 3


class Duel(BaseEnv):
    """Game where player p gets the reward p + 1 a move; each player's info has the winner."""

    def __init__(self, cfg: Any = None) -> None:
        box = spaces.Box(-1e9, 1e9, (4,), np.float32)
        rows = spaces.Box(-1e9, 1e9, (2, 4), np.float32)
        self._observation_space = {"one": box, "each": spaces.Tuple([box, box]), "rows": rows}[
            (cfg or {}).get("space", "one")
        ]
        self._action_space = spaces.Discrete(1000)
        self._info_is_shared = bool((cfg or {}).get("shared"))
        self._episode = -1

    def seed(self, seed: int, dynamic_seed: bool = True) -> None: ...

    def close(self) -> None: ...

    def _obs(self) -> list[np.ndarray]:
        return [np.array([0, player, self._episode, self._move], np.float32) for player in (0, 1)]

    def reset(self) -> list[np.ndarray]:
        self._episode, self._move = self._episode + 1, 0
        return self._obs()

    def step(self, action: Any) -> BaseEnvTimestep:
        assert len(action) == 2
        self._move += 1
        done = self._move == MOVES
        if self._info_is_shared:
            info: Any = {"eval_episode_return": [10.0, 20.0], "result": "draw"} if done else {}
        else:
            returns = [{"eval_episode_return": np.array([MOVES * (p + 1.0)])} for p in (0, 1)]
            info = [{**each, "result": word} for each, word in zip(returns, ("lost", "won"), strict=True)]
            info = info if done else [{}, {}]
        return BaseEnvTimestep(self._obs(), [np.array([1.0]), np.array([2.0])], done, info)


class AnyActor(ScriptedActor):
    def act(self, obs: Any, *, lanes: Any, **_: Any) -> dict[str, Any]:
        return {"action": np.zeros(len(lanes), np.int64)}


def mode() -> Any:
    def segment(rollout: Any) -> Any:
        from ding_like.data.batch import TransitionBatch

        return TransitionBatch(rollout.columns()), np.zeros(rollout.num_lanes, np.int64)

    return SimpleNamespace(
        actor=AnyActor(), segment=segment, num_ready=lambda length, ended: int(length.sum()), reads_info=False,
        forward=None, reset=None, process_transition=None, get_train_sample=None, set_attribute=None,
        get_attribute=lambda name: True if name == "collect_data" else None, state_dict=None, load_state_dict=None,
    )  # fmt: skip


def manager(**cfg: Any) -> BaseEnvManager:
    return BaseEnvManager([lambda: Duel(cfg)] * 2)


@pytest.mark.parametrize("space", ["one", "each", "rows"])
@pytest.mark.parametrize("name", ["battle_interaction", "interaction_1v1"])
def test_an_evaluation_returns_the_information_of_each_finished_episode(name: str, space: str) -> None:
    cfg = {"type": name, "eval_freq": 50}
    evaluator = create_serial_evaluator(cfg, env=manager(space=space), policy=[mode(), mode()])

    stop, infos = evaluator.eval(n_episode=4)

    assert not stop
    assert infos == [
        [{"eval_episode_return": 3.0, "result": "lost"}] * 4,
        [{"eval_episode_return": 6.0, "result": "won"}] * 4,
    ]
    evaluator.close()


def test_one_info_for_both_players_has_a_return_for_each() -> None:
    evaluator = create_serial_evaluator(
        {"type": "battle_interaction", "eval_freq": 50}, env=manager(shared=True), policy=[mode(), mode()]
    )

    _, infos = evaluator.eval(n_episode=2)

    assert [[info["eval_episode_return"] for info in mine] for mine in infos] == [[10.0, 10.0], [20.0, 20.0]]
    evaluator.close()


@pytest.mark.parametrize("name", ["battle_sample", "sample_1v1"])
def test_samples_of_each_player_are_apart(name: str, tmp_path: Path) -> None:
    cfg = {**BattleSampleSerialCollector.default_config(), "type": name}
    collector = create_serial_collector(cfg, env=manager(), policy=[mode(), mode()], exp_name=str(tmp_path))

    data, infos = collector.collect(n_sample=12)

    assert [set(each["reward"].tolist()) for each in data] == [{1.0}, {2.0}]
    assert [len(each) for each in data] == [12, 12]
    assert [{info["result"] for info in mine} for mine in infos] == [{"lost"}, {"won"}]
    collector.close()


@pytest.mark.parametrize("name", ["battle_episode", "episode_1v1"])
def test_whole_episodes_of_each_player_are_apart(name: str, tmp_path: Path) -> None:
    cfg = {**BattleEpisodeSerialCollector.default_config(), "type": name}
    collector = create_serial_collector(cfg, env=manager(), policy=[mode(), mode()], exp_name=str(tmp_path))

    data, infos = collector.collect(n_episode=3)

    assert [[len(episode) for episode in each] for each in data] == [[MOVES] * 3] * 2
    assert [[info["eval_episode_return"] for info in mine] for mine in infos] == [[3.0] * 3, [6.0] * 3]
    collector.close()
