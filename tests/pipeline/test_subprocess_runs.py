"""Serial runs whose envs have processes of their own: resumed after a kill, and leaving nothing when interrupted."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ding_like.entry import resume_pipeline, serial_pipeline
from tests.envs.test_subprocess_parent import MARK, processes_with, wait_until_gone
from tests.leaks import SHARED_MEMORY
from tests.pipeline.test_resume import equal_tensors, lines, wait_for, weights
from tests.pipeline.test_serial import make_configs

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")

ROOT = Path(__file__).parents[2]

RUN = """
import sys
print("python runs", flush=True)
from tests.pipeline.test_subprocess_runs import configs, resume_pipeline, serial_pipeline
print("imported", flush=True)
if sys.argv[1] == "new":
    serial_pipeline(configs(exp_name=sys.argv[2]), seed=7, max_env_step=int(sys.argv[3]))
else:
    resume_pipeline(sys.argv[2])
"""


def configs(*, exp_name: str = "exp", **manager: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the configs of a small run with the manager `subprocess`, saved every 40 env steps."""
    main, create = make_configs()
    main["exp_name"] = exp_name
    main["resume"] = dict(save_every_env_steps=40)
    main["env"]["manager"] = manager
    create["env_manager"] = dict(type="subprocess")
    return main, create


@pytest.fixture
def mark() -> Iterator[str]:
    mark = uuid.uuid4().hex
    yield mark
    for pid in processes_with(mark):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def start(mark: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RUN, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), MARK: mark},
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_run_with_env_processes_is_resumed_exactly(tmp_path: Path, mark: str) -> None:
    serial_pipeline(configs(), seed=7, max_env_step=3000, exp_name="whole")
    rng = random.Random(0)
    for kill in range(3):
        exp = f"exp{kill}"
        with start(mark, "new", exp, "3000") as process:
            wait_for(tmp_path / exp / "ckpt/resume", process)
            with suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0.0, 0.5))
            assert process.poll() is None, "the run ended before it could be killed"
            process.kill()
            process.communicate()
        with start(mark, "resume", exp) as process:
            said, _ = process.communicate(timeout=120)

        assert equal_tensors(weights(tmp_path / exp), weights(tmp_path / "whole")), said
        assert lines(tmp_path / exp) == lines(tmp_path / "whole"), said
    assert wait_until_gone(mark) == set()


@pytest.mark.slow
def test_a_run_that_does_not_wait_for_all_lanes_drops_open_episodes_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    serial_pipeline(configs(wait_num=2), seed=7, max_env_step=333, exp_name="exp")

    with caplog.at_level("WARNING"):
        resume_pipeline("exp", max_env_step=800)

    said = "envs [0, 1, 2, 3] could not be brought back to where they were; each begins a new episode"
    assert caplog.text.count(said) == 1
    dropped = [row["total_dropped_episode_count"] for row in lines(tmp_path / "exp") if row["source"] == "collector"]
    assert dropped[0] == 0 and dropped[-1] == 4
    assert lines(tmp_path / "exp")[-1]["env_step"] > 600


SIGNALS = [signal.SIGINT] * 17 + [signal.SIGTERM] * 17 + [signal.SIGKILL] * 16
# The line after which a run is interrupted, and how long after it at most.
MOMENTS = [("python runs", 2.0), ("imported", 1.5), ("a point is saved", 0.5)]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_fifty_interrupted_runs_leave_nothing_behind(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    temp = tmp_path / "temp"
    temp.mkdir()
    monkeypatch.setenv("TMPDIR", str(temp))
    monkeypatch.setattr(tempfile, "tempdir", None)
    blocks = shared_blocks()
    rng = random.Random(0)
    signals = rng.sample(SIGNALS, len(SIGNALS))
    for number, sent in enumerate(signals):
        exp = tmp_path / f"exp{number}"
        moment, within_s = MOMENTS[number % len(MOMENTS)]
        with start(mark, "new", exp.name, "1000000") as process:
            wait_until(moment, process, exp)
            with suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0.0, within_s))
            assert process.poll() is None, process.communicate()[0]
            process.send_signal(sent)
            said, _ = process.communicate(timeout=60)

        # A socket, and memory without a name, are gone with the last process that holds them.
        assert wait_until_gone(mark) == set(), f"run {number}, {sent.name}: {said}"
        assert list(temp.iterdir()) == [], f"run {number}, {sent.name}: {said}"
        # Nobody can tidy up after SIGKILL but the next run in that folder.
        assert sent == signal.SIGKILL or unfinished(exp) == [], f"run {number}, {sent.name}: {said}"
    assert blocks_left(blocks) == set()


def wait_until(moment: str, process: subprocess.Popen[str], exp: Path) -> None:
    """Wait until a run says `moment`, or has saved its first point."""
    if moment == "a point is saved":
        wait_for(exp / "ckpt/resume", process)
        return
    assert process.stdout is not None
    while (line := process.stdout.readline().strip()) != moment:
        assert line, "the run ended early"


def unfinished(exp: Path) -> list[Path]:
    """Return files that were to be renamed when they were whole."""
    return [path for path in exp.rglob("*") if path.suffix in (".tmp", ".old") or path.is_socket()]


def shared_blocks() -> set[str]:
    return {path.name for path in SHARED_MEMORY.iterdir()} if SHARED_MEMORY.is_dir() else set()


def blocks_left(before: set[str]) -> set[str]:
    """Return the blocks of shared memory that are new and stay; those of other test processes come and go."""
    deadline = time.monotonic() + 20
    left = shared_blocks() - before
    while left and time.monotonic() < deadline:
        select.select([], [], [], 0.1)
        left &= shared_blocks()
    return left
