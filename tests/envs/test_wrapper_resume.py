"""What wrappers remember survives restarts and comes back with a resumed run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ding_like.envs import EnvFactory, create_env_manager
from ding_like.envs.wrappers import wrap
from ding_like.utils.checkpoint import load_state, save_state
from tests.envs.scripted_env import ScriptedEnv

WRAPPERS = [dict(type="obs_norm"), dict(type="frame_stack", stack_size=3), dict(type="reward_norm")]
KINDS = [dict(type="base"), dict(type="gym_vector", autoreset_mode="Disabled")]


def make(kind: dict[str, Any], **cfg: Any) -> Any:
    # A short time limit: episodes end, and some of them inside a stretch that is played again.
    env = dict(type="gymnasium", env_id="Pendulum-v1", max_episode_steps=17, wrappers=WRAPPERS)
    return create_env_manager({**kind, "reseed_after": 40, **cfg}, [EnvFactory(env) for _ in range(3)])


def drive(manager: Any, num: int, rng: np.random.Generator) -> list[Any]:
    found = []
    for _ in range(num):
        batch = manager.step(np.arange(3), rng.uniform(-2, 2, (3, 1)).astype(np.float32))
        found.append(np.concatenate([batch.next_obs.reshape(3, -1), batch.reward[:, None]], axis=1))
    return found


@pytest.mark.parametrize("kind", KINDS, ids=["base", "gym_vector"])
@pytest.mark.parametrize("played", [3, 25, 60, 131])
def test_a_manager_with_normalising_wrappers_resumes_exactly(kind: dict[str, Any], played: int, tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    original, other = make(kind), make(kind)
    original.seed(5)
    original.launch()
    drive(original, played, rng)

    save_state(tmp_path / "state.pt", original.state_dict())
    other.load_state_dict(load_state(tmp_path / "state.pt"))

    assert other.lanes_lost == []
    assert np.array_equal(other.obs, original.obs)
    state = rng.bit_generator.state
    expected = drive(original, 120, rng)
    rng.bit_generator.state = state
    assert np.array_equal(drive(other, 120, rng), expected)
    original.close()
    other.close()


def test_a_lane_that_is_not_played_again_keeps_what_its_wrappers_know(tmp_path: Any) -> None:
    original, other = (make(KINDS[0], resume_replay_steps=5) for _ in range(2))
    original.launch()
    drive(original, 30, np.random.default_rng(0))

    other.load_state_dict(original.state_dict())

    assert other.lanes_lost == [0, 1, 2]
    assert other.wrapper_states()[0][1]["state"]["count"] > 30
    original.close()
    other.close()


@pytest.mark.parametrize("kind", KINDS, ids=["base", "gym_vector"])
def test_statistics_survive_a_crash(kind: dict[str, Any], tmp_path: Any) -> None:
    faults = {(5, 1): "raise"}

    def env_fn() -> Any:
        return wrap(ScriptedEnv(faults=faults, fault_dir=str(tmp_path)), [dict(type="obs_norm")])

    manager = create_env_manager(kind, [env_fn])
    manager.launch()
    steps = 0
    while not list(tmp_path.iterdir()):
        manager.step(np.arange(1), np.zeros(1, np.int64))
        steps += 1

    assert manager.wrapper_states()[0][0]["state"]["count"] > steps
    manager.close()


def test_a_manager_adopts_the_statistics_of_another() -> None:
    collector, evaluator = make(KINDS[0]), make(KINDS[0])
    collector.launch()
    evaluator.launch()
    drive(collector, 50, np.random.default_rng(0))

    evaluator.adopt_wrapper_states(collector.wrapper_states())
    drive(evaluator, 20, np.random.default_rng(1))

    counts = [each[1]["state"]["count"] for each in collector.wrapper_states()]
    assert [each[1]["state"]["count"] for each in evaluator.wrapper_states()] == pytest.approx([sum(counts)] * 3)
    collector.close()
    evaluator.close()
