"""What the manager of ALE's vector env promises; skipped where ale-py is not installed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from ding_like.envs import EnvFactory
from ding_like.envs.manager.gym_vector import AleVectorEnvManager
from ding_like.errors import ConfigError, EnvError

Make = Callable[..., AleVectorEnvManager]

IS_HERE = importlib.util.find_spec("ale_py") is not None
needs_ale = pytest.mark.skipif(not IS_HERE, reason="needs ale-py")


@pytest.fixture
def make() -> Iterator[Make]:
    """Return a function that makes a manager of small frames; all are closed at the end."""
    made: list[AleVectorEnvManager] = []

    def make_manager(env_id: str = "BreakoutNoFrameskip-v4", *, num: int = 2, cfg: Any = None, **atari: Any) -> Any:
        env = dict(type="gymnasium", env_id=env_id, wrappers=[dict(type="atari", screen_size=20, **atari)])
        env.update(cfg or {})
        made.append(AleVectorEnvManager([EnvFactory(env) for _ in range(num)], dict(num_threads=1)))
        return made[-1]

    yield make_manager
    for manager in made:
        manager.close()


def play(manager: Any, steps: int, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(steps):
        batch = manager.step(np.arange(manager.num_lanes), rng.integers(4, size=manager.num_lanes))
        found.append([np.array(batch[i]).tolist() for i in range(5)] + [manager.obs.tolist(), dict(batch.info)])
    return found


@needs_ale
def test_frames_are_stacked_as_the_wrapper_says(make: Make) -> None:
    manager = make(stack_size=3)

    manager.launch()

    assert manager.observation_space.shape == (3, 20, 20)
    assert manager.obs.shape == (2, 3, 20, 20) and manager.obs.dtype == np.uint8


@needs_ale
def test_equal_seeds_give_equal_runs_and_lane_i_has_seed_plus_i(make: Make) -> None:
    runs = []
    for seed in (7, 7, 8):
        manager = make(fire_reset=True)
        manager.seed(seed)
        manager.launch()
        first = manager.obs.tolist()
        runs.append((first, play(manager, 10)))

    assert runs[0] == runs[1]
    assert runs[0][0][1] == runs[2][0][0]


@needs_ale
def test_no_step_is_a_dummy_one(make: Make) -> None:
    # Every episode is one frame-skip long: with automatic resets every other step would be a dummy.
    manager = make(cfg=dict(max_episode_steps=40), noop_max=0)
    manager.launch()

    ends = [batch[4] for batch in play(manager, 60)]

    assert manager.ready.all()
    assert np.sum(ends, axis=0).tolist() == [6, 6]


@needs_ale
def test_the_last_observation_is_of_the_ended_episode(make: Make) -> None:
    manager = make(cfg=dict(max_episode_steps=40), noop_max=0, fire_reset=True)
    manager.launch()
    first = manager.obs.copy()

    for _ in range(10):
        batch = manager.step(np.arange(2), np.array([2, 3]))

    assert batch.truncated.all() and not batch.terminated.any()
    assert not np.array_equal(batch.next_obs, manager.obs)
    assert np.array_equal(manager.obs[:, -1], first[:, -1])


@needs_ale
def test_a_restored_run_goes_on_as_the_original_does(make: Make) -> None:
    original, other = (
        make(fire_reset=True, terminal_on_life_loss=True),
        make(fire_reset=True, terminal_on_life_loss=True),
    )
    original.seed(3)
    original.launch()
    before = play(original, 120)
    assert any(any(batch[3]) for batch in before)

    other.load_state_dict(original.state_dict())

    assert other.lane_seeds and other.lanes_lost == []
    assert play(other, 60, seed=1) == play(original, 60, seed=1)


@needs_ale
def test_a_lane_can_be_reset_alone_with_a_seed(make: Make) -> None:
    manager = make()
    manager.launch()
    play(manager, 10)
    kept = manager.obs[0].copy()

    manager.reset(np.array([1]), seeds=[40])
    again = manager.obs[1].copy()
    play(manager, 5)
    manager.reset(np.array([1]), seeds=[40])

    assert np.array_equal(manager.obs[1], again)
    assert not np.array_equal(kept, again)


@pytest.mark.slow
@needs_ale
def test_clipped_rewards_leave_the_games_own_return_in_info(make: Make) -> None:
    # A row of bricks farther up is worth 4 or 7 points.
    manager = make("ALE/SpaceInvaders-v5", num=1, cfg=dict(kwargs=dict(frameskip=1)))
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
def test_what_it_would_not_do_is_a_config_error(make: Make) -> None:
    for env_id, cfg, message in [
        ("CartPole-v1", {}, "plays Atari games such as"),
        ("ALE/Pong-v5", {}, r"skips frames itself \(4\).*frameskip=1"),
        ("PongNoFrameskip-v4", dict(wrappers=[]), r"env.wrappers=\[dict\(type='atari'\)\].*Got \[\]"),
        ("PongNoFrameskip-v4", dict(kwargs=dict(mode=1)), "knows nothing of mode"),
        ("PongNoFrameskip-v4", dict(render_mode="rgb_array"), "cannot render"),
    ]:
        with pytest.raises(ConfigError, match=message):
            make(env_id, cfg=cfg)


def test_envs_of_another_kind_are_a_config_error() -> None:
    with pytest.raises(ConfigError, match="takes envs of type 'gymnasium', with one config for all of them"):
        AleVectorEnvManager([object])


def test_a_missing_package_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, make: Make) -> None:
    monkeypatch.setitem(sys.modules, "ale_py.vector_env", None)

    with pytest.raises(EnvError, match=r'needs the package ale_py .*pip install "ding-like\[atari\]"'):
        make()
