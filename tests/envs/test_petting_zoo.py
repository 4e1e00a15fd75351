"""PettingZoo's envs as games: in turn and at once, masks, rewards, ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from ding_like.envs import EnvFactory, create_env_manager, get_vec_env_setting
from ding_like.envs.game import JointEnv, PairGame, PettingZooGame, as_game
from ding_like.envs.manager.game import GameEnvManager
from ding_like.errors import ConfigError, EnvError
from dizoo.multi_agent.two_step_game import TwoStepGame

TICTACTOE = "classic/tictactoe-v3"
RPS = "classic/rps-v2"
SPREAD = {"env_id": "mpe2.simple_spread_v3", "kwargs": {"N": 3, "max_cycles": 5, "continuous_actions": False}}


def play(game: PettingZooGame, actions: list[int]) -> list[Any]:
    """Play a turn-based game; return the steps."""
    _, (player,) = game.reset(seed=0)
    steps = []
    for action in actions:
        steps.append(game.step({player: action}))
        if len(steps[-1].to_move):
            (player,) = steps[-1].to_move
    return steps


def test_a_won_game_of_tic_tac_toe() -> None:
    game = PettingZooGame({"env_id": TICTACTOE})

    steps = play(game, [0, 3, 1, 4, 2])

    assert [list(step.to_move) for step in steps] == [[1], [0], [1], [0], []]
    assert [list(step.reward) for step in steps] == [[0, 0]] * 4 + [[1, -1]]
    assert list(steps[-1].terminated) == [True, True] and list(steps[-1].truncated) == [False, False]
    assert not any(any(step.terminated) for step in steps[:-1])
    mask = steps[1].obs[0]["action_mask"]
    assert mask.tolist() == [0, 1, 1, 0, 1, 1, 1, 1, 1]
    game.close()


def test_each_player_sees_the_board_from_its_own_side() -> None:
    game = PettingZooGame({"env_id": TICTACTOE, "flatten": True})

    (step,) = play(game, [4])

    own = step.obs[1]["observation"].reshape(3, 3, 2)
    assert own.dtype == np.float32 and own[1, 1].tolist() == [0, 1], "the stone in the middle is the opponent's"
    assert game.observation_space["observation"].shape == (18,)
    game.close()


def test_a_move_of_who_is_not_to_move_is_refused() -> None:
    game = PettingZooGame({"env_id": TICTACTOE})
    game.reset(seed=0)

    with pytest.raises(EnvError, match=r"moves of players \[1\] were given, but player 0 is to move"):
        game.step({1: 0})
    game.close()


def test_all_moves_at_once() -> None:
    game = PettingZooGame({"env_id": RPS, "api": "parallel", "kwargs": {"max_cycles": 3}})
    _, first = game.reset(seed=0)

    steps = [game.step({0: 0, 1: 1}) for _ in range(3)]

    assert list(first) == [0, 1] and [list(step.reward) for step in steps] == [[-1, 1]] * 3
    assert list(steps[-1].truncated) == [True, True] and not any(steps[-1].terminated)
    assert list(steps[-1].to_move) == [] and not any(steps[0].truncated)
    game.close()


def test_games_from_a_config_never_leave_the_mask() -> None:
    cfg = {
        "type": "petting_zoo", "env_id": TICTACTOE, "flatten": True, "collector_env_num": 4, "evaluator_env_num": 1,
    }  # fmt: skip
    make, collector, _ = get_vec_env_setting(cfg)
    manager = create_env_manager({"type": "game"}, [EnvFactory(each, make) for each in collector])
    assert isinstance(manager, GameEnvManager) and manager.num_lanes == 8
    manager.seed(3)
    manager.launch()
    rng = np.random.default_rng(0)
    returns = np.zeros(8)
    ended = 0
    for _ in range(300):
        lanes = manager.ready.nonzero()[0]
        assert len({lane // 2 for lane in lanes}) == len(lanes) == 4
        masks = manager.obs["action_mask"][lanes]
        answer = manager.step(lanes, np.array([rng.choice(np.flatnonzero(mask)) for mask in masks]))
        np.add.at(returns, answer.lanes, answer.reward)
        assert not len(answer.dropped)
        for game in manager.ended_games:
            ended += 1
            pair = returns[2 * game : 2 * game + 2]
            assert sorted(pair.tolist()) in ([-1.0, 1.0], [0.0, 0.0])
            pair[:] = 0.0
    assert ended > 100
    manager.close()


def test_what_is_no_such_env_is_one_clear_error() -> None:
    for cfg, said in [
        ({"env_id": None}, "env_id is None; expected an id"),
        ({"env_id": "os.path"}, "env_id is 'os.path'; expected an id"),
        ({"env_id": TICTACTOE, "api": "both"}, "api is 'both'"),
        ({"env_id": "pettingzoo.classic.nothing_v1"}, 'pip install "ding-like'),
        ({"env_id": "classic/nothing-v1"}, "cannot be made"),
    ]:
        with pytest.raises(ConfigError) as caught:
            PettingZooGame(cfg)

        assert said in str(caught.value)


def test_a_manager_of_one_player_refuses_a_game() -> None:
    with pytest.raises(EnvError, match="env.manager.type='game'"):
        create_env_manager({"type": "base"}, [lambda: PettingZooGame({"env_id": TICTACTOE})])


class DiEnginePair:
    """Env of two players in DI-engine's style."""

    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, *, cut: bool = False) -> None:
        self._cut = cut

    def seed(self, seed: int, dynamic_seed: bool = True) -> None: ...

    def reset(self) -> Any:
        self._t = 0
        return np.zeros((2, 1), np.float32)

    def step(self, actions: Any) -> Any:
        self._t += 1
        obs = np.array([[self._t], [self._t + 1]], np.float32)
        info = {"TimeLimit.truncated": self._cut}
        return obs, np.array([actions[0], -actions[1]]), self._t == 2, info

    def close(self) -> None: ...


@pytest.mark.parametrize("cut", [False, True])
def test_a_pair_in_the_seeds_style(cut: bool) -> None:
    manager = GameEnvManager([lambda: DiEnginePair(cut=cut)] * 2)
    manager.launch()

    first = manager.step(np.arange(4), np.array([1, 0, 0, 1]))
    last = manager.step(np.arange(4), np.array([1, 1, 1, 1]))

    assert first.reward.tolist() == [1, 0, 0, -1] and not first.terminated.any()
    assert last.next_obs.reshape(-1).tolist() == [2, 3, 2, 3] and manager.obs.reshape(-1).tolist() == [0] * 4
    assert last.terminated.tolist() == [not cut] * 4 and last.truncated.tolist() == [cut] * 4
    manager.close()


def test_what_is_no_game_is_one_clear_error() -> None:
    with pytest.raises(EnvError, match="is not an env of several players"):
        as_game(object())
    with pytest.raises(EnvError, match="1 entries as reward for 2 players"):
        game = PairGame(DiEnginePair())
        game.reset()
        game._env.step = lambda actions: (np.zeros((2, 1)), [1.0], False, {})
        game.step({0: 0, 1: 0})


# --- teams as one lane


def test_a_team_is_its_agents_side_by_side() -> None:
    from mpe2 import simple_spread_v3

    team, alone = JointEnv(SPREAD), simple_spread_v3.parallel_env(**SPREAD["kwargs"])  # type: ignore[arg-type]
    obs, _ = team.reset(seed=3)
    theirs, _ = alone.reset(seed=3)
    rng = np.random.default_rng(0)
    for step in range(5):
        assert (obs["agents"] == np.stack(list(theirs.values())).astype(np.float32)).all()
        assert (obs["state"] == alone.state().astype(np.float32)).all()
        action = rng.integers(0, 5, 3)
        obs, reward, terminated, truncated, _ = team.step(action)
        theirs, rewards, *_ = alone.step(dict(zip(alone.possible_agents, action.tolist(), strict=True)))
        assert reward == pytest.approx(np.mean(list(rewards.values())))
        assert (terminated, truncated) == (False, step == 4)
    team.close()
    alone.close()


def test_teams_are_envs_as_gymnasium_wants_them() -> None:
    check_env(TwoStepGame(), skip_render_check=True)


def test_what_is_no_team_of_discrete_actions_is_refused() -> None:
    with pytest.raises(ConfigError, match="continuous_actions=False"):
        JointEnv({"env_id": "mpe2.simple_spread_v3", "kwargs": {"continuous_actions": True}})
    with pytest.raises(ConfigError, match="env_id"):
        JointEnv({"env_id": "os.system"})


def test_the_two_step_game_pays_as_in_the_paper() -> None:
    game = TwoStepGame()
    returns = {}
    for first in (0, 1):
        for second in ((0, 0), (0, 1), (1, 0), (1, 1)):
            game.reset()
            obs, reward, terminated, _, _ = game.step((first, 0))
            assert (reward, terminated) == (0.0, False) and obs["state"].argmax() == 1 + first
            returns[first, second] = game.step(second)[1]

    assert [returns[0, second] for second in ((0, 0), (0, 1), (1, 0), (1, 1))] == [7.0] * 4
    assert [returns[1, second] for second in ((0, 0), (0, 1), (1, 0), (1, 1))] == [0.0, 1.0, 1.0, 8.0]
