"""Coordinator and workers as processes that find each other over HTTP, and go on where they were stopped."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ding_like.comm.keys import make_keys
from tests.entry.test_parallel import CONFIG, ding, processes_in, result_in, started

pytestmark = pytest.mark.slow


class Coordinator:
    """Coordinator process in a folder; `said` is what it has printed."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        how = ["-m", "dist", "-M", "coordinator", "-c", str(CONFIG), "--exp-name", "run"]
        self.process = started(folder, *how, *arguments)
        self.said = ""
        self.url = self.read_until(r"coordinator (http://\S+)")
        self.port = self.url.rpartition(":")[2]
        self.read_until(r"(join with.*-M collector)")

    def read_until(self, pattern: str) -> str:
        """Return what the pattern's group matches in a line that is still to be said."""
        assert self.process.stdout is not None
        while True:
            line = self.process.stdout.readline()
            assert line, self.said
            self.said += line
            found = re.search(pattern, line)
            if found is not None:
                return found[1]

    def end(self) -> str:
        """Wait for the end and return all that was said."""
        self.said += self.process.communicate(timeout=280)[0]
        return self.said


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    made = Coordinator(tmp_path, "--env-step", "1200")
    yield made
    made.process.kill()
    made.process.communicate(timeout=60)


def work(folder: Path, module: str, url: str, *arguments: str) -> subprocess.Popen[str]:
    return started(folder, "-m", "dist", "-M", module, "--coordinator", url, "-c", str(CONFIG), *arguments)


@pytest.mark.timeout(400)
def test_workers_of_other_folders_train_and_may_leave(coordinator: Coordinator, tmp_path: Path) -> None:
    keys = ["--key-file", str(tmp_path / "run/keys.json")]
    hosts = [tmp_path / name for name in ("one", "two", "three")]
    for host in hosts:
        host.mkdir()
    leaver = work(hosts[0], "collector", coordinator.url, *keys)
    other = work(hosts[1], "collector", coordinator.url, *keys)
    learner = work(hosts[2], "learner", coordinator.url, *keys)
    assert leaver.stdout is not None
    leaver_said = leaver.stdout.readline()
    leaver.send_signal(signal.SIGTERM)

    said = coordinator.end()

    assert coordinator.process.returncode == 0, said
    for worker in (leaver, other, learner):
        worker_said, _ = worker.communicate(timeout=100)
        assert worker.returncode == 0, worker_said
    assert "are sent through the coordinator" in leaver_said
    result = result_in(tmp_path / "run")
    assert result["env_step"] >= 1200 and 0 <= result["env_step"] - 500 - result["train_iter"] <= 128
    assert (tmp_path / "run/ckpt/ckpt_best.pth.tar").is_file() and (tmp_path / "run/curve.png").is_file()
    assert (hosts[2]).joinpath("cartpole_dqn_seed0/ckpt").is_dir(), "the learner's own checkpoints"
    assert not (tmp_path / "run/keys.json").exists()
    assert [each for folder in (tmp_path, *hosts) for each in processes_in(folder)] == []


@pytest.mark.timeout(400)
def test_a_wrong_key_is_one_line(coordinator: Coordinator, tmp_path: Path) -> None:
    make_keys(tmp_path / "wrong.json")

    run = ding(
        tmp_path, "-m", "dist", "-M", "collector", "-c", str(CONFIG), "--coordinator", coordinator.url,
        "--key-file", "wrong.json",
    )  # fmt: skip

    assert run.returncode == 1 and len(run.stderr.strip().splitlines()) == 1
    assert "does not take this worker's key" in run.stderr and "--key-file" in run.stderr


@pytest.mark.timeout(400)
def test_an_interrupted_coordinator_says_how_to_go_on(coordinator: Coordinator, tmp_path: Path) -> None:
    coordinator.process.send_signal(signal.SIGINT)

    said = coordinator.end()

    assert coordinator.process.returncode == 130
    assert said.index("stopping: saving") < said.index("interrupted: what is known is in run")
    assert "Traceback" not in said
    command = re.search(r"go on with  ding (.*)", said)
    assert command is not None and "resume_training=True" in command[1] and f"--port {coordinator.port}" in command[1]
    assert (tmp_path / "run/coordinator.sqlite").is_file() and (tmp_path / "run/keys.json").is_file()


# --- `ding --resume`: of a run that was interrupted, killed, or is over and given more to do

# Evaluations are short and many, so that a run is soon one that has learned for a while.
SMALL = [
    "env.stop_value=1e9",
    "policy.eval.evaluator.eval_freq=50",
    "env.evaluator_env_num=2",
    "env.n_evaluator_episode=2",
]


def begin(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Return a process that has collected and learned for a while."""
    process = started(folder, *arguments)
    assert process.stdout is not None
    said = ""
    while " is the best so far" not in said:
        line = process.stdout.readline()
        assert line, said
        said += line
    return process


@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_parallel_run_that_was_stopped_goes_on_and_can_be_extended(tmp_path: Path, number: signal.Signals) -> None:
    run = begin(tmp_path, "-m", "parallel", "-c", str(CONFIG), "--exp-name", "par", *SMALL)
    refused = ding(tmp_path, "--resume", "par")
    run.send_signal(number)
    said, _ = run.communicate(timeout=60)

    stopped = json.loads((tmp_path / "par/metrics.jsonl").read_text().splitlines()[-1])["env_step"]
    again = ding(tmp_path, "--resume", "par", "--env-step", str(stopped + 800))
    over = ding(tmp_path, "--resume", "par")
    steps = result_in(tmp_path / "par")["env_step"]
    longer = ding(tmp_path, "--resume", "par", "--env-step", str(int(steps) + 200))

    assert refused.returncode == 1 and f"process {run.pid} on" in refused.stderr and "Traceback" not in refused.stderr
    assert number == signal.SIGKILL or "go on with  ding --resume par" in said, said
    assert again.returncode == 0, again.stderr
    begun = int(re.search(r"going on at env step ([\d,]+)", again.stdout)[1].replace(",", ""))  # type: ignore[index]
    assert stopped <= begun < stopped + 800 <= steps and "rows of the buffer" not in again.stdout
    assert over.returncode == 1 and "is over, at env step " in over.stderr and "--env-step" in over.stderr
    assert longer.returncode == 0 and "it fills anew" in longer.stdout, longer.stderr
    assert result_in(tmp_path / "par")["env_step"] >= steps + 200
    assert not (tmp_path / "par/files").exists() and processes_in(tmp_path) == []


@pytest.mark.timeout(500)
def test_a_coordinator_that_was_killed_is_started_again_by_one_word_and_its_workers_go_on(tmp_path: Path) -> None:
    first = Coordinator(tmp_path, "--env-step", "2500", "env.stop_value=1e9")
    workers = [work(tmp_path, module, first.url, "--key-file", "run/keys.json") for module in ("learner", "collector")]
    first.read_until(r"(env step [\d,]+ .* is the best so far)")
    first.process.kill()
    first.process.communicate(timeout=10)

    again = ding(tmp_path, "--resume", "run")

    assert again.returncode == 0, again.stderr
    assert first.url in again.stdout, "at the same address"
    for worker in workers:
        worker_said, _ = worker.communicate(timeout=30)
        assert worker.returncode == 0, worker_said
    assert result_in(tmp_path / "run")["env_step"] >= 2500
