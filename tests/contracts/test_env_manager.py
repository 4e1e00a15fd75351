"""What every env manager promises, whatever is behind it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ding_like.envs import EnvFactory, create_env_manager
from ding_like.envs.manager.base import ArrayEnvManager
from ding_like.envs.manager.game import GameEnvManager, VersusManager
from ding_like.envs.spaces import ActionLayout
from ding_like.errors import CheckpointError, EnvError, SchemaError, TrainingError
from ding_like.types import EnvManager
from ding_like.utils.checkpoint import load_state, save_state
from ding_like.utils.registries import ENV_MANAGER_REGISTRY
from tests.envs.faulty_env import ProbeEnv
from tests.envs.scripted_env import EchoEnv, Recorder, ScriptedEnv, expected_transitions
from tests.envs.test_games import ScriptedOpponent
from tests.worker.collector.scripted_game import ScriptedActor, ScriptedGame

MANAGERS: dict[str, dict[str, Any]] = {
    "base": dict(type="base"),
    "gym_vector, next step": dict(type="gym_vector", autoreset_mode="NextStep"),
    "gym_vector, same step": dict(type="gym_vector", autoreset_mode="SameStep"),
    "gym_vector, disabled": dict(type="gym_vector", autoreset_mode="Disabled"),
    "subprocess": dict(type="subprocess"),
    "subprocess, any": dict(type="subprocess", wait_num=1),
}
# One of each class: what does not depend on when a lane is reset, or on the order of answers.
CLASSES = ["base", "gym_vector, next step", "subprocess"]
# Managers that reset one lane with a seed of its own and play its actions again.
EXACT = ["base", "gym_vector, disabled", "subprocess"]
# Managers whose lanes are envs of their own.
SINGLE = ["base", "subprocess"]
# Managers whose lanes answer in an order that does not depend on the machine.
ORDERED = [kind for kind in MANAGERS if kind != "subprocess, any"]

Make = Callable[..., Any]


@pytest.fixture(params=MANAGERS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(kind: str) -> Iterator[Make]:
    """Return a function that makes a manager of the kind under test; all are closed at the end."""
    made: list[Any] = []

    def make_manager(env_fn: list[Callable[[], Any]], **cfg: Any) -> Any:
        made.append(create_env_manager({**MANAGERS[kind], **cfg}, env_fn))
        return made[-1]

    yield make_manager
    for manager in made:
        manager.close()


def scripted(num: int = 3, **kwargs: Any) -> list[Callable[[], Any]]:
    return [functools.partial(ScriptedEnv, lane, **kwargs) for lane in range(num)]


def classic(env_id: str = "CartPole-v1", num: int = 3) -> list[Callable[[], Any]]:
    # A wrapper keeps gym_vector from taking the vectorised entry point, whose mode is not ours to choose.
    wrappers = [dict(type="TimeAwareObservation")]
    return [EnvFactory(dict(type="gymnasium", env_id=env_id, wrappers=wrappers)) for _ in range(num)]


def play(manager: Any, steps: int, rng: np.random.Generator) -> list[Any]:
    """Step all ready lanes with random actions and return what came back, as plain data."""
    found = []
    for _ in range(steps):
        lanes = np.flatnonzero(manager.ready)
        if isinstance(manager.action_space, gymnasium.spaces.Discrete):
            actions = rng.integers(int(manager.action_space.n), size=len(lanes))
        else:
            actions = rng.uniform(-1, 1, (len(lanes), *manager.action_space.shape)).astype(np.float32)
        batch = manager.step(lanes, actions)
        found.append([np.array(batch[i]).tolist() for i in range(5)])
    return found


def step_all(manager: Any, lanes: Any, actions: Any) -> dict[int, list[float]]:
    """Step lanes until each of them has answered, and return their next observations."""
    found: dict[int, list[float]] = {}
    chosen, taken = np.array(lanes), np.array(actions)
    while len(found) < len(lanes):
        batch = manager.step(chosen, taken)
        found.update(zip(batch.lanes.tolist(), batch.next_obs.tolist(), strict=True))
        chosen, taken = np.zeros(0, np.int64), np.zeros(0, np.int64)
    return found


def test_every_registered_manager_stands_on_the_same_ground() -> None:
    names = ENV_MANAGER_REGISTRY.names()

    assert {"base", "subprocess", "gym_vector", "game", "envpool", "ale_vector"} <= set(names)
    own = [name for name in names if ENV_MANAGER_REGISTRY.get(name).__module__.startswith("ding_like.")]
    assert [name for name in own if not issubclass(ENV_MANAGER_REGISTRY.get(name), ArrayEnvManager)] == []


def games(num: int = 3, **kwargs: Any) -> GameEnvManager:
    return GameEnvManager([functools.partial(ScriptedGame, game, **kwargs) for game in range(num)])


def test_games_are_an_env_manager_too_also_as_one_player_sees_them() -> None:
    manager, seen = games(num_players=3), VersusManager(games(), rng=np.random.default_rng(0))

    assert has_all_members(manager) and has_all_members(seen)
    assert (manager.num_envs, manager.num_players, manager.num_lanes) == (3, 3, 9)
    assert (seen.num_envs, seen.num_players, seen.num_lanes) == (3, 1, 3)


def has_all_members(manager: Any) -> bool:
    """Tell whether a manager has the protocol's members, of the types that it says."""
    types = {"num_envs": int, "num_lanes": int, "num_players": int, "lane_seeds": bool, "closed": bool}
    types |= {"game_steps": int, "lanes_lost": list, "ended_games": list, "reward_shaping": type(None)}
    assert [name for name, kind in types.items() if not isinstance(getattr(manager, name), kind)] == []
    assert manager.num_lanes == manager.num_envs * manager.num_players
    assert (manager.game_steps, manager.lanes_lost, manager.ended_games) == (0, [], [])
    return isinstance(manager, EnvManager)


def test_steps_are_counted_and_ended_episodes_named(make: Make, tmp_path: Path) -> None:
    faults = {(1, 2): "raise", (3, 1): "nan_obs"}
    manager = make(scripted(3, faults=faults, fault_dir=str(tmp_path)))
    manager.launch()
    recorder = Recorder(manager)

    answered, num_ended = 0, 0
    while num_ended < 20:
        batch = recorder.step()
        answered += len(batch.lanes)
        num_ended += len(manager.ended_games)
        assert manager.ended_games == batch.lanes[batch.terminated | batch.truncated].tolist()

    assert manager.game_steps == answered
    assert recorder.dropped, "an episode that broke off did not end"


def test_moves_of_games_are_counted_and_ended_games_named_by_whoever_shows_them() -> None:
    inner = games(lengths=(2,), num_players=2)
    seen = VersusManager(inner, rng=np.random.default_rng(0), opponent=ScriptedOpponent())
    seen.launch()
    actor = ScriptedActor()

    ended = []
    for _ in range(4):
        obs, lanes = np.asarray(seen.obs), np.arange(3)
        action = actor.act(obs, lanes=lanes, is_first=obs[:, 3] == 0, rng=None)["action"]
        seen.step(lanes, action)
        assert seen.ended_games == inner.ended_games
        ended.append(seen.ended_games)

    assert ended == [[], [0, 1, 2]] * 2
    assert seen.game_steps == inner.game_steps == 4 * 3


def test_transitions_are_those_of_the_envs_stepped_by_hand(make: Make) -> None:
    scripts = [((2, "terminated"),), ((7, "truncated"), (1, "terminated")), ((1, "terminated"),)]
    for env_fn in (scripted(), [functools.partial(ScriptedEnv, i, script=script) for i, script in enumerate(scripts)]):
        manager = make(env_fn)
        recorder = Recorder(manager)
        manager.launch()

        while min(map(len, recorder.transitions)) < 40:
            recorder.step()

        for make_env, transitions in zip(env_fn, recorder.transitions, strict=True):
            assert transitions[:40] == expected_transitions(make_env(), 40)


def test_info_at_the_end_is_the_ended_episodes_own(make: Make) -> None:
    manager = make(scripted(1, script=((3, "truncated"),)))
    recorder = Recorder(manager)
    manager.launch()

    while len(recorder.transitions[0]) < 7:
        recorder.step()

    assert [info for info in recorder.infos if info] == [{0: {"at": 3}}, {0: {"at": 3}}]


@pytest.mark.parametrize("kind", CLASSES)
def test_lanes_may_be_given_in_any_order(make: Make) -> None:
    manager = make(scripted(script=((9, "terminated"),)))
    manager.launch()

    next_obs = step_all(manager, [2, 0, 1], [2, 0, 1])

    alone = [ScriptedEnv(lane) for lane in range(3)]
    for lane, env in enumerate(alone):
        env.reset()
        assert next_obs[lane] == env.step(lane)[0].tolist()


def test_dict_observations_have_flat_keys_and_the_last_ones_are_true(make: Make) -> None:
    manager = make(scripted(1, as_dict=True, script=((2, "terminated"),)))
    manager.launch()
    manager.step(np.arange(1), np.zeros(1, np.int64))

    batch = manager.step(np.arange(1), np.zeros(1, np.int64))

    assert batch.terminated.tolist() == [True]
    assert list(manager.observation_space.spaces) == list(manager.obs) == list(batch.next_obs) == ["arm/code"]
    assert batch.next_obs["arm/code"][0, :3].tolist() == [0, 0, 2]


@pytest.mark.parametrize("kind", CLASSES)
def test_what_a_step_returned_stays_until_the_next_step(make: Make) -> None:
    manager = make(scripted())
    manager.launch()
    recorder = Recorder(manager)
    for _ in range(12):
        batch = recorder.step()
        copies = [np.array(part) for part in batch[:5]]

        manager.obs, manager.ready, manager.state_dict()

        for part, copy in zip(batch[:5], copies, strict=True):
            assert np.array_equal(part, copy)


def test_lanes_left_idle_deliver_whole_stretches_and_what_breaks_off_is_dropped(make: Make) -> None:
    manager = make(scripted(3, script=((4, "terminated"), (6, "truncated"))))
    manager.launch()
    recorder = Recorder(manager)
    rng = np.random.default_rng(0)

    for _ in range(150):
        recorder.step({int(lane) for lane in rng.choice(3, size=2, replace=False)})

    for lane, transitions in enumerate(recorder.transitions):
        broken = 0
        assert len(transitions) > 20
        assert all(t.obs[0] == lane for t in transitions)
        for before, after in itertools.pairwise(transitions):
            goes_on = after.episode == before.episode and after.step == before.step + 1
            is_new = after.episode > before.episode and after.step == 0
            assert goes_on or is_new
            assert not goes_on or after.obs == before.next_obs
            broken += after.step == 0 and not (before.terminated or before.truncated)
        is_open = not (transitions[-1].terminated or transitions[-1].truncated)
        assert recorder.dropped.count(lane) in (broken, broken + is_open)


@pytest.mark.parametrize("kind", CLASSES)
def test_reset_of_some_lanes_leaves_the_others_where_they_are(make: Make) -> None:
    manager = make(scripted(3, script=((9, "terminated"),)))
    manager.launch()
    step_all(manager, [0, 1, 2], [0, 0, 0])

    manager.reset(np.array([1]))

    assert manager.obs[:, 2].tolist() == [1, 0, 1]
    assert manager.ready.all()


@pytest.mark.parametrize("kind", CLASSES)
def test_a_manager_that_is_closed_or_not_launched_refuses_steps(make: Make) -> None:
    manager = make(scripted())
    with pytest.raises(EnvError, match="2 seeds for 3 lanes"):
        manager.reset(seeds=[1, 2])
    with pytest.raises(EnvError, match="launch"):
        manager.step(np.arange(3), np.zeros(3, np.int64))
    manager.reset()  # launches
    manager.launch()
    assert manager.obs[:, 1].tolist() == [0, 0, 0], "one reset"

    manager.close()
    manager.close()

    assert manager.closed
    with pytest.raises(EnvError, match="closed"):
        manager.step(np.arange(3), np.zeros(3, np.int64))


@pytest.mark.parametrize("kind", CLASSES)
def test_lanes_that_do_not_exist_and_actions_of_another_shape_are_refused(make: Make) -> None:
    manager = make(scripted())
    assert has_all_members(manager)
    manager.launch()

    for lanes in ([0, 0], [3], [-1]):
        with pytest.raises(EnvError, match="0 to 2"):
            manager.step(np.array(lanes), np.zeros(len(lanes), np.int64))
    with pytest.raises(SchemaError, match=r"\(3, 2\).*\(3,\)"):
        manager.step(np.arange(3), np.zeros((3, 2), np.int64))
    batch = manager.step(np.arange(3), np.zeros(3, np.int64))

    assert batch.lanes.dtype == np.int64 and batch.dropped.dtype == np.int64
    assert batch.next_obs.dtype == batch.reward.dtype == np.float32
    assert batch.terminated.dtype == batch.truncated.dtype == np.bool_
    assert manager.obs.dtype == np.float32 and manager.observation_space.dtype == np.float32


@pytest.mark.parametrize("kind", ORDERED)
def test_equal_seeds_give_equal_runs_and_others_do_not(make: Make) -> None:
    runs = []
    for seed in (7, 7, 8):
        manager = make(classic(num=2))
        manager.seed(seed)
        manager.launch()
        runs.append(play(manager, 40, np.random.default_rng(0)))

    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize("kind", ORDERED)
def test_reset_with_seeds_begins_the_same_run_again(make: Make) -> None:
    manager = make(classic())
    manager.seed(1)
    manager.launch()
    runs = []

    for _ in range(2):
        manager.reset(seeds=[5, 50, 500])
        runs.append(play(manager, 80, np.random.default_rng(0)))

    assert runs[0] == runs[1]


@pytest.mark.parametrize("kind", CLASSES)
def test_a_first_reset_gives_lane_i_the_seed_plus_i(make: Make) -> None:
    manager = make(classic())
    manager.seed(7)

    manager.launch()

    for lane in range(3):
        expected, _ = gymnasium.make("CartPole-v1").reset(seed=7 + lane)
        assert np.array_equal(manager.obs[lane, :4], expected)


@pytest.mark.parametrize("kind", EXACT)
def test_without_dynamic_seeds_every_episode_of_a_lane_begins_alike(make: Make) -> None:
    manager = make(classic(num=2))
    manager.seed(3, dynamic_seed=False)
    manager.launch()
    first = manager.obs.copy()

    beginnings = []
    for _ in range(150):
        batch = manager.step(np.arange(2), np.zeros(2, np.int64))
        beginnings += [(lane, manager.obs[lane].tolist()) for lane in np.flatnonzero(batch.terminated)]

    assert len(beginnings) > 10
    assert all(obs == first[lane].tolist() for lane, obs in beginnings)


@pytest.mark.parametrize(
    ("kind", "env_id", "reseed_after"),
    [
        *(("base", env_id, after) for env_id in ("CartPole-v1", "Pendulum-v1", "Acrobot-v1") for after in (0, 50)),
        *(("gym_vector, disabled", "CartPole-v1", after) for after in (0, 50)),
        ("subprocess", "CartPole-v1", 50),
    ],
)
def test_a_restored_manager_goes_on_as_the_original_does(
    make: Make, env_id: str, reseed_after: int, tmp_path: Path
) -> None:
    manager = make(classic(env_id, num=2), reseed_after=reseed_after)
    manager.seed(11)
    manager.launch()
    play(manager, 230, np.random.default_rng(1))
    state, obs = manager.state_dict(), np.array(manager.obs)
    expected = play(manager, 250, np.random.default_rng(2))

    other = make(classic(env_id, num=2), reseed_after=reseed_after)
    save_state(tmp_path / "state.pt", state)
    other.load_state_dict(load_state(tmp_path / "state.pt"))

    assert other.lanes_lost == []
    assert np.array_equal(other.obs, obs)
    second = other.state_dict()
    assert play(other, 250, np.random.default_rng(2)) == expected
    other.load_state_dict(second)
    assert other.lanes_lost == []
    assert np.array_equal(other.obs, obs), "restored a second time"


@pytest.mark.parametrize("kind", EXACT)
def test_a_lane_left_idle_is_restored_too(make: Make) -> None:
    manager = make(classic())
    manager.seed(11)
    manager.launch()
    for _ in range(5):
        manager.step(np.array([0, 2]), np.array([0, 1]))

    other = make(classic())
    other.load_state_dict(manager.state_dict())

    assert other.lanes_lost == []
    assert np.array_equal(other.obs, manager.obs) and np.array_equal(other.ready, manager.ready)
    assert play(other, 60, np.random.default_rng(2)) == play(manager, 60, np.random.default_rng(2))


@pytest.mark.parametrize("kind", ["base", "gym_vector, disabled"])
def test_a_stretch_over_the_cap_is_lost_and_begins_anew(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    manager = make(classic("Pendulum-v1", num=2), resume_replay_steps=20)
    manager.launch()
    play(manager, 15, np.random.default_rng(1))
    manager.reset(np.array([1]))
    play(manager, 15, np.random.default_rng(1))

    other = make(classic("Pendulum-v1", num=2), resume_replay_steps=20)
    other.load_state_dict(manager.state_dict())

    assert other.lanes_lost == [0]
    assert np.array_equal(other.obs[1], manager.obs[1])
    assert "could not be brought back" in caplog.text


@pytest.mark.parametrize("kind", CLASSES)
def test_lanes_that_cannot_come_back_are_said_to_be_lost(kind: str, make: Make) -> None:
    # The scripted env counts its episodes over resets, so no seed brings it back.
    manager = make(scripted(2), reseed_after=0)
    manager.launch()
    recorder = Recorder(manager)
    for _ in range(9):
        recorder.step()

    other = make(scripted(2), reseed_after=0)
    other.load_state_dict(manager.state_dict())

    assert other.lanes_lost == [0, 1]
    assert other.ready.all()
    assert other.obs[:, 2].tolist() == [0, 0]


@pytest.mark.parametrize("kind", SINGLE)
@pytest.mark.parametrize(
    ("space", "actions", "echoed"),
    [
        (spaces.Discrete(3, start=5), [0, 2], [[5], [7]]),
        (spaces.Box(-1, 1, (2,), np.float32), [[0.5, -1], [0, 1]], [[0.5, -1], [0, 1]]),
        (spaces.Box(-1, 1, (2,), np.float64), [[0.5, -1], [0, 1]], [[0.5, -1], [0, 1]]),
        (spaces.MultiDiscrete([2, 4]), [[0, 3], [1, 0]], [[0, 3], [1, 0]]),
        (spaces.MultiBinary(3), [[0, 1, 1], [1, 0, 0]], [[0, 1, 1], [1, 0, 0]]),
    ],
)
def test_actions_reach_the_envs_in_their_own_space(make: Make, space: Any, actions: Any, echoed: Any) -> None:
    manager = make([functools.partial(EchoEnv, space)] * 2)
    manager.launch()

    batch = manager.step(np.arange(2), np.array(actions))

    assert manager.action_space == ActionLayout(space).space
    assert batch.next_obs.tolist() == echoed


@pytest.mark.parametrize("kind", SINGLE)
def test_options_go_into_this_and_every_later_reset(make: Make) -> None:
    manager = make([ProbeEnv] * 2)
    manager.launch()

    manager.reset(options={1: {"level": np.float64(7)}})
    for _ in range(5):  # an episode has 4 steps
        manager.step(np.arange(2), np.zeros(2, np.int64))

    assert manager.obs[:, 2].tolist() == [0, 7]


@pytest.mark.parametrize("kind", SINGLE)
def test_envs_of_different_spaces_are_refused(make: Make) -> None:
    with pytest.raises(EnvError, match="equal spaces, but action_space is .*2.* in lane 0 and .*3.* in lane 1"):
        make([functools.partial(EchoEnv, spaces.Discrete(num)) for num in (2, 3)])


@pytest.mark.parametrize("kind", SINGLE)
def test_a_crash_is_logged_with_env_seed_and_last_actions(
    make: Make, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    script, faults = ((9, "terminated"),), {(0, 3): "raise"}
    manager = make(scripted(1, script=script, faults=faults, fault_dir=str(tmp_path)))
    manager.seed(77)
    manager.launch()

    for action in (1, 2, 0):
        manager.step(np.arange(1), np.array([action]))

    assert "env 0 broke: ValueError: scripted crash in step" in caplog.text
    assert "last seeded reset 77, 3 steps ago; last actions [1, 2, 0]" in caplog.text


@pytest.mark.parametrize("kind", CLASSES)
def test_a_checkpoint_of_another_size_is_refused(make: Make) -> None:
    manager = make(scripted(2))
    manager.launch()

    with pytest.raises(CheckpointError, match="2 lanes, this manager runs 3"):
        make(scripted(3)).load_state_dict(manager.state_dict())


# What is done about a fault does not depend on where it shows; that it is seen does.
@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        *((kind, "raise") for kind in MANAGERS),
        *((kind, fault) for kind in CLASSES for fault in ("nan_obs", "inf_reward")),
    ],
)
def test_a_fault_drops_the_open_episode_and_the_lane_goes_on(make: Make, tmp_path: Any, fault: str) -> None:
    manager = make(scripted(2, script=((4, "terminated"),), faults={(1, 2): fault}, fault_dir=str(tmp_path)))
    manager.launch()
    recorder = Recorder(manager)

    while min(map(len, recorder.transitions)) < 30:
        recorder.step()

    assert set(recorder.dropped) == {0, 1}
    for lane, transitions in enumerate(recorder.transitions):
        assert np.isfinite([t.next_obs for t in transitions]).all()
        assert np.isfinite([t.reward for t in transitions]).all()
        broken_off = 0
        for before, after in itertools.pairwise(transitions):
            if not before.terminated and after.step == 0:
                broken_off += 1
            else:
                assert after.step == (0 if before.terminated else before.step + 1)
        assert 1 <= broken_off <= recorder.dropped.count(lane), "only an episode that is said to be dropped breaks off"


@pytest.mark.parametrize(("kind", "fault"), [(kind, fault) for kind in CLASSES for fault in ("raise", "nan_obs")])
def test_a_fault_in_reset_is_tried_again(make: Make, tmp_path: Any, fault: str) -> None:
    manager = make(scripted(2, faults={(0, 0): fault}, fault_dir=str(tmp_path)))

    manager.launch()

    assert np.isfinite(manager.obs).all()
    assert manager.obs[:, 2].tolist() == [0, 0]


# With same-step autoreset the last step of an episode and the reset are one call, and the answer is lost with it.
@pytest.mark.parametrize("kind", [kind for kind in MANAGERS if "same step" not in kind])
def test_a_crash_in_a_later_reset_keeps_the_episode_that_ended(make: Make, tmp_path: Any) -> None:
    manager = make(scripted(1, script=((3, "terminated"),), faults={(1, 0): "raise"}, fault_dir=str(tmp_path)))
    manager.launch()
    recorder = Recorder(manager)

    while len(recorder.transitions[0]) < 6:
        recorder.step()

    assert recorder.dropped == []
    assert [t.terminated for t in recorder.transitions[0]] == [False, False, True, False, False, True]


def test_a_crash_in_a_later_reset_leaves_no_episode_torn(make: Make, tmp_path: Any) -> None:
    env_fn = [
        functools.partial(
            ScriptedEnv, 0, script=((2, "terminated"),), faults={(1, 0): "raise"}, fault_dir=str(tmp_path)
        ),
        functools.partial(ScriptedEnv, 1, script=((5, "terminated"),)),
    ]
    manager = make(env_fn)
    manager.launch()
    recorder = Recorder(manager)

    while min(map(len, recorder.transitions)) < 20:
        recorder.step()

    for lane, transitions in enumerate(recorder.transitions):
        torn = 0
        for before, after in itertools.pairwise(transitions):
            torn += after.step == 0 and not before.terminated
            assert after.step == 0 or after.obs == before.next_obs
        assert torn == recorder.dropped.count(lane)


@pytest.mark.parametrize("kind", CLASSES)
def test_a_crash_loop_ends_with_the_cause(make: Make) -> None:
    manager = make(scripted(2, script=((4, "terminated"),), faults={(k, 2): "raise" for k in range(99)}))
    manager.launch()
    recorder = Recorder(manager)

    with pytest.raises(EnvError, match="broke 5 times without finishing an episode") as caught:
        for _ in range(99):
            recorder.step()

    assert isinstance(caught.value.__cause__, ValueError)
    assert "scripted crash in step" in str(caught.value)


@pytest.mark.parametrize("kind", CLASSES)
def test_an_env_that_never_resets_ends_with_the_cause(make: Make) -> None:
    manager = make(scripted(2, faults={(k, 0): "raise" for k in range(99)}))

    with pytest.raises(EnvError, match="scripted crash in reset"):
        manager.launch()


@pytest.mark.parametrize(("kind", "fault"), [(kind, fault) for kind in CLASSES for fault in ("nan_obs", "inf_reward")])
def test_nonfinite_values_raise_if_the_config_says_so(make: Make, fault: str) -> None:
    manager = make(scripted(2, faults={(0, 1): fault}), nonfinite="raise")
    manager.launch()

    with pytest.raises(TrainingError, match=r"env [01]"):
        manager.step(np.arange(2), np.zeros(2, np.int64))
