"""What the manager of envpool's envs promises, with a stand-in where envpool itself is not installed."""

from __future__ import annotations

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
from ding_like.envs.manager.gym_vector import EnvPoolManager
from ding_like.errors import ConfigError, EnvError

Make = Callable[..., EnvPoolManager]

IS_HERE = importlib.util.find_spec("envpool") is not None
needs_envpool = pytest.mark.skipif(not IS_HERE, reason="needs envpool")


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
def make(library: str) -> Iterator[Make]:
    """Return a function that makes a manager; all are closed at the end."""
    made: list[EnvPoolManager] = []

    def make_manager(env_id: str = "CartPole-v1", *, num: int = 4, **cfg: Any) -> EnvPoolManager:
        env = dict(type="gymnasium", env_id=env_id, **cfg)
        made.append(EnvPoolManager([EnvFactory(env) for _ in range(num)], dict(num_threads=1)))
        return made[-1]

    yield make_manager
    for manager in made:
        manager.close()


def play(manager: EnvPoolManager, steps: int) -> list[Any]:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(steps):
        lanes = np.flatnonzero(manager.ready)
        batch = manager.step(lanes, rng.integers(2, size=len(lanes)))
        found.append([np.array(batch[i]).tolist() for i in range(5)])
    return found


def test_dummy_steps_never_appear(make: Make) -> None:
    manager = make()
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


def test_a_time_limit_truncates_with_the_true_last_observation(make: Make) -> None:
    manager = make(max_episode_steps=5)
    manager.launch()

    ends = [
        row for batch in play(manager, 60) for row in zip(batch[1], batch[3], batch[4], strict=True) if any(row[1:])
    ]

    assert len(ends) == 40
    assert all(truncated and not terminated for _, terminated, truncated in ends)
    assert min(max(map(abs, next_obs)) for next_obs, _, _ in ends) > 0.06


def test_equal_seeds_give_equal_runs(make: Make) -> None:
    runs = []
    for seed in (7, 7, 8):
        manager = make()
        manager.seed(seed)
        manager.launch()
        runs.append(play(manager, 60))

    assert runs[0] == runs[1] != runs[2]


def test_a_reset_with_seeds_begins_the_same_run_again(make: Make) -> None:
    manager = make()
    manager.launch()
    runs = []

    for _ in range(2):
        manager.reset(seeds=[5, 6, 7, 8])
        runs.append(play(manager, 60))

    assert runs[0] == runs[1]


def test_resume_begins_new_episodes(make: Make) -> None:
    manager, other = make(), make()
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
def test_what_it_would_not_do_is_a_config_error(make: Make, env_id: str, cfg: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(env_id, **cfg)


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


def test_a_missing_package_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)

    with pytest.raises(EnvError, match=r'needs the package envpool .*pip install "ding-like\[envpool\]"'):
        EnvPoolManager([EnvFactory(dict(type="gymnasium", env_id="CartPole-v1"))])
