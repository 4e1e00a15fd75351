import logging

import pytest
from easydict import EasyDict

from ding_like.agent.checkpoints import find_checkpoint
from ding_like.agent.video import weights_of, write_pictures
from ding_like.errors import CheckpointError
from ding_like.utils.checkpoint import save_state
from tests.agent.films import BrokenLamp, Lamp, Weights
from tests.report.run_folder import training_and_evaluation, write_run


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
