"""What the managers of vector envs do: of vectorised entry points, of envpool (or a stand-in), of ALE."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from ding_like.envs import EnvFactory
from ding_like.envs.manager.gym_vector import AleVectorEnvManager, EnvPoolManager, GymVectorEnvManager
from ding_like.errors import ConfigError, EnvError

CARTPOLE = dict(type="gymnasium", env_id="CartPole-v1")


class SilentVectorEnv(CartPoleVectorEnv):
    """Vector env without metadata on how ended lanes are reset."""

    metadata: dict[str, Any] = {"render_modes": []}


class CrashingVectorEnv(CartPoleVectorEnv):
    """Crash at the first step after every `calm` steps of the process."""

    taken = 0
    calm = 7

    def step(self, action: Any) -> Any:
        CrashingVectorEnv.taken += 1
        if CrashingVectorEnv.taken % self.calm == 0:
            raise ValueError("vector crash")
        return super().step(action)


@pytest.fixture
def register() -> Iterator[Any]:
    """Return a function that registers a vectorised entry point under a test's id."""
    ids: list[str] = []

    def add(entry: Any) -> dict[str, Any]:
        ids.append(f"DingTest{len(ids)}-v0")
        gymnasium.register(
            ids[-1],
            entry_point="gymnasium.envs.classic_control.cartpole:CartPoleEnv",
            vector_entry_point=entry,
            max_episode_steps=30,
        )
        return dict(type="gymnasium", env_id=ids[-1])

    yield add
    for env_id in ids:
        del gymnasium.registry[env_id]


def make(cfg: dict[str, Any], num: int = 3, **manager_cfg: Any) -> GymVectorEnvManager:
    return GymVectorEnvManager([EnvFactory(cfg) for _ in range(num)], manager_cfg)


def test_the_vectorised_entry_point_is_taken_with_the_ids_time_limit(register: Any) -> None:
    manager = make(register(CartPoleVectorEnv), num=1)
    manager.seed(0)
    manager.launch()

    ends = []
    for count in range(1, 200):
        # Push towards where the pole falls: the episode goes on until the time limit.
        obs = manager.obs
        lanes = np.flatnonzero(manager.ready)
        batch = manager.step(lanes, (obs[lanes, 2] + obs[lanes, 3] > 0).astype(np.int64))
        if batch.truncated.any():
            ends.append(count)

    # 30 steps, and one dummy step before each following episode.
    assert ends == [30, 61, 92, 123, 154, 185]
    assert not manager.lane_seeds


def test_dummy_steps_are_no_transitions() -> None:
    manager = make(CARTPOLE, num=4)
    manager.seed(3)
    manager.launch()
    rng = np.random.default_rng(0)
    by_hand = gymnasium.make_vec("CartPole-v1", num_envs=4, vectorization_mode="vector_entry_point")
    seeds = [3, 4, 5, 6]
    by_hand.reset(seed=int(np.random.SeedSequence(seeds).generate_state(1)[0] % (2**31 - 1)))

    was_over = np.zeros(4, bool)
    num_dummies = 0
    for _ in range(300):
        actions = rng.integers(2, size=4)
        lanes = np.flatnonzero(manager.ready)
        assert lanes.tolist() == np.flatnonzero(~was_over).tolist()
        batch = manager.step(lanes, actions[lanes])
        obs, reward, terminated, truncated, _ = by_hand.step(actions)

        assert np.array_equal(batch.next_obs, obs[lanes])
        assert np.array_equal(batch.reward, reward[lanes]) and (batch.reward == 1).all()
        assert np.array_equal(batch.terminated, terminated[lanes])
        num_dummies += 4 - len(lanes)
        was_over = terminated | truncated

    assert num_dummies > 20


def test_a_vector_env_with_one_generator_loses_its_lanes_on_resume() -> None:
    manager = make(CARTPOLE)
    manager.launch()
    manager.step(np.arange(3), np.zeros(3, np.int64))

    other = make(CARTPOLE)
    other.load_state_dict(manager.state_dict())

    assert other.lanes_lost == [0, 1, 2]
    assert other.ready.all()


def test_a_vector_env_with_one_generator_cannot_reset_a_single_lane() -> None:
    manager = make(CARTPOLE)
    manager.launch()

    with pytest.raises(EnvError, match="all its lanes or none"):
        manager.reset(np.array([1]))


def test_a_vector_env_takes_no_options() -> None:
    manager = make(CARTPOLE)
    manager.launch()

    with pytest.raises(EnvError, match="manager type 'base'"):
        manager.reset(options={0: {"low": 0.0}})


def test_a_lane_that_is_not_ready_cannot_be_stepped() -> None:
    manager = make(CARTPOLE, num=1)
    manager.launch()
    while manager.ready.all():
        manager.step(np.arange(1), np.zeros(1, np.int64))

    with pytest.raises(EnvError, match=r"lanes \[0\] are not ready"):
        manager.step(np.arange(1), np.zeros(1, np.int64))


def test_a_vector_env_that_does_not_say_how_it_resets_is_refused(register: Any) -> None:
    cfg = register(SilentVectorEnv)

    with pytest.warns(UserWarning, match="AutoresetMode"), pytest.raises(EnvError, match="autoreset_mode to one of"):
        make(cfg)


def test_the_config_may_say_how_a_silent_vector_env_resets(register: Any) -> None:
    cfg = register(SilentVectorEnv)
    with pytest.warns(UserWarning, match="AutoresetMode"):
        manager = make(cfg, num=1, autoreset_mode="NextStep")
    manager.launch()

    while manager.ready.all():
        manager.step(np.arange(1), np.zeros(1, np.int64))

    assert len(manager.step(np.zeros(0, np.int64), np.zeros(0)).lanes) == 0
    assert manager.ready.all()


def test_a_mode_that_contradicts_the_vector_env_is_refused() -> None:
    with pytest.raises(ConfigError, match="'Disabled', but .* 'NextStep'"):
        make(CARTPOLE, autoreset_mode="Disabled")


def test_an_unknown_mode_is_refused() -> None:
    cfg = {**GymVectorEnvManager.default_config(), "autoreset_mode": "sometimes"}

    assert [path for path, _ in GymVectorEnvManager.check_config(cfg)] == ["autoreset_mode"]
    with pytest.raises(ConfigError, match="'sometimes'.*NextStep"):
        make(CARTPOLE, autoreset_mode="sometimes")


def test_a_crash_of_the_vector_env_drops_every_open_episode(
    register: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(CrashingVectorEnv, "taken", 0)
    manager = make(register(CrashingVectorEnv))
    manager.launch()
    for _ in range(6):
        manager.step(np.arange(3), np.arange(3) % 2)

    batch = manager.step(np.arange(3), np.arange(3) % 2)

    assert batch.lanes.tolist() == [] and batch.dropped.tolist() == [0, 1, 2]
    assert "the vector env broke: ValueError: vector crash" in caplog.text
    assert len(manager.step(np.arange(3), np.arange(3) % 2).lanes) == 3


def test_a_vector_env_in_a_crash_loop_ends_the_run(register: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CrashingVectorEnv, "taken", 0)
    monkeypatch.setattr(CrashingVectorEnv, "calm", 2)
    manager = make(register(CrashingVectorEnv))
    manager.launch()

    with pytest.raises(EnvError, match="the vector env broke.*5 times"):
        for _ in range(20):
            manager.step(np.arange(3), np.zeros(3, np.int64))


@pytest.mark.parametrize("extra", [dict(wrappers=[dict(type="TimeAwareObservation")]), dict(render_mode="rgb_array")])
def test_what_the_entry_point_knows_nothing_of_takes_single_envs(extra: dict[str, Any]) -> None:
    manager = make({**CARTPOLE, **extra})

    manager.launch()

    assert manager.lane_seeds


def test_envs_of_different_configs_take_single_envs() -> None:
    manager = GymVectorEnvManager([EnvFactory(CARTPOLE), EnvFactory({**CARTPOLE, "max_episode_steps": 7})])

    assert manager.lane_seeds


needs_envpool, needs_ale = (
    pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=f"needs {package}")
    for package in ("envpool", "ale_py")
)


class StandInPool(CartPoleVectorEnv):
    """Vector env that behaves as envpool's do: seeds when made, next-step autoreset with dummy steps of reward 0."""

    made: list[dict[str, Any]] = []

    def __init__(self, task: str, *, num_envs: int, num_threads: int, seed: int, **options: Any) -> None:
        if "bogus" in options:
            self.closed = True  # gymnasium 1.1 would close it when it is deleted
            raise TypeError("Config.__new__() got an unexpected keyword argument 'bogus'")
        super().__init__(num_envs=num_envs, max_episode_steps=options.pop("max_episode_steps", 500))
        self.made.append(dict(task=task, num_threads=num_threads, seed=seed, **options))
        self._own_seed = seed

    def reset(self, **kwargs: Any) -> Any:
        assert not kwargs, "envpool ignores seeds"
        return super().reset(seed=self._own_seed)


@pytest.fixture(params=[pytest.param("real", marks=needs_envpool), "stand-in"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "stand-in":
        monkeypatch.setattr(StandInPool, "made", [])
        names = ["CartPole-v1", "Pong-v5"]
        stand_in: Any = SimpleNamespace(make_gymnasium=StandInPool, list_all_envs=lambda: names)
        monkeypatch.setitem(sys.modules, "envpool", stand_in)
    return str(request.param)


@pytest.fixture
def closing() -> Iterator[Callable[[Any], Any]]:
    """Return a function that returns the manager it is given; all are closed at the end."""
    with contextlib.ExitStack() as stack:
        yield stack.enter_context


@pytest.fixture
def pool(library: str, closing: Any) -> Any:
    """Return a function that makes a manager of envpool's envs."""

    def make_manager(env_id: str = "CartPole-v1", *, num: int = 4, **cfg: Any) -> EnvPoolManager:
        return closing(
            EnvPoolManager([EnvFactory(dict(type="gymnasium", env_id=env_id, **cfg))] * num, dict(num_threads=1))
        )

    return make_manager


def play(manager: Any, steps: int, seed: int = 0, num_actions: int = 2) -> list[Any]:
    """Step the lanes that are ready with random actions and return what came back and what is acted on next."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(steps):
        lanes = np.flatnonzero(manager.ready)
        batch = manager.step(lanes, rng.integers(num_actions, size=len(lanes)))
        found.append([np.array(batch[i]).tolist() for i in range(5)] + [manager.obs.tolist(), dict(batch.info)])
    return found


def test_dummy_steps_never_appear(pool: Any) -> None:
    manager = pool()
    manager.launch()
    obs = manager.obs.copy()
    num_ended = 0

    for _ in range(300):
        lanes = np.flatnonzero(manager.ready)
        batch = manager.step(lanes, np.zeros(len(lanes), np.int64))

        assert batch.lanes.tolist() == lanes.tolist() and (batch.reward == 1).all()
        # A position goes on by its velocity: the step belongs to the observation that was acted on.
        assert np.allclose(batch.next_obs[:, 0], obs[lanes, 0] + 0.02 * obs[lanes, 1], atol=1e-5)
        over = np.abs(batch.next_obs[:, 2]) > 12 * 2 * np.pi / 360
        assert batch.terminated.tolist() == over.tolist()
        num_ended += int(over.sum())
        obs = manager.obs.copy()

    assert num_ended > 50


def test_a_time_limit_truncates_with_the_true_last_observation(pool: Any) -> None:
    manager = pool(max_episode_steps=5)
    manager.launch()

    ends = [
        row for batch in play(manager, 60) for row in zip(batch[1], batch[3], batch[4], strict=True) if any(row[1:])
    ]

    assert len(ends) == 40
    assert all(truncated and not terminated for _, terminated, truncated in ends)
    assert min(max(map(abs, next_obs)) for next_obs, _, _ in ends) > 0.06


def test_equal_seeds_give_equal_runs(pool: Any) -> None:
    runs = []
    for seed in (7, 7, 8):
        manager = pool()
        manager.seed(seed)
        manager.launch()
        runs.append(play(manager, 60))

    assert runs[0] == runs[1] != runs[2]


def test_a_reset_with_seeds_begins_the_same_run_again(pool: Any) -> None:
    manager = pool()
    manager.launch()
    runs = []

    for _ in range(2):
        manager.reset(seeds=[5, 6, 7, 8])
        runs.append(play(manager, 60))

    assert runs[0] == runs[1]


def test_resume_begins_new_episodes(pool: Any) -> None:
    manager, other = pool(), pool()
    manager.launch()
    play(manager, 5)

    other.load_state_dict(manager.state_dict())

    assert not other.lane_seeds and other.lanes_lost == [0, 1, 2, 3]
    assert other.ready.all()


@pytest.mark.parametrize(
    ("env_id", "cfg", "message"),
    [
        ("Nowhere-v0", {}, "envpool has no env 'Nowhere-v0'"),
        ("CartPole-v1", dict(wrappers=[dict(type="TimeAwareObservation")]), "without wrappers"),
        ("CartPole-v1", dict(kwargs=dict(bogus=1)), "env.kwargs: .*'bogus'"),
        ("ALE/Pong-v5", dict(kwargs=dict(frameskip=1)), r"env.wrappers=\[dict\(type='atari'\)\]"),
    ],
)
def test_what_it_would_not_do_is_a_config_error(pool: Any, env_id: str, cfg: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        pool(env_id, **cfg)


def test_atari_options_have_the_meaning_they_have_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StandInPool, "made", [])
    stand_in: Any = SimpleNamespace(make_gymnasium=StandInPool, list_all_envs=lambda: ["Pong-v5"])
    monkeypatch.setitem(sys.modules, "envpool", stand_in)
    env = dict(
        type="gymnasium",
        env_id="ALE/Pong-v5",
        kwargs=dict(frameskip=1),
        max_episode_steps=1000,
        wrappers=[dict(type="atari", stack_size=2, noop_max=7, screen_size=42, terminal_on_life_loss=True)],
    )

    EnvPoolManager([EnvFactory(env)], dict(num_threads=1)).close()

    assert StandInPool.made == [
        dict(
            task="Pong-v5",
            num_threads=1,
            seed=0,
            stack_num=2,
            noop_max=7,
            frame_skip=4,
            img_height=42,
            img_width=42,
            episodic_life=True,
            use_fire_reset=False,
            reward_clip=False,
            repeat_action_probability=0.25,
            full_action_space=False,
        )
    ]


@needs_envpool
def test_a_real_game_gives_stacked_frames() -> None:
    env = dict(type="gymnasium", env_id="PongNoFrameskip-v4", wrappers=[dict(type="atari")])

    with EnvPoolManager([EnvFactory(env)] * 2, dict(num_threads=1)) as manager:
        manager.launch()
        batch = manager.step(np.arange(2), np.zeros(2, np.int64))

    assert isinstance(manager.observation_space, gymnasium.spaces.Box)
    assert batch.next_obs.shape == (2, 4, 84, 84) and batch.next_obs.dtype == np.uint8


@pytest.fixture
def ale(closing: Any) -> Any:
    """Return a function that makes a manager of small frames."""

    def make_manager(env_id: str = "BreakoutNoFrameskip-v4", *, num: int = 2, cfg: Any = None, **atari: Any) -> Any:
        env = dict(type="gymnasium", env_id=env_id, wrappers=[dict(type="atari", screen_size=20, **atari)])
        return closing(AleVectorEnvManager([EnvFactory({**env, **(cfg or {})})] * num, dict(num_threads=1)))

    return make_manager


@needs_ale
def test_frames_are_stacked_as_the_wrapper_says(ale: Any) -> None:
    manager = ale(stack_size=3)

    manager.launch()

    assert manager.observation_space.shape == (3, 20, 20)
    assert manager.obs.shape == (2, 3, 20, 20) and manager.obs.dtype == np.uint8


@needs_ale
def test_equal_seeds_give_equal_runs_and_lane_i_has_seed_plus_i(ale: Any) -> None:
    runs = []
    for seed in (7, 7, 8):
        manager = ale(fire_reset=True)
        manager.seed(seed)
        manager.launch()
        first = manager.obs.tolist()
        runs.append((first, play(manager, 10, num_actions=4)))

    assert runs[0] == runs[1]
    assert runs[0][0][1] == runs[2][0][0]


@needs_ale
def test_no_step_is_a_dummy_one(ale: Any) -> None:
    # Every episode is one frame-skip long: with automatic resets every other step would be a dummy.
    manager = ale(cfg=dict(max_episode_steps=40), noop_max=0)
    manager.launch()

    ends = [batch[4] for batch in play(manager, 60, num_actions=4)]

    assert manager.ready.all()
    assert np.sum(ends, axis=0).tolist() == [6, 6]


@needs_ale
def test_the_last_observation_is_of_the_ended_episode(ale: Any) -> None:
    manager = ale(cfg=dict(max_episode_steps=40), noop_max=0, fire_reset=True)
    manager.launch()
    first = manager.obs.copy()

    for _ in range(10):
        batch = manager.step(np.arange(2), np.array([2, 3]))

    assert batch.truncated.all() and not batch.terminated.any()
    assert not np.array_equal(batch.next_obs, manager.obs)
    assert np.array_equal(manager.obs[:, -1], first[:, -1])


@needs_ale
def test_a_restored_run_goes_on_as_the_original_does(ale: Any) -> None:
    original, other = (
        ale(fire_reset=True, terminal_on_life_loss=True),
        ale(fire_reset=True, terminal_on_life_loss=True),
    )
    original.seed(3)
    original.launch()
    before = play(original, 120, num_actions=4)
    assert any(any(batch[3]) for batch in before)

    other.load_state_dict(original.state_dict())

    assert other.lane_seeds and other.lanes_lost == []
    assert play(other, 60, seed=1, num_actions=4) == play(original, 60, seed=1, num_actions=4)


@needs_ale
def test_a_lane_can_be_reset_alone_with_a_seed(ale: Any) -> None:
    manager = ale()
    manager.launch()
    play(manager, 10, num_actions=4)
    kept = manager.obs[0].copy()

    manager.reset(np.array([1]), seeds=[40])
    again = manager.obs[1].copy()
    play(manager, 5, num_actions=4)
    manager.reset(np.array([1]), seeds=[40])

    assert np.array_equal(manager.obs[1], again)
    assert not np.array_equal(kept, again)


@pytest.mark.slow
@needs_ale
def test_clipped_rewards_leave_the_games_own_return_in_info(ale: Any) -> None:
    # A row of bricks farther up is worth 4 or 7 points.
    manager = ale("ALE/SpaceInvaders-v5", num=1, cfg=dict(kwargs=dict(frameskip=1)))
    manager.launch()

    total, infos = 0.0, {}
    for _ in range(2000):
        batch = manager.step(np.arange(1), np.array([1]))
        assert batch.reward[0] in (0.0, 1.0)
        total += float(batch.reward[0])
        if batch.terminated[0]:
            infos = dict(batch.info)
            break

    assert total > 0 and infos[0]["eval_episode_return"] >= 5 * total


@needs_ale
def test_what_ale_would_not_do_is_a_config_error(ale: Any) -> None:
    for env_id, cfg, message in [
        ("CartPole-v1", {}, "plays Atari games such as"),
        ("ALE/Pong-v5", {}, r"skips frames itself \(4\).*frameskip=1"),
        ("PongNoFrameskip-v4", dict(wrappers=[]), r"env.wrappers=\[dict\(type='atari'\)\].*Got \[\]"),
        ("PongNoFrameskip-v4", dict(kwargs=dict(mode=1)), "knows nothing of mode"),
        ("PongNoFrameskip-v4", dict(render_mode="rgb_array"), "cannot render"),
    ]:
        with pytest.raises(ConfigError, match=message):
            ale(env_id, cfg=cfg)


def test_envs_of_another_kind_are_a_config_error() -> None:
    with pytest.raises(ConfigError, match="takes envs of type 'gymnasium', with one config for all of them"):
        AleVectorEnvManager([object])


@pytest.mark.parametrize(
    ("name", "extra", "cls"), [("envpool", "envpool", EnvPoolManager), ("ale_py", "atari", AleVectorEnvManager)]
)
def test_a_missing_package_is_one_clear_error(
    name: str, extra: str, cls: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("envpool", "ale_py.vector_env"):
        monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(EnvError, match=rf'needs the package {name} .*pip install "ding-like\[{extra}\]"'):
        cls([EnvFactory(dict(type="gymnasium", env_id="CartPole-v1"))])
