import importlib.util
import logging
import os

import numpy as np
import pytest
from easydict import EasyDict
from PIL import Image

from ding_like.agent.checkpoints import find_checkpoint
from ding_like.agent.video import filmable, make_video, weights_of, write_pictures
from ding_like.envs import make_env
from ding_like.errors import CheckpointError, ConfigError, EnvError
from ding_like.utils.checkpoint import save_state
from tests.agent.films import BrokenLamp, ConstantActor, Lamp, NoisyLamp, Weights, eval_mode
from tests.report.run_folder import training_and_evaluation, write_run

MODE = eval_mode(ConstantActor())


def read_gif(path) -> list[tuple[np.ndarray, int]]:
    """Return (pixels, milliseconds) of every frame."""
    frames = []
    with Image.open(path) as image:
        for index in range(image.n_frames):
            image.seek(index)
            frames.append((np.asarray(image.convert("RGB")), image.info["duration"]))
    return frames


def film(path, *, length=5, num_episodes=1, env=Lamp) -> list[tuple[np.ndarray, int]]:
    make_video(MODE, lambda: env("rgb_array", length), path, num_episodes=num_episodes)
    return read_gif(path)


def test_film_shows_every_step_under_a_caption_and_returns_the_return(tmp_path):
    returns = make_video(MODE, lambda: Lamp("rgb_array"), tmp_path / "new" / "agent.gif").returns

    frames = read_gif(tmp_path / "new" / "agent.gif")
    assert returns == [5.0]
    assert len(frames) == 6
    assert [int(pixels[-1, 0, 0]) for pixels, _ in frames] == pytest.approx([20, 60, 100, 140, 180, 220], abs=2)
    height, width, _ = frames[0][0].shape
    assert width == 80 and height > 40, "the caption is above the picture, not on it"
    assert frames[0][0][: height - 40].max() > 200, "it is written in white"


def test_film_plays_at_the_envs_rate_and_rests_at_the_end_of_an_episode(tmp_path):
    frames = film(tmp_path / "agent.gif", num_episodes=2)

    durations = [duration for _, duration in frames]
    assert durations == [50] * 5 + [1000] + [50] * 5 + [1000]


def test_film_of_a_long_episode_is_thinned_evenly_and_keeps_its_end(tmp_path):
    frames = film(tmp_path / "agent.gif", length=400)

    # 401 frames: every fourth, and the last.
    shown = [int(pixels[-1, 0, 0]) for pixels, _ in frames]
    assert 75 <= len(frames) <= 150
    assert shown[-1] == pytest.approx(220, abs=3)
    assert max(np.diff(shown)) <= 20, "no stretch is left out"
    assert sum(duration for _, duration in frames) < 14_000


def test_of_an_episode_without_end_its_beginning_and_its_end_are_filmed(tmp_path):
    returns = make_video(MODE, lambda: Lamp("rgb_array", 4000), tmp_path / "agent.gif", num_episodes=1).returns

    *beginning, end = [int(pixels[-1, 0, 0]) for pixels, _ in read_gif(tmp_path / "agent.gif")]
    assert returns == [4000.0]
    assert max(beginning) == pytest.approx(20 + 200 * 1000 / 4000, abs=10) and end == pytest.approx(220, abs=3)


def test_film_that_gets_too_large_is_made_smaller(tmp_path):
    film(tmp_path / "agent.gif", length=120, env=NoisyLamp)

    # As noise all 121 frames of 120 x 90 take over a megabyte.
    assert (tmp_path / "agent.gif").stat().st_size < 400_000


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Lamp(), "cannot render: render.. gave NoneType, expected RGB"),
        (lambda: Lamp("rgb_array", 5, (4, 4)), r"cannot render: render.. gave an array \(4, 4\)"),
        (lambda: BrokenLamp("rgb_array"), "cannot render: RuntimeError: no OpenGL here"),
    ],
)
def test_env_that_cannot_render_is_one_clear_error_and_closed(tmp_path, make, words):
    env = make()

    with pytest.raises(EnvError, match=words):
        make_video(MODE, lambda: env, tmp_path / "agent.gif")

    assert env.is_closed and not list(tmp_path.iterdir())


def test_missing_pillow_is_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(ConfigError, match=r"needs pillow.*ding-like\[viz\]"):
        make_video(MODE, lambda: Lamp("rgb_array"), tmp_path / "agent.gif")


def test_process_environment_is_as_before(tmp_path):
    before = dict(os.environ)

    film(tmp_path / "agent.gif")

    assert dict(os.environ) == before


@pytest.mark.parametrize(
    "cfg",
    [
        {"type": "gymnasium", "env_id": "CartPole-v1"},
        {"type": "tests.agent.films:Lamp", "kwargs": {"length": 3}},
    ],
)
def test_env_of_a_config_is_made_to_render(cfg):
    env = filmable(cfg, make_env)()
    try:
        env.reset(seed=0)
        assert env.render().ndim == 3
    finally:
        env.close()


def test_class_without_a_render_mode_is_one_clear_error():
    cfg = {"type": "tests.agent.films:DarkLamp", "kwargs": {}}

    with pytest.raises(EnvError, match=r"DarkLamp cannot be made with render_mode='rgb_array': .*\. To be shown"):
        filmable(cfg)()


def test_an_env_function_of_the_user_receives_the_render_mode():
    env = filmable({"steps": 3}, lambda cfg: Lamp(cfg.render_mode, cfg.steps))()

    assert env.render_mode == "rgb_array" and env.length == 3


class Dice(Lamp):
    """Lamp whose episodes have as many steps as their seed."""

    def reset(self, *, seed=None, options=None):
        answer = super().reset(seed=seed)
        self.length = int(self.np_random.integers(2, 60))
        return answer


def test_film_shows_the_episode_with_the_median_return_of_ten(tmp_path):
    filmed = make_video(MODE, lambda: Dice("rgb_array"), tmp_path / "agent.gif", seed=3)

    assert len(filmed.median_of) == 10 and len(set(filmed.median_of)) > 5
    assert filmed.returns == [sorted(filmed.median_of)[4]]
    assert len(read_gif(tmp_path / "agent.gif")) == filmed.returns[0] + 1


def test_equal_seeds_film_the_same_episode(tmp_path):
    films = [make_video(MODE, lambda: Dice("rgb_array"), tmp_path / name, seed=3) for name in ("a.gif", "b.gif")]

    assert films[0] == films[1] and (tmp_path / "a.gif").read_bytes() == (tmp_path / "b.gif").read_bytes()
    assert make_video(MODE, lambda: Dice("rgb_array"), tmp_path / "c.gif", seed=4).median_of != films[0].median_of


def test_of_long_episodes_fewer_are_played(tmp_path, monkeypatch):
    monkeypatch.setattr("ding_like.agent.video._MAX_UNSEEN_STEPS", 35)

    assert make_video(MODE, lambda: Lamp("rgb_array", 10), tmp_path / "agent.gif").median_of == [10.0] * 4


def make_folder(folder):
    write_run(folder, training_and_evaluation())
    save_state(folder / "ckpt" / "ckpt_best.pth.tar", {"action": 1})
    return EasyDict(exp_name=str(folder))


def setting(env, made):
    """Return an `env_setting` whose envs go to the list `made`."""

    def env_fn(cfg):
        made.append(env(cfg.render_mode))
        return made[-1]

    return env_fn, [{}], [{}]


def test_run_gets_a_curve_and_a_film_of_its_best_checkpoint(tmp_path):
    policy, made = Weights(action=0), []

    write_pictures(make_folder(tmp_path), policy, seed=0, env_setting=setting(Lamp, made))

    assert (tmp_path / "curve.png").is_file() and (tmp_path / "agent.gif").is_file()
    assert set(made[-1].actions) == {1}, "the best checkpoint played"
    assert policy.actor.action == 0, "the policy is as it was"


def test_picture_that_cannot_be_made_is_one_line(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    cfg = make_folder(tmp_path)
    (tmp_path / "metrics.jsonl").unlink()

    write_pictures(cfg, Weights(0), seed=0, env_setting=setting(BrokenLamp, []))

    curve, video = caplog.messages
    assert curve.startswith("no curve: ") and "its run has written nothing" in curve
    assert video.startswith("no video: ") and "RuntimeError: no OpenGL here" in video
    assert "\n" not in curve + video


def test_weights_come_back_after_an_error(tmp_path):
    make_folder(tmp_path)
    policy = Weights(action=0)

    with pytest.raises(KeyError), weights_of(policy.eval_mode, tmp_path / "ckpt" / "ckpt_best.pth.tar"):
        assert policy.actor.action == 1
        raise KeyError

    assert policy.actor.action == 0


def test_last_checkpoint_is_the_one_of_the_most_updates(tmp_path):
    make_folder(tmp_path)
    for iteration in (0, 900, 10_000):
        (tmp_path / "ckpt" / f"iteration_{iteration}.pth.tar").touch()

    assert find_checkpoint(tmp_path, "best").name == "ckpt_best.pth.tar"
    assert find_checkpoint(tmp_path, "last").name == "iteration_10000.pth.tar"
    assert find_checkpoint(tmp_path, str(tmp_path / "ckpt/iteration_0.pth.tar")).name == "iteration_0.pth.tar"


def test_missing_checkpoint_is_one_clear_error(tmp_path):
    for which, words in [
        ("best", r"no .*ckpt_best.pth.tar: .*--ckpt last"),
        ("last", "no checkpoint in .*: this run has saved none yet"),
        ("x.pth.tar", "no checkpoint 'x.pth.tar'"),
    ]:
        with pytest.raises(CheckpointError, match=words):
            find_checkpoint(tmp_path, which)
