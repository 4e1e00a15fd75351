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

from ding_like.comm.rest.keys import make_keys
from tests.entry.test_parallel import CONFIG, ding, environment, processes_in


class Coordinator:
    """Hold a coordinator process in a folder and what it says."""

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
        self.said += self.process.communicate(timeout=60)[0]
        return self.said


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    made = Coordinator(tmp_path, "--env-step", "1200")
    yield made
    made.process.kill()
    made.process.communicate(timeout=10)


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


@pytest.mark.timeout(120)
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
        worker_said, _ = worker.communicate(timeout=30)
        assert worker.returncode == 0, worker_said
    assert "are sent through the coordinator" in leaver_said[0]
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["env_step"] >= 1200 and 0 <= result["env_step"] - 500 - result["train_iter"] <= 128
    assert (tmp_path / "run/ckpt/ckpt_best.pth.tar").is_file() and (tmp_path / "run/curve.png").is_file()
    assert (hosts[2]).joinpath("cartpole_dqn_seed0/ckpt").is_dir(), "the learner's own checkpoints"
    assert not (tmp_path / "run/keys.json").exists()
    assert [each for folder in (tmp_path, *hosts) for each in processes_in(folder)] == []


@pytest.mark.timeout(60)
def test_a_wrong_key_is_one_line(coordinator: Coordinator, tmp_path: Path) -> None:
    make_keys(tmp_path / "wrong.json")

    run = ding(
        tmp_path, "-m", "dist", "-M", "collector", "-c", str(CONFIG), "--coordinator", coordinator.url,
        "--key-file", "wrong.json",
    )  # fmt: skip

    assert run.returncode == 1 and len(run.stderr.strip().splitlines()) == 1
    assert "does not take this worker's key" in run.stderr and "--key-file" in run.stderr


@pytest.mark.timeout(60)
def test_a_port_in_use_is_one_line(coordinator: Coordinator, tmp_path: Path) -> None:
    port = coordinator.url.rpartition(":")[2]

    run = ding(tmp_path, "-m", "dist", "-M", "coordinator", "-c", str(CONFIG), "--port", port, "--exp-name", "other")

    assert run.returncode == 1 and len(run.stderr.strip().splitlines()) == 1
    assert f"127.0.0.1:{port}: Address already in use. Give another --port" in run.stderr


@pytest.mark.timeout(60)
def test_an_interrupted_coordinator_says_how_to_go_on(coordinator: Coordinator, tmp_path: Path) -> None:
    coordinator.process.send_signal(signal.SIGINT)

    said = coordinator.end()

    assert coordinator.process.returncode == 130
    assert "interrupted: what is known is in run" in said and "Traceback" not in said
    command = re.search(r"go on with  ding (.*)", said)
    assert command is not None and "resume_training=True" in command[1] and f"--port {coordinator.port}" in command[1]
    assert (tmp_path / "run/coordinator.sqlite").is_file() and (tmp_path / "run/keys.json").is_file()


@pytest.mark.timeout(120)
def test_workers_go_on_with_a_coordinator_that_was_killed_and_started_again(tmp_path: Path) -> None:
    first = Coordinator(tmp_path, "--env-step", "6000", "env.stop_value=1e9")
    keys = ["--key-file", "run/keys.json"]
    workers = [work(tmp_path, module, first.url, *keys) for module in ("learner", "collector")]
    first.read_until(r"(env step [\d,]+ .* is the best so far)")
    first.process.kill()
    first.process.communicate(timeout=10)

    going_on = ["--env-step", "6000", "env.stop_value=1e9", "--port", first.port, "policy.learn.resume_training=True"]
    second = Coordinator(tmp_path, *going_on)
    said = second.end()

    assert second.process.returncode == 0, said
    for worker in workers:
        worker_said, _ = worker.communicate(timeout=30)
        assert worker.returncode == 0 and "left out" not in worker_said, worker_said
    result = json.loads((tmp_path / "run/result.json").read_text())
    # Batches that were granted as the coordinator died got lost.
    assert result["env_step"] >= 6000 and 0 <= result["env_step"] - 500 - result["train_iter"] <= 256
    assert not (tmp_path / "run/files").exists(), "segments and weights go when the run is over"
    over = ding(tmp_path, "-m", "dist", "-M", "coordinator", "-c", str(CONFIG), "--exp-name", "run", going_on[-1])
    assert over.returncode == 1 and "the run in run/ is over" in over.stderr and "Traceback" not in over.stderr


@pytest.mark.timeout(60)
def test_a_run_with_a_coordinator_is_not_begun_again_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/coordinator.sqlite").touch()

    run = ding(tmp_path, "-m", "parallel", "-c", str(CONFIG), "--exp-name", "run", "policy.learn.resume_training=True")

    assert run.returncode == 1 and "ding --resume run" in run.stderr


def test_a_coordinator_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    run = ding(
        tmp_path, "-m", "dist", "-M", "learner", "-c", str(CONFIG), "--coordinator", "http://127.0.0.1:9",
        "--retry-s", "0.3",
    )  # fmt: skip

    assert run.returncode == 1 and len(run.stderr.strip().splitlines()) == 1
    assert "http://127.0.0.1:9 has not answered for 0.3 s: Connection refused" in run.stderr


def test_keys_are_made_once(tmp_path: Path) -> None:
    assert ding(tmp_path, "keys", "k.json").returncode == 0
    before = (tmp_path / "k.json").read_text()

    again = ding(tmp_path, "keys", "k.json")

    assert again.returncode == 1 and "not overwritten" in again.stderr
    assert (tmp_path / "k.json").read_text() == before and len(json.loads(before)["collector"]) == 64
