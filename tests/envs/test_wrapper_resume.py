"""What wrappers remember survives restarts and comes back with a resumed run."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from ding_like.envs import EnvFactory, create_env_manager
from ding_like.errors import CheckpointError, EnvError
from ding_like.utils.checkpoint import load_state, save_state
from tests.envs.faulty_env import DeadlyToAskEnv, NormalisedEnv, SetStateEnv

WRAPPERS = [dict(type="obs_norm"), dict(type="frame_stack", stack_size=3), dict(type="reward_norm")]
KINDS = [
    dict(type="base"),
    dict(type="gym_vector", autoreset_mode="Disabled"),
    dict(type="subprocess", envs_per_process=2),
]
KIND_IDS = [kind["type"] for kind in KINDS]


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


@pytest.mark.parametrize(
    ("kind", "played"), [(KINDS[0], 3), (KINDS[0], 25), (KINDS[0], 131), (KINDS[1], 131), (KINDS[2], 131)]
)
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


@pytest.mark.parametrize(
    "kind", [pytest.param(KINDS[0], id="base"), pytest.param(KINDS[2], id="subprocess", marks=pytest.mark.slow)]
)
def test_a_lane_that_is_not_played_again_keeps_what_its_wrappers_know(kind: dict[str, Any]) -> None:
    original, other = (make(kind, resume_replay_steps=5) for _ in range(2))
    original.launch()
    drive(original, 30, np.random.default_rng(0))

    other.load_state_dict(original.state_dict())

    assert other.lanes_lost == [0, 1, 2]
    assert other.wrapper_states()[0][1]["state"]["count"] > 30
    original.close()
    other.close()


@pytest.mark.parametrize("kind", KINDS, ids=KIND_IDS)
def test_statistics_survive_a_crash(kind: dict[str, Any], tmp_path: Any) -> None:
    env_fn = functools.partial(NormalisedEnv, faults={(5, 1): "raise"}, fault_dir=str(tmp_path))
    manager = create_env_manager(kind, [env_fn])
    manager.launch()
    steps = 0
    while not list(tmp_path.iterdir()):
        manager.step(np.arange(1), np.zeros(1, np.int64))
        steps += 1

    assert manager.wrapper_states()[0][0]["state"]["count"] > steps
    manager.close()


def test_what_was_known_at_the_last_seeded_reset_survives_the_end_of_a_process(tmp_path: Any) -> None:
    env_fn = functools.partial(NormalisedEnv, faults={(5, 1): "segfault"}, fault_dir=str(tmp_path))
    manager = create_env_manager(dict(type="subprocess", reseed_after=0), [env_fn])
    manager.launch()
    steps = 0
    while not list(tmp_path.iterdir()):
        manager.step(np.arange(1), np.zeros(1, np.int64))
        steps += 1

    # The last seeded reset began the episode whose first step broke.
    assert manager.wrapper_states()[0][0]["state"]["count"] > steps - 1
    manager.close()


def test_the_other_lanes_of_a_process_that_ends_come_back_with_their_statistics(tmp_path: Any) -> None:
    faults = [{(2, 2): "segfault"}, {}]
    env_fn = [functools.partial(NormalisedEnv, env_id=i, faults=faults[i], fault_dir=str(tmp_path)) for i in range(2)]
    struck = create_env_manager(dict(type="subprocess", envs_per_process=2), env_fn)
    spared = create_env_manager(dict(type="base"), env_fn[1:])
    found: list[list[Any]] = [[], []]
    for manager, rows in zip([struck, spared], found, strict=True):
        manager.seed(7 if manager is struck else 8)
        manager.launch()
        for _ in range(40):
            batch = manager.step(np.arange(manager.num_lanes), np.zeros(manager.num_lanes, np.int64))
            assert manager.num_lanes - 1 in batch.lanes
            rows.append(batch.next_obs[-1].tolist())

    assert list(tmp_path.iterdir())
    assert found[0] == found[1]
    assert struck.wrapper_states()[1][0]["state"]["count"] == spared.wrapper_states()[0][0]["state"]["count"]
    struck.close()
    spared.close()


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[2]], ids=["base", "subprocess"])
def test_a_manager_adopts_the_statistics_of_another(kind: dict[str, Any]) -> None:
    collector, evaluator = make(kind), make(kind)
    collector.launch()
    evaluator.launch()
    drive(collector, 50, np.random.default_rng(0))

    evaluator.adopt_wrapper_states(collector.wrapper_states())
    drive(evaluator, 20, np.random.default_rng(1))

    counts = [each[1]["state"]["count"] for each in collector.wrapper_states()]
    assert [each[1]["state"]["count"] for each in evaluator.wrapper_states()] == pytest.approx([sum(counts)] * 3)
    collector.close()
    evaluator.close()


@pytest.mark.parametrize(
    "kind", [pytest.param(KINDS[0], id="base"), pytest.param(KINDS[2], id="subprocess", marks=pytest.mark.slow)]
)
def test_a_manager_goes_on_from_the_statistics_of_fewer_lanes(kind: dict[str, Any]) -> None:
    original, other = make(kind), make(kind)
    original.launch()
    drive(original, 30, np.random.default_rng(0))
    states = original.wrapper_states()[:2]

    other.load_wrapper_states(states)

    assert [each[1]["state"]["count"] for each in other.wrapper_states()] == [
        states[lane % 2][1]["state"]["count"] for lane in range(3)
    ]
    original.close()
    other.close()


@pytest.mark.parametrize(
    "kind", [pytest.param(KINDS[0], id="base"), pytest.param(KINDS[2], id="subprocess", marks=pytest.mark.slow)]
)
def test_statistics_of_an_env_that_is_wrapped_otherwise_are_a_checkpoint_error(kind: dict[str, Any]) -> None:
    manager = make(kind)

    with pytest.raises(CheckpointError, match=r"of the wrappers \['Other'\]"):
        manager.load_wrapper_states([[dict(type="Other", state={})]])
    manager.launch()
    drive(manager, 3, np.random.default_rng(0))

    manager.close()


def test_asking_a_process_that_dies_is_answered_by_the_next(tmp_path: Any) -> None:
    env_fn = functools.partial(DeadlyToAskEnv, str(tmp_path / "died"))
    manager = create_env_manager(dict(type="subprocess"), [env_fn])
    manager.launch()
    manager.step(np.arange(1), np.zeros(1, np.int64))

    states = manager.wrapper_states()

    assert (tmp_path / "died").exists()
    # Asked before its first reset, and now.
    assert states == [[{"type": "DeadlyToAskEnv", "state": {"calls": 2}}]]
    assert manager.obs[0, 2] == 0
    assert manager.step(np.arange(1), np.zeros(1, np.int64)).dropped.tolist() == [0]
    manager.close()


def test_a_state_that_cannot_leave_its_process_is_an_env_error() -> None:
    with pytest.raises(EnvError, match=r"state_dict of a wrapper.* hold \{3\}, a set.*manager type 'base'"):
        create_env_manager(dict(type="subprocess"), [SetStateEnv])
