"""Coordinator and workers as processes that find each other over HTTP, and what a user reads where they do not."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ding_like.comm.keys import make_keys
from tests.entry.test_parallel import CONFIG, ding, environment, processes_in

pytestmark = pytest.mark.slow


class Coordinator:
    """Coordinator process in a folder; `said` is what it has printed."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ding_like.entry.cli", "-m", "dist", "-M", "coordinator", "-c", str(CONFIG)]
            + ["--exp-name", "run", *arguments],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
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
    return subprocess.Popen(
        [sys.executable, "-m", "ding_like.entry.cli", "-m", "dist", "-M", module, "--coordinator", url]
        + ["-c", str(CONFIG), *arguments],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.timeout(400)
def test_workers_of_other_folders_train_and_may_leave(coordinator: Coordinator, tmp_path: Path) -> None:
    keys = ["--key-file", str(tmp_path / "run/keys.json")]
    hosts = [tmp_path / name for name in ("one", "two", "three")]
    for host in hosts:
        host.mkdir()
    leaver = work(hosts[0], "collector", coordinator.url, *keys)
    others = [work(host, "collector", coordinator.url, *keys) for host in hosts[1:2]]
    learner = work(hosts[2], "learner", coordinator.url, *keys)
    leaver_said = []
    assert leaver.stdout is not None
    leaver_said.append(leaver.stdout.readline())
    leaver.send_signal(signal.SIGTERM)

    said = coordinator.end()

    assert coordinator.process.returncode == 0, said
    for worker in (leaver, *others, learner):
        worker_said, _ = worker.communicate(timeout=100)
        assert worker.returncode == 0, worker_said
    assert "are sent through the coordinator" in leaver_said[0]
    result = json.loads((tmp_path / "run/result.json").read_text())
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
