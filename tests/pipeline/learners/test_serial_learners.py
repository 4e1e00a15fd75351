"""Two learners in two processes: what they make, what a lost one costs, how they go on, and that they equal one."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from ding_like.entry import resume_pipeline, serial_pipeline, serial_pipeline_onpolicy
from ding_like.errors import ConfigError
from ding_like.pipeline.record import resume_store
from tests.pipeline.learners.two_learners import CONFIGS, by_aggregator, by_serial
from tests.pipeline.test_resume import equal_tensors, lines
from tests.pipeline.test_serial import make_configs
from tests.support import wait_until

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")

ROOT = Path(__file__).parents[3]


def ppo_configs() -> tuple[dict[str, Any], dict[str, Any]]:
    main, create = make_configs()
    main["env"]["wrappers"] = [dict(type="obs_norm"), dict(type="reward_norm")]
    main["policy"] = dict(
        model=dict(encoder_hidden_size_list=[16, 16]),
        learn=dict(batch_size=16, epoch_per_collect=2),
        collect=dict(n_sample=64, collector=dict(collect_print_freq=20)),
        eval=dict(evaluator=dict(eval_freq=50)),
    )
    create["policy"]["type"] = "ppo"
    return main, create


def point(exp: str, rank: int) -> Any:
    """Return the parts of a rank's newest point."""
    return resume_store(exp, rank=rank).load_newest()


def test_two_learners_learn_as_one_and_the_first_alone_reports(tmp_path: Path) -> None:
    serial_pipeline(make_configs(), seed=1, max_env_step=400, exp_name="exp", learners=2)

    first, second = point("exp", 0), point("exp", 1)
    assert first.step == second.step >= 400
    assert equal_tensors(first.parts["policy"]["model"], second.parts["policy"]["model"])
    assert equal_tensors(first.parts["policy"]["target_model"], second.parts["policy"]["target_model"])
    result = json.loads((tmp_path / "exp/result.json").read_text())
    assert result["env_step"] == first.step and result["train_iter"] == pytest.approx((first.step - 40) / 4, abs=8)
    assert {line["source"] for line in lines(tmp_path / "exp")} == {"collector", "learner", "evaluator"}
    assert "learner rank 1 of 2" in (tmp_path / "exp/log/learners/rank1.txt").read_text()
    assert not list(tmp_path.glob("exp/log/*rank1/*tb_logger"))


@pytest.mark.slow
def test_the_second_learners_envs_are_those_that_one_process_would_have_after_the_firsts() -> None:
    serial_pipeline(make_configs(), seed=1, max_env_step=48, exp_name="one")

    serial_pipeline(make_configs(), seed=1, max_env_step=48, exp_name="two", learners=2)

    alone, first, second = (begun_by(*of) for of in (("one", 0), ("two", 0), ("two", 1)))
    assert sorted(alone) == [0, 1, 2, 3] and sorted(first) == sorted(second) == [0, 1]
    for lane in range(4):
        there = second[lane - 2] if lane > 1 else first[lane]
        assert alone[lane].tolist() == there.tolist(), lane


def begun_by(exp: str, rank: int) -> dict[int, Any]:
    """Return the observation in which each lane began, of what a rank has stored, the oldest row first."""
    rows = point(exp, rank).parts["buffer"]["data"]
    return {int(rows["lane"][index]): rows["obs"][index] for index in reversed((rows["step"] == 0).nonzero()[0])}


@pytest.mark.slow
def test_on_policy_learners_go_on_from_their_points_as_if_nothing_had_been(tmp_path: Path) -> None:
    serial_pipeline_onpolicy(ppo_configs(), seed=3, max_env_step=640, exp_name="whole", learners=2)
    serial_pipeline_onpolicy(ppo_configs(), seed=3, max_env_step=300, exp_name="parts", learners=2)

    resume_pipeline("parts", max_env_step=640)

    assert equal_tensors(policy_of("whole", 0), policy_of("parts", 0))
    assert lines(tmp_path / "whole") == lines(tmp_path / "parts")
    with pytest.raises(ConfigError, match="is a run of 2 learners, .* not with 3"):
        resume_pipeline("parts", max_env_step=700, learners=3)


def test_a_run_that_cannot_be_shared_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ding_like.entry.serial_entry.num_cores", lambda: 3)
    monkeypatch.setattr("ding_like.entry.serial_entry.LearnerProcesses", None)

    with pytest.raises(ConfigError, match="4 envs|which 3 learners cannot share equally"):
        serial_pipeline(make_configs(), max_env_step=10, learners=3)
    with pytest.raises(ConfigError, match="env_setting and model are objects of this process"):
        serial_pipeline(make_configs(), max_env_step=10, learners=2, model=torch.nn.Linear(4, 2))


def test_a_run_has_at_least_one_learner() -> None:
    with pytest.raises(ConfigError, match="--learners is 0; give a number of processes from 1"):
        serial_pipeline(make_configs(), max_env_step=10, learners=0)


SCRIPT = """
import sys
from ding_like.entry import resume_pipeline, serial_pipeline, serial_pipeline_onpolicy
from ding_like.entry import training
from ding_like.errors import DingError
from ding_like.utils.log import setup_console
from tests.pipeline.learners.test_serial_learners import ppo_configs
from tests.pipeline.test_serial import make_configs
training.write_pictures = lambda *args, **kwargs: None
setup_console()
kind, exp, env_step, timeout_s = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
try:
    if kind == "resume":
        resume_pipeline(exp)
    else:
        main, create = make_configs() if kind == "dqn" else ppo_configs()
        main.update(exp_name=exp, resume=dict(save_every_env_steps=128), learners=dict(timeout_s=timeout_s))
        train = serial_pipeline if kind == "dqn" else serial_pipeline_onpolicy
        train((main, create), seed=7, max_env_step=env_step, learners=2)
except DingError as error:
    print(f"{type(error).__name__}: {error}", flush=True)
    sys.exit(1)
"""


def start(kind: str, exp: str, env_step: int, timeout_s: float = 20.0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, kind, exp, str(env_step), str(timeout_s)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=150)[0]


def pid_of_second(exp: Path, process: subprocess.Popen[str]) -> int:
    """Return the process of rank 1, once both ranks have saved a point."""
    folders = [exp / "ckpt/resume", exp / "ckpt/resume_rank1"]

    def has_saved() -> bool:
        assert process.poll() is None, process.communicate()[0]
        return all(each.is_dir() and any(path.name.isdecimal() for path in each.iterdir()) for each in folders)

    wait_until(has_saved, "a saved point of each rank", timeout_s=180.0)
    return int((exp / "log/learners/rank1.txt").read_text().partition("process ")[2].partition(":")[0])


def wait_until_gone(pid: int) -> None:
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), f"the end of process {pid}")


@pytest.mark.timeout(400)
def test_a_killed_learner_ends_the_run_with_its_name_and_the_run_goes_on(tmp_path: Path) -> None:
    process = start("dqn", "exp", 10**6)
    second = pid_of_second(tmp_path / "exp", process)

    os.kill(second, signal.SIGKILL)
    out = finish(process)

    assert process.returncode == 1
    assert "CommError: learner rank 1 of 2 was killed by" in out
    assert "log/learners/rank1.txt" in out and "go on with  ding --resume exp" in out
    (weights,) = re.findall(r"starts from the weights learned so far with  --load-path (\S+);", out)
    assert Path(weights).is_file()
    before = resume_store("exp").steps()[0]
    resume_pipeline("exp", max_env_step=before + 100)
    first, other = point("exp", 0), point("exp", 1)
    assert first.step == other.step >= before + 100
    assert equal_tensors(policy_of("exp", 0), policy_of("exp", 1))


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_learner_whose_first_is_lost_ends_within_the_timeout(tmp_path: Path, number: signal.Signals) -> None:
    process = start("dqn", "exp", 10**6, 6.0)
    second = pid_of_second(tmp_path / "exp", process)

    os.kill(process.pid, number)
    try:
        wait_until_gone(second) if number == signal.SIGKILL else wait_until_zombie(second)
    finally:
        process.kill()
        finish(process)

    how = "has ended without a word" if number == signal.SIGKILL else "has not answered for"
    assert f"learner rank 0 of 2 {how}" in (tmp_path / "exp/log/learners/rank1.txt").read_text()


def wait_until_zombie(pid: int) -> None:
    """Wait until a process has ended, whose parent is stopped and so does not ask for its status."""
    status = Path(f"/proc/{pid}/stat")
    wait_until(lambda: status.read_text().rpartition(")")[2].split()[0] == "Z", f"the end of process {pid}")


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_to_any_learner_saves_and_ends_all(tmp_path: Path, rank: int) -> None:
    process = start("dqn", "exp", 10**6)
    second = pid_of_second(tmp_path / "exp", process)

    os.kill(second if rank else process.pid, signal.SIGTERM)
    out = finish(process)

    assert process.returncode == 143 and "saved, go on with  ding --resume exp" in out
    assert point("exp", 0).step == point("exp", 1).step


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_torchrun_starts_the_same_run_and_goes_on_with_it(tmp_path: Path) -> None:
    config = ROOT / "dizoo/classic_control/cartpole/config/cartpole_dqn_config.py"
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "ding_like"]
    new = ["-m", "serial", "-c", str(config), "--env-step", "800", "--exp-name", "below_torchrun"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    for arguments in (new, ["--resume", "below_torchrun", "--env-step", "1000"]):
        subprocess.run([*run, *arguments], env=environment, check=True, capture_output=True, timeout=150)
    serial_pipeline(str(config), max_env_step=1000, exp_name="started", learners=2)

    for rank in (0, 1):
        assert equal_tensors(policy_of("below_torchrun", rank), policy_of("started", rank))
    assert "learner rank 1 of 2" in (tmp_path / "below_torchrun/log/learners/rank1.txt").read_text()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["dqn", "ppo"])
def test_kills_at_random_moments_change_nothing(tmp_path: Path, kind: str) -> None:
    whole = start(kind, "whole", 3000)
    out = finish(whole)
    assert whole.returncode == 0, out
    rng = random.Random(0)
    for number in range(4):
        exp, rank = f"exp{number}", number % 2
        process = start(kind, exp, 3000)
        second = pid_of_second(tmp_path / exp, process)
        time.sleep(rng.uniform(0, 1.0))
        os.kill(second if rank else process.pid, signal.SIGKILL)
        finish(process)
        assert process.returncode == (1 if rank else -signal.SIGKILL)
        wait_until_gone(second)

        out = finish(start("resume", exp, 0))

        for rank_of in (0, 1):
            assert equal_tensors(policy_of(exp, rank_of), policy_of("whole", rank_of)), out
        assert lines(tmp_path / exp) == lines(tmp_path / "whole"), out


def policy_of(exp: str, rank: int) -> dict[str, torch.Tensor]:
    """Return the weights of a rank's newest point."""
    model: dict[str, torch.Tensor] = point(exp, rank).parts["policy"]["model"]
    return model


REPORT = ROOT / "docs/reports/two_learners.json"
CLOSE = 1e-6
UPDATES = 50
# What a learner logs of its own rows, so that it tells whose values are logged.
OF_ROWS = "q_value"
QUICK = ("dqn", "ppo")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CONFIGS]
)
def test_two_learners_of_a_parallel_run_equal_one(tmp_path: Path, name: str) -> None:
    found = by_aggregator(name, tmp_path, updates=UPDATES)

    assert found.updates >= UPDATES
    assert found.moved > 0.01, "it learned"
    assert found.largest_difference <= CLOSE
    assert found.largest_priority_difference <= 1e-5
    if name == "dqn":  # what is logged is of all learners, not of the first alone
        one, two = found.logged[OF_ROWS]
        assert two == pytest.approx(one, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_two_learners_that_join_by_themselves_equal_one(tmp_path: Path, name: str) -> None:
    found = by_serial(name, tmp_path, updates=UPDATES)

    assert found.updates >= UPDATES
    assert found.moved > 0.01, "it learned"
    assert found.largest_difference <= CLOSE


@pytest.mark.slow
def test_without_log_reduce_the_first_logs_its_own_half(tmp_path: Path) -> None:
    found = by_aggregator("dqn", tmp_path, updates=3, log_reduce=False)

    one, first = found.logged[OF_ROWS]
    assert abs(first - one) > 1e-4
    assert found.largest_difference <= CLOSE


def test_the_recorded_differences_hold() -> None:
    report: dict[str, Any] = json.loads(REPORT.read_text())

    assert report["largest_difference"].keys() == CONFIGS.keys()
    for ways in report["largest_difference"].values():
        assert ways.keys() == {"by_aggregator", "by_serial"}
        assert all(each["difference"] <= CLOSE and each["moved"] > 0.01 for each in ways.values())
