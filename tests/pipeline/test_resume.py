"""A run that was interrupted goes on exactly: equal weights, equal metrics."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from ding_like.entry import resume_pipeline, serial_pipeline, serial_pipeline_onpolicy
from ding_like.errors import CheckpointError, ConfigError
from ding_like.pipeline.record import resume_store
from ding_like.utils.checkpoint import load_state
from ding_like.worker import BaseLearner
from tests.contracts.policy_cases import assert_equal_states
from tests.pipeline import (
    test_by_agent_runs,
    test_episode_runs,
    test_hindsight_runs,
    test_hybrid_runs,
    test_recurrent_ppo_runs,
    test_serial_continuous,
    test_windows,
)
from tests.pipeline.test_serial import make_configs
from tests.support import wait_until

Configs = tuple[dict[str, Any], dict[str, Any]]

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")

ROOT = Path(__file__).parents[2]


def lines(exp: Path) -> list[dict]:
    """Return the metrics without what depends on the clock."""
    rows = [json.loads(line) for line in (exp / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if "time" not in k and "per_sec" not in k} for row in rows]


def weights(exp: Path) -> dict[str, torch.Tensor]:
    newest = max(
        (exp / "ckpt").glob("iteration_*.pth.tar"), key=lambda path: int(path.name.split("_")[1].split(".")[0])
    )
    state = load_state(newest)
    return {**state["model"], **{f"target.{k}": v for k, v in state["target_model"].items()}}


def rainbow() -> Configs:
    model = dict(encoder_hidden_size_list=[16], head_hidden_size=16, v_min=0, v_max=30, n_atom=11)
    main, create = make_configs(model=model)
    return main, {**create, "policy": dict(type="rainbow")}


def hybrid_ppo() -> Configs:
    return test_hybrid_runs.configs("ppo")


def multi_pass() -> Configs:
    return test_hybrid_runs.configs("pdqn", model=dict(multi_pass=True), nstep=3, priority=True)


# What makes the configs, and the env steps of the whole run and of its first part.
IN_TWO_PARTS: dict[str, tuple[Callable[[], Configs], int, int]] = {
    "dqn": (make_configs, 600, 333),
    "rainbow": (rainbow, 400, 233),
    "r2d2": (test_recurrent_ppo_runs.r2d2, 700, 333),
    "ppo_recurrent": (test_recurrent_ppo_runs.ppo_recurrent, 700, 333),
    "sac": (lambda: test_serial_continuous.make_configs("sac"), 160, 100),
    "hindsight": (test_hindsight_runs.configs, 500, 301),
    "prioritised windows": (test_windows.prioritised, 700, 520),
}
ALSO: dict[str, tuple[Callable[[], Configs], int, int]] = {
    "impala": (test_recurrent_ppo_runs.impala, 700, 333),
    **{
        f"team {name}": (partial(test_by_agent_runs.on_policy, name), 700, 333)
        for name in ("mappo", "happo", "ippo_recurrent")
    },
    "idqn": (test_by_agent_runs.idqn, 500, 233),
    "windows": (lambda: test_windows.configs("sequence"), 700, 520),
    "pdqn": (lambda: test_hybrid_runs.configs("pdqn"), 400, 230),
    "mpdqn": (multi_pass, 400, 230),
    "hybrid ppo": (hybrid_ppo, 400, 230),
    "whole numbers": (lambda: test_episode_runs.make_configs("dqn", env_id="FrozenLake-v1", n_sample=8), 160, 96),
}


@pytest.mark.parametrize("name", [*IN_TWO_PARTS, *(pytest.param(name, marks=pytest.mark.slow) for name in ALSO)])
def test_a_run_in_two_parts_equals_one_in_one(name: str, tmp_path: Path) -> None:
    configs, steps, first = {**IN_TWO_PARTS, **ALSO}[name]
    train = serial_pipeline_onpolicy if "ppo" in name else serial_pipeline

    whole = train(configs(), seed=3, max_env_step=steps, exp_name="whole")
    train(configs(), seed=3, max_env_step=first, exp_name="parts")
    resumed = resume_pipeline("parts", max_env_step=steps)

    assert_equal_states(whole.learn_mode.state_dict(), resumed.learn_mode.state_dict())
    assert lines(tmp_path / "whole") == lines(tmp_path / "parts")
    assert json.loads((tmp_path / "parts/result.json").read_text())["train_iter"] > 10


def test_resume_keeps_the_limits_of_the_run(tmp_path):
    serial_pipeline(make_configs(), seed=0, max_env_step=300, exp_name="exp")
    before = json.loads((tmp_path / "exp/result.json").read_text())
    with pytest.raises(ConfigError, match="exp/ is over, at env step 304 and iteration 64: .* ding --resume exp --env"):
        resume_pipeline("exp")
    (tmp_path / "exp/result.json").unlink()  # as if the process was killed before it was written

    resume_pipeline("exp")

    after = json.loads((tmp_path / "exp/result.json").read_text())
    assert after["env_step"] == before["env_step"] and after["eval_value_raw"] == before["eval_value_raw"]
    saved = resume_store("exp").load_newest().parts["run"]
    assert after["duration_s"] > saved["duration_s"] > 0


def test_a_run_whose_name_has_a_percent_sign_says_where_it_resumes(caplog):
    caplog.set_level("INFO", logger="ding_like")
    serial_pipeline(make_configs(), seed=0, max_env_step=200, exp_name="lr_50%s")

    resume_pipeline("lr_50%s", max_env_step=208)

    assert "resumed lr_50%s at env step 2" in caplog.text


def test_the_newest_two_points_are_kept(tmp_path):
    main, create = make_configs()
    main["resume"] = dict(save_every_env_steps=50)

    serial_pipeline((main, create), seed=0, max_env_step=400, exp_name="exp")

    steps = sorted(int(path.name) for path in (tmp_path / "exp/ckpt/resume").iterdir())
    assert len(steps) == 2 and steps[-1] >= 400


def test_a_large_buffer_is_saved_only_at_the_end(tmp_path, caplog):
    main, create = make_configs()
    main["resume"] = dict(save_every_env_steps=50, max_buffer_gb=1e-6)

    with caplog.at_level("INFO"):
        serial_pipeline((main, create), seed=0, max_env_step=400, exp_name="exp")

    assert len(list((tmp_path / "exp/ckpt/resume").iterdir())) == 1
    assert caplog.text.count("over resume.max_buffer_gb") == 1


def test_nothing_to_resume_is_one_error(tmp_path):
    with pytest.raises(CheckpointError, match="nothing to resume"):
        resume_pipeline("nowhere")


def test_a_point_of_another_model_is_refused(tmp_path):
    serial_pipeline(make_configs(), seed=0, max_env_step=200, exp_name="exp")
    path = tmp_path / "exp/total_config.py"
    path.write_text(path.read_text().replace("16, 16", "8, 8").replace("[16, 16]", "[8, 8]"))
    assert "8, 8" in path.read_text() or "8,\n" in path.read_text()

    with pytest.raises(CheckpointError, match="another model"):
        resume_pipeline("exp", max_env_step=300)


SCRIPT = """
import sys
from ding_like.entry import resume_pipeline, serial_pipeline
from ding_like.utils.log import setup_console
from tests.pipeline.test_serial import make_configs
setup_console()
main, create = make_configs()
main["resume"] = dict(save_every_env_steps=40)
main["exp_name"] = sys.argv[2]
print("ready", flush=True)
if sys.argv[1] == "new":
    serial_pipeline((main, create), seed=7, max_env_step=int(sys.argv[3]))
else:
    resume_pipeline(sys.argv[2])
"""


def start(kind: str, exp: str, env_step: int) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, kind, exp, str(env_step)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def finish(process: subprocess.Popen) -> str:
    out, _ = process.communicate(timeout=100)
    return out


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("number", "status"),
    [pytest.param(signal.SIGINT, -signal.SIGINT, marks=pytest.mark.slow), (signal.SIGTERM, 143)],
)
def test_a_signal_saves_and_says_how_to_resume(tmp_path, number, status):
    serial_pipeline(make_configs(), seed=7, max_env_step=3000, exp_name="whole")
    process = start("new", "exp", 3000)
    wait_for(tmp_path / "exp/ckpt/resume", process)

    process.send_signal(number)
    out = finish(process)

    assert process.returncode in (status, 1 if number == signal.SIGINT else status), out
    assert "ding --resume exp" in out
    resume_pipeline("exp")
    assert equal_tensors(weights(tmp_path / "exp"), weights(tmp_path / "whole")), out
    assert lines(tmp_path / "exp") == lines(tmp_path / "whole")


def in_the_midst_of_updates(name: str) -> Configs:
    """Return configs whose turns have 4 updates, or one of several epochs where they are on-policy."""
    main, create = test_windows.prioritised() if name == "windows" else make_configs()
    if name == "ppo":
        main, create = hybrid_ppo()
    else:
        main["policy"]["learn"]["update_per_collect"] = 4
    main["policy"]["eval"]["evaluator"]["eval_freq"] = 10
    return main, create


@pytest.mark.parametrize("name", ["dqn", "windows", "ppo"])
def test_a_signal_in_the_midst_of_a_turn_ends_it_after_the_update_and_changes_nothing(name, monkeypatch, caplog):
    caplog.set_level("INFO", logger="ding_like")
    train = serial_pipeline_onpolicy if name == "ppo" else serial_pipeline
    whole = train(in_the_midst_of_updates(name), seed=3, max_env_step=300, exp_name="whole")
    real, calls, stops = BaseLearner.train, [], {2, 3, 5}

    def train_and_signal(*args: Any, **kwargs: Any) -> None:
        calls.append(args)
        if len(calls) in stops:
            os.kill(os.getpid(), signal.SIGTERM)
        real(*args, **kwargs)

    monkeypatch.setattr(BaseLearner, "train", train_and_signal)
    with pytest.raises(SystemExit):
        train(in_the_midst_of_updates(name), seed=3, max_env_step=300, exp_name="parts")
    for stop in sorted(stops):
        assert len(calls) == stop
        with suppress(SystemExit):
            resumed = resume_pipeline("parts")

    assert_equal_states(whole.learn_mode.state_dict(), resumed.learn_mode.state_dict())
    assert lines(Path("whole")) == lines(Path("parts"))
    assert caplog.text.count("stopping: still ") == 3


def wait_for(folder: Path, process: subprocess.Popen) -> None:
    """Wait until the first point is saved; a process that ended instead fails the test."""

    def has_saved() -> bool:
        assert process.poll() is None, process.communicate()[0]
        return folder.is_dir() and any(path.name.isdecimal() for path in folder.iterdir())

    wait_until(has_saved, "the first saved point")


def equal_tensors(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_twenty_kills_at_random_moments_change_nothing(tmp_path):
    env_step = 4000
    serial_pipeline(make_configs(), seed=7, max_env_step=env_step, exp_name="whole")
    rng, kills, late = random.Random(0), 0, 0
    while kills < 20:
        exp = f"exp{kills + late}"
        process = start("new", exp, env_step)
        wait_for(tmp_path / exp / "ckpt/resume", process)
        try:
            process.wait(timeout=rng.uniform(0, 1.5))
            late += 1  # it ended before the kill: no kill to count
            finish(process)
            continue
        except subprocess.TimeoutExpired:
            process.kill()
        finish(process)
        kills += 1
        out = finish(start("resume", exp, 0))
        assert equal_tensors(weights(tmp_path / exp), weights(tmp_path / "whole")), out
        assert lines(tmp_path / exp) == lines(tmp_path / "whole"), out
    assert kills == 20
