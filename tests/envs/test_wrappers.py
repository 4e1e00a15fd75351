"""Wrappers by short name: what they do, what they remember, also over crashes and a resume, and how they say no."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ding_like.envs import EnvFactory, create_env_manager
from ding_like.envs.factory import make_env
from ding_like.envs.wrappers import adopt_wrapper_states, load_wrapper_states, wrap, wrapper_states
from ding_like.errors import CheckpointError, ConfigError, EnvError
from ding_like.utils.checkpoint import load_state, save_state
from tests.envs.bad_envs import GoodEnv, NanObs, NanReward
from tests.envs.faulty_env import DeadlyToAskEnv, NormalisedEnv, SetStateEnv
from tests.envs.scripted_env import Told

needs_pillow = pytest.mark.skipif(importlib.util.find_spec("PIL") is None, reason="needs pillow (extra viz)")


class Film:
    """Size and frames of a GIF."""

    def __init__(self, path: Any) -> None:
        from PIL import Image, ImageSequence

        with Image.open(path) as image:
            self.size = image.size
            # Frames that are equal are one that stays longer.
            self.frames_ms = [frame.info["duration"] for frame in ImageSequence.Iterator(image)]


PENDULUM = dict(type="gymnasium", env_id="Pendulum-v1")


def play(env: Any, num: int, *, seed: int | None = 0) -> tuple[list[Any], list[float], list[dict[str, Any]]]:
    """Return observations, rewards and infos of `num` steps with equal actions."""
    obs, rewards, infos = [env.reset(seed=seed)[0]], [], []
    rng = np.random.default_rng(0)
    for _ in range(num):
        action = rng.uniform(-1, 1, 1).astype(np.float32) if isinstance(env.action_space, spaces.Box) else 1
        step = env.step(action)
        obs.append(step[0])
        rewards.append(step[1])
        infos.append(step[4])
        if step[2] or step[3]:
            obs.append(env.reset()[0])
    return obs, rewards, infos


def numbers(env: Any, num: int, *, seed: int | None = 0) -> Any:
    obs, rewards, _ = play(env, num, seed=seed)
    return np.concatenate([*(np.ravel(each) for each in obs), rewards])


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (dict(type="frame_stack", stack_size=3), "FrameStackObservation"),
        (dict(type="time_limit", max_episode_steps=9), "TimeLimit"),
        (dict(type="clip_reward"), "ClipReward"),
        (dict(type="rescale_action"), "RescaleAction"),
        (dict(type="obs_norm"), "ObsNorm"),
        (dict(type="reward_norm"), "RewardNorm"),
        (dict(type="eval_episode_return"), "EpisodeReturn"),
        # Gymnasium's own names, where ours save or report more.
        (dict(type="NormalizeObservation"), "ObsNorm"),
        (dict(type="NormalizeReward", gamma=0.9), "RewardNorm"),
    ],
)
def test_a_short_name_in_the_config_makes_the_wrapper(spec: dict[str, Any], kind: str) -> None:
    env: Any = make_env(dict(PENDULUM, wrappers=[spec]))

    assert type(env).__name__ == kind
    env.close()


def test_what_cannot_be_wrapped_is_a_config_error() -> None:
    for spec, words in [
        (dict(type="frame_stak"), "did you mean 'frame_stack'"),
        (dict(type="frame_stack", size=3), "It takes .*stack_size"),
        (dict(type="frame_stack", stack_size=0), "stack_size needs to be greater than zero"),
        (dict(type="time_limit", max_episode_steps=0), "max_episode_steps is 0"),
        (dict(type="clip_reward", min_reward=2, max_reward=1), "min_reward 2 is above max_reward 1"),
        (dict(type="rescale_action", min_action=1, max_action=1), "min_action 1 is not below"),
        (dict(type="obs_transpose"), r"takes images \[H, W, C\]"),
        (dict(type="obs_select", indices=[0, 3]), r"indices are \[0, 3\], expected some of 0 to 2"),
        (dict(type="obs_select", indices=[]), r"indices are \[\], expected some of 0 to 2"),
        (dict(type="obs_select", indices=["theta"]), r"expected some of 0 to 2"),
    ]:
        with pytest.raises(ConfigError, match=words):
            make_env(dict(PENDULUM, wrappers=[spec]))
    for name, observation_space, words in [
        ("rescale_action", GoodEnv.observation_space, "finite bounds"),
        ("atari", GoodEnv.observation_space, "for Atari games"),
        ("obs_norm", spaces.Dict({"arm": GoodEnv.observation_space}), "FlattenObservation"),
        ("obs_select", spaces.Box(0, 255, (4, 5, 3), np.float32), "takes vectors.*FlattenObservation"),
    ]:
        env = GoodEnv()
        env.observation_space = observation_space
        with pytest.raises(ConfigError, match=words):
            wrap(env, [dict(type=name, **(dict(indices=[0]) if name == "obs_select" else {}))])


def test_a_wrapper_twice_in_a_row_is_refused_and_elsewhere_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigError, match="'clip_reward'} twice in a row: leave one out"):
        wrap(GoodEnv(), ["clip_reward", dict(type="clip_reward")])
    limits = [dict(type="time_limit", max_episode_steps=n) for n in (20, 30)]
    for _ in range(2):
        wrap(GoodEnv(), limits)
    assert caplog.text.count("env.wrappers has 'time_limit' 2 times") == 1


def test_rescale_action_stretches_to_the_envs_range() -> None:
    class Taking(Told):
        def step(self, action: Any) -> Any:
            self.taken = action
            return super().step(action)

    inner = Taking([0.0])
    inner.action_space = spaces.Box(np.float32([0, -4]), np.float32([10, 4]), dtype=np.float32)  # type: ignore[assignment]
    env = wrap(inner, [dict(type="rescale_action")])
    env.reset()

    env.step(np.array([-1, 0.5], np.float32))

    assert inner.taken == pytest.approx([0, 2])
    assert env.action_space == spaces.Box(-1, 1, (2,), np.float32)


def test_obs_transpose_puts_channels_first() -> None:
    inner = Told([0.0])
    inner.observation_space = spaces.Box(0, 255, (4, 5, 3), np.float32)
    env = wrap(inner, [dict(type="obs_transpose")])

    obs, _ = env.reset()

    assert obs.shape == env.observation_space.shape == (3, 4, 5)


def test_obs_select_shows_only_the_chosen_entries() -> None:
    whole, part = make_env(PENDULUM), make_env(dict(PENDULUM, wrappers=[dict(type="obs_select", indices=[2, 0])]))

    seen, chosen = whole.reset(seed=3)[0], part.reset(seed=3)[0]

    assert chosen.tolist() == seen[[2, 0]].tolist()
    assert part.observation_space == spaces.Box(
        whole.observation_space.low[[2, 0]], whole.observation_space.high[[2, 0]], dtype=np.float32
    )


def test_clipped_rewards_leave_the_reported_return_alone() -> None:
    for name in ["clip_reward", "ClipReward"]:
        _, rewards, infos = play(wrap(Told([5.0, -7.0, 0.5]), [dict(type=name, min_reward=-1, max_reward=1)]), 3)

        assert rewards == [1.0, -1.0, 0.5]
        assert [info.get("eval_episode_return") for info in infos] == [None, None, -1.5]

    assert play(wrap(Told([5.0, -7.0]), [dict(type="clip_reward", max_reward=2)]), 2)[1] == [2.0, -7.0]


def test_the_innermost_report_of_a_return_wins() -> None:
    env = wrap(Told([5.0]), [dict(type="clip_reward"), dict(type="reward_norm")])

    _, _, infos = play(env, 3)

    assert infos[2]["eval_episode_return"] == 15.0


def test_obs_norm_uses_the_mean_and_variance_of_all_it_has_seen() -> None:
    env = wrap(Told([0.0], length=99), [dict(type="obs_norm")])

    obs, _, _ = play(env, 9)

    seen = np.arange(10.0)
    # Gymnasium counts one ten-thousandth of an observation of 0 beforehand.
    assert obs[-1][0] == pytest.approx((9 - seen.mean()) / seen.std(), rel=1e-3)


def test_reward_norm_divides_by_the_deviation_of_the_discounted_return() -> None:
    given = [1.0, 3.0, -2.0, 4.0, 0.0, 2.0]
    returns, running = [], 0.0
    for index, reward in enumerate(given):
        # Worked by hand: an episode has 3 steps, each begins from 0.
        running = reward + (0.5 * running if index % 3 else 0.0)
        returns.append(running)

    _, rewards, _ = play(wrap(Told(given), [dict(type="reward_norm", gamma=0.5)]), 6)

    assert rewards[-1] == pytest.approx(2.0 / np.std(returns), rel=1e-3)
    assert type(rewards[-1]) is float


def test_what_is_far_out_is_clipped() -> None:
    _, rewards, _ = play(wrap(Told([1.0, -1.0]), [dict(type="reward_norm", clip=3.0)]), 2)
    obs, _, _ = play(wrap(Told([0.0], length=99), [dict(type="obs_norm", clip=0.5)]), 9)

    assert rewards[0] == 3.0
    assert np.max(obs) == 0.5


def test_a_nan_passes_and_spoils_nothing() -> None:
    obs, _, _ = play(wrap(NanObs(), ["obs_norm"]), 20)
    _, rewards, _ = play(wrap(NanReward(), ["reward_norm"]), 20)

    assert np.isnan(obs[4]).any() and np.isnan(rewards[2]), "the manager must see it"
    assert np.isfinite(obs[-1]).all() and np.isfinite(rewards[-1])


BOTH = [dict(type="obs_norm"), dict(type="frame_stack", stack_size=2), dict(type="reward_norm")]


def pendulum(wrappers: Any = BOTH) -> Any:
    return make_env(dict(PENDULUM, wrappers=wrappers))


def test_an_env_with_loaded_states_goes_on_like_the_one_that_saved_them(tmp_path: Any) -> None:
    first, second = pendulum(), pendulum()
    play(first, 250)

    save_state(tmp_path / "state.pt", {"wrappers": wrapper_states(first)})
    load_wrapper_states(second, load_state(tmp_path / "state.pt")["wrappers"])

    assert np.array_equal(numbers(first, 250, seed=7), numbers(second, 250, seed=7))


def test_saved_states_do_not_change_afterwards() -> None:
    env = pendulum()
    play(env, 10)
    saved = wrapper_states(env)
    count = saved[0]["state"]["count"]

    play(env, 10)

    assert saved[0]["state"]["count"] == count
    assert wrapper_states(env)[0]["state"]["count"] > count


def test_an_env_of_its_own_with_a_state_is_saved_too() -> None:
    class Curriculum(GoodEnv):
        level = 0

        def state_dict(self) -> dict[str, Any]:
            return {"level": self.level}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.level = state["level"]

    first, second = Curriculum(), Curriculum()
    first.level = 4

    load_wrapper_states(gymnasium.wrappers.TimeLimit(second, 9), wrapper_states(first))

    assert second.level == 4


def test_states_of_other_wrappers_are_refused() -> None:
    with pytest.raises(CheckpointError, match="env.wrappers"):
        adopt_wrapper_states(pendulum(), [wrapper_states(pendulum([]))])
    with pytest.raises(CheckpointError, match=r"\['RewardNorm', 'ObsNorm'\], this env has \['ObsNorm'\]"):
        load_wrapper_states(pendulum([dict(type="obs_norm")]), wrapper_states(pendulum()))


def test_states_of_another_shape_are_refused() -> None:
    norm = [dict(type="obs_norm")]

    with pytest.raises(CheckpointError, match=r"shape \(3,\), this env needs \(2,\)"):
        load_wrapper_states(wrap(Told([0.0]), norm), wrapper_states(pendulum(norm)))


def test_adopted_statistics_are_those_of_one_that_saw_everything() -> None:
    parts = [pendulum([dict(type="obs_norm")]) for _ in range(3)]
    seen = np.concatenate([play(make_env(PENDULUM), num, seed=num)[0] for num in (20, 50, 110)])
    for part, num in zip(parts, (20, 50, 110), strict=True):
        play(part, num, seed=num)
    judge = pendulum([dict(type="obs_norm")])

    adopt_wrapper_states(judge, [wrapper_states(part) for part in parts])

    (held,) = wrapper_states(judge)
    assert held["state"]["mean"] == pytest.approx(seen.mean(axis=0), abs=1e-4)
    assert held["state"]["var"] == pytest.approx(seen.var(axis=0), abs=1e-3)


def test_an_env_that_adopted_learns_no_more() -> None:
    judge = pendulum()
    source = pendulum()
    play(source, 100)
    adopt_wrapper_states(judge, [wrapper_states(source)])
    before = wrapper_states(judge)

    play(judge, 100)

    assert [each["state"]["count"] for each in wrapper_states(judge)] == [each["state"]["count"] for each in before]


def test_an_env_made_anew_from_one_that_adopted_learns_no_more_either() -> None:
    judge, successor = pendulum(), pendulum()
    adopt_wrapper_states(judge, [wrapper_states(pendulum())])

    load_wrapper_states(successor, wrapper_states(judge))
    play(successor, 10)

    assert [each["state"]["count"] for each in wrapper_states(successor)] == pytest.approx([1e-4, 1e-4])


class Game(GoodEnv):
    """Look like an Atari game to what asks."""

    ale = None
    _frameskip = 1


def test_atari_without_opencv_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)

    with pytest.raises(EnvError, match=r'needs opencv; install it with: pip install "ding-like\[atari\]"'):
        wrap(Game(), [dict(type="atari")])


def test_atari_refuses_frames_that_are_skipped_already() -> None:
    game = Game()
    game._frameskip = 4

    with pytest.raises(ConfigError, match="frameskip=1"):
        wrap(game, [dict(type="atari")])


def breakout(**kwargs: Any) -> Any:
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    own = dict(frameskip=1, repeat_action_probability=0.0)
    wrappers = [dict(type="atari", **kwargs)]
    return make_env(dict(type="gymnasium", env_id="ALE/Breakout-v5", kwargs=own, wrappers=wrappers))


def test_atari_prepares_a_real_game() -> None:
    env = breakout()
    obs, _ = env.reset(seed=0)
    env.action_space.seed(0)
    rewards, infos = [], []
    while not infos:
        _, reward, terminated, _, info = env.step(env.action_space.sample())
        rewards.append(float(reward))
        infos += [info] if terminated else []

    assert env.observation_space == spaces.Box(0, 255, (4, 84, 84), np.uint8)
    assert obs.shape == (4, 84, 84) and obs.dtype == np.uint8
    assert set(rewards) <= {0.0, 1.0}
    assert infos[0]["eval_episode_return"] >= sum(rewards)
    env.close()


@pytest.mark.parametrize("fire_reset", [True, False])
def test_fire_reset_brings_the_ball_into_play(fire_reset: bool) -> None:
    env = breakout(fire_reset=fire_reset, stack_size=1)
    env.reset(seed=0)

    frames = [env.step(0)[0] for _ in range(10)]

    assert np.array_equal(frames[0], frames[9]) is not fire_reset
    env.close()


def recording(folder: Any, **kwargs: Any) -> Any:
    return wrap(GoodEnv(render_mode="rgb_array", **kwargs), [dict(type="record_gif", folder=str(folder))])


@needs_pillow
def test_record_gif_writes_a_film_for_every_episode(tmp_path: Any) -> None:
    env = recording(tmp_path, limit=4)

    play(env, 8)

    film = Film(tmp_path / "episode_0.gif")
    assert film.frames_ms == [100] * 5  # 10 frames a second
    assert film.size == (30, 20)
    assert (tmp_path / "episode_1.gif").is_file()
    env.close()
    assert not (tmp_path / "episode_2.gif").exists(), "nothing happened after the last reset"


@needs_pillow
def test_record_gif_writes_what_was_broken_off(tmp_path: Any) -> None:
    env = recording(tmp_path)
    env.reset()
    env.step(1)

    env.close()

    assert (tmp_path / "episode_0.gif").is_file()


@needs_pillow
def test_record_gif_thins_out_long_episodes(tmp_path: Any) -> None:
    env = wrap(Filmed([0.0], length=1000), [dict(type="record_gif", folder=str(tmp_path))])

    play(env, 1000)

    frames_ms = Film(tmp_path / "episode_0.gif").frames_ms
    assert 150 <= len(frames_ms) <= 301
    assert sum(frames_ms) == pytest.approx(1000 * 1001 / 30, rel=0.05)


class Filmed(Told):
    """Draw a number of dots that tells the time."""

    render_mode = "rgb_array"

    def render(self) -> Any:
        picture = np.zeros((8, 128, 3), np.uint8)
        picture[:, : self._t % 128] = 255
        return picture


@needs_pillow
def test_record_gif_overwrites_no_earlier_film(tmp_path: Any) -> None:
    (tmp_path / "episode_0.gif").write_text("earlier")

    play(recording(tmp_path, limit=3), 3)

    assert (tmp_path / "episode_0.gif").read_text() == "earlier"
    assert (tmp_path / "episode_1.gif").is_file()


@needs_pillow
def test_record_gif_needs_an_env_that_draws(tmp_path: Any) -> None:
    with pytest.raises(EnvError, match="needs render_mode='rgb_array'"):
        wrap(GoodEnv(), [dict(type="record_gif", folder=str(tmp_path))])


def test_record_gif_without_pillow_names_the_extra(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)

    with pytest.raises(EnvError, match=r'needs pillow; install it with: pip install "ding-like\[viz\]"'):
        recording(tmp_path)


def test_an_entry_that_is_neither_name_nor_dict_is_a_config_error() -> None:
    for entry in [3, None, ["obs_norm"]]:
        with pytest.raises(ConfigError, match=r"env\.wrappers: each entry is a wrapper's name or a dict"):
            wrap(gymnasium.make("CartPole-v1"), [entry])


WRAPPERS = [dict(type="obs_norm"), dict(type="frame_stack", stack_size=3), dict(type="reward_norm")]
KINDS = [
    dict(type="base"),
    dict(type="gym_vector", autoreset_mode="Disabled"),
    dict(type="subprocess", envs_per_process=2),
]


@pytest.fixture
def managed() -> Iterator[Callable[..., Any]]:
    """Return a function that makes a manager of `env_fn`, or of Pendulum in wrappers; all are closed at the end."""
    made: list[Any] = []

    def make_manager(kind: dict[str, Any], env_fn: Sequence[Any] = (), **cfg: Any) -> Any:
        # A short time limit: episodes end, and some of them inside a stretch that is played again.
        env = dict(type="gymnasium", env_id="Pendulum-v1", max_episode_steps=17, wrappers=WRAPPERS)
        own = cfg if env_fn else {"reseed_after": 40, **cfg}
        made.append(create_env_manager({**kind, **own}, env_fn or [EnvFactory(env) for _ in range(3)]))
        return made[-1]

    yield make_manager
    for manager in made:
        manager.close()


def drive(manager: Any, num: int, rng: np.random.Generator) -> list[Any]:
    found = []
    for _ in range(num):
        batch = manager.step(np.arange(3), rng.uniform(-2, 2, (3, 1)).astype(np.float32))
        found.append(np.concatenate([batch.next_obs.reshape(3, -1), batch.reward[:, None]], axis=1))
    return found


@pytest.mark.parametrize(
    ("kind", "played"), [(KINDS[0], 3), (KINDS[0], 25), (KINDS[0], 131), (KINDS[1], 131), (KINDS[2], 131)]
)
def test_a_manager_with_normalising_wrappers_resumes_exactly(
    managed: Any, kind: dict[str, Any], played: int, tmp_path: Any
) -> None:
    rng = np.random.default_rng(0)
    original, other = managed(kind), managed(kind)
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


@pytest.mark.parametrize(
    "kind", [pytest.param(KINDS[0], id="base"), pytest.param(KINDS[2], id="subprocess", marks=pytest.mark.slow)]
)
def test_a_lane_that_is_not_played_again_keeps_what_its_wrappers_know(managed: Any, kind: dict[str, Any]) -> None:
    original, other = (managed(kind, resume_replay_steps=5) for _ in range(2))
    original.launch()
    drive(original, 30, np.random.default_rng(0))

    other.load_state_dict(original.state_dict())

    assert other.lanes_lost == [0, 1, 2]
    assert other.wrapper_states()[0][1]["state"]["count"] > 30


@pytest.mark.parametrize(
    ("kind", "fault"), [*((kind, "raise") for kind in KINDS), (dict(type="subprocess", reseed_after=0), "segfault")]
)
def test_statistics_survive_a_crash_and_the_end_of_a_process_those_at_the_last_seeded_reset(
    managed: Any, kind: dict[str, Any], fault: str, tmp_path: Any
) -> None:
    env_fn = functools.partial(NormalisedEnv, faults={(5, 1): fault}, fault_dir=str(tmp_path))
    manager = managed(kind, [env_fn])
    manager.launch()
    steps = 0
    while not list(tmp_path.iterdir()):
        manager.step(np.arange(1), np.zeros(1, np.int64))
        steps += 1

    # The last seeded reset began the episode whose first step broke.
    assert manager.wrapper_states()[0][0]["state"]["count"] > steps - (fault == "segfault")


def test_the_other_lanes_of_a_process_that_ends_come_back_with_their_statistics(managed: Any, tmp_path: Any) -> None:
    faults = [{(2, 2): "segfault"}, {}]
    env_fn = [functools.partial(NormalisedEnv, env_id=i, faults=faults[i], fault_dir=str(tmp_path)) for i in range(2)]
    struck = managed(dict(type="subprocess", envs_per_process=2), env_fn)
    spared = managed(dict(type="base"), env_fn[1:])
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


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[2]], ids=["base", "subprocess"])
def test_a_manager_goes_on_from_the_statistics_of_fewer_lanes_and_adopts_all_of_them(
    managed: Any, kind: dict[str, Any]
) -> None:
    def counts(manager: Any) -> list[float]:
        return [each[1]["state"]["count"] for each in manager.wrapper_states()]

    collector, other = managed(kind), managed(kind)
    with pytest.raises(CheckpointError, match=r"of the wrappers \['Other'\]"):
        other.load_wrapper_states([[dict(type="Other", state={})]])
    collector.launch()
    drive(collector, 50, np.random.default_rng(0))
    states = collector.wrapper_states()

    other.load_wrapper_states(states[:2])
    few = counts(other)
    other.launch()
    other.adopt_wrapper_states(states)
    drive(other, 20, np.random.default_rng(1))

    known = counts(collector)
    assert few == [known[0], known[1], known[0]]
    assert counts(other) == pytest.approx([sum(known)] * 3)


def test_asking_a_process_that_dies_is_answered_by_the_next(managed: Any, tmp_path: Any) -> None:
    env_fn = functools.partial(DeadlyToAskEnv, str(tmp_path / "died"))
    manager = managed(dict(type="subprocess"), [env_fn])
    manager.launch()
    manager.step(np.arange(1), np.zeros(1, np.int64))

    states = manager.wrapper_states()

    assert (tmp_path / "died").exists()
    # Asked before its first reset, and now.
    assert states == [[{"type": "DeadlyToAskEnv", "state": {"calls": 2}}]]
    assert manager.obs[0, 2] == 0
    assert manager.step(np.arange(1), np.zeros(1, np.int64)).dropped.tolist() == [0]


def test_a_state_that_cannot_leave_its_process_is_an_env_error(managed: Any) -> None:
    with pytest.raises(EnvError, match=r"state_dict of a wrapper.* hold \{3\}, a set.*manager type 'base'"):
        managed(dict(type="subprocess"), [SetStateEnv])
