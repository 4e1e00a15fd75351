"""Processes of learners end with the process that started them, and their ends are reported."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ding_like.entry.serial_entry import _add_how_to_resume
from ding_like.errors import CommError
from ding_like.pipeline.learners.synced import LearnerProcesses
from ding_like.pipeline.record import resume_store
from tests.support import wait_until

ROOT = Path(__file__).parents[3]
WAIT_S = 60.0
# Ends with its parent, as every learner does; prints its process id.
LIVES = """
import os, signal, threading
from ding_like.utils.processes import watch_parent
watch_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))
print(os.getpid(), flush=True)
threading.Event().wait(60)
"""
PARENT = """
import sys, threading
from pathlib import Path
from ding_like.pipeline.learners.synced import LearnerProcesses
command = [sys.executable, "-c", sys.argv[1]]
with LearnerProcesses(lambda rank, store: command, world_size=2, log_folder=Path(sys.argv[2])) as it:
    print(it.pid(1), flush=True)
    threading.Event().wait(60)
"""


class Ended:
    """Record of how learners ended."""

    def __init__(self, processes: LearnerProcesses) -> None:
        self._told = threading.Event()
        self.how: dict[int, str] = {}
        processes.tell(self._note)

    def _note(self, rank: int, how: str) -> None:
        self.how[rank] = how
        self._told.set()

    def wait(self) -> dict[int, str]:
        assert self._told.wait(WAIT_S)
        return self.how


def start(folder: Path, program: str) -> LearnerProcesses:
    return LearnerProcesses(lambda rank, store: [sys.executable, "-c", program], world_size=2, log_folder=folder)


def test_a_killed_learner_is_told_by_its_signal(tmp_path: Path) -> None:
    with start(tmp_path, LIVES) as processes:
        ended = Ended(processes)
        os.kill(processes.pid(1), signal.SIGKILL)

        assert ended.wait() == {1: f"was killed by SIGKILL; its output is in {tmp_path / 'rank1.txt'}"}


def test_one_that_ends_before_it_joins_is_named_at_once(tmp_path: Path) -> None:
    with (
        start(tmp_path, "raise SystemExit('no memory')") as processes,
        pytest.raises(
            CommError, match=r"^before it joined, learner rank 1 of 2 ended with status 1 \(no memory\); its"
        ),
    ):
        processes.join(join_s=WAIT_S)


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, LIVES, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    yield process
    process.kill()
    process.communicate(timeout=WAIT_S)


def test_a_learner_ends_with_its_killed_parent(tmp_path: Path, parent: subprocess.Popen[bytes]) -> None:
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    ended = os.pidfd_open(child)
    try:
        wait_until((tmp_path / "rank1.txt").read_text)
        parent.kill()

        assert select.select([ended], [], [], WAIT_S)[0] == [ended]
    finally:
        os.close(ended)


def test_a_stopped_learner_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    processes = start(tmp_path, LIVES)
    ended = Ended(processes)
    wait_until((tmp_path / "rank1.txt").read_text)
    os.kill(processes.pid(1), signal.SIGSTOP)

    processes.close(own_s=0.0)

    assert ended.how[1].startswith("was killed by SIGTERM")


def what_is_said(exp: Path, of_lost: str) -> str:
    group: Any = SimpleNamespace(rank=0, world_size=2)
    cfg: Any = SimpleNamespace(exp_name=str(exp))
    with pytest.raises(CommError) as raised, _add_how_to_resume(cfg, group):
        raise CommError(of_lost)
    return str(raised.value)


@pytest.mark.parametrize(("steps", "goes_on"), [(((20, 30), (10,)), False), (((20, 30), (20,)), True)])
def test_a_run_can_go_on_from_points_that_all_have(tmp_path: Path, steps: Any, goes_on: bool) -> None:
    for rank, of_rank in enumerate(steps):
        for step in of_rank:
            resume_store(str(tmp_path), rank=rank, keep=3).save(step, {}, {})

    said = what_is_said(tmp_path, "learner rank 1 of 2 is lost.")

    assert said.startswith(f"learner rank 1 of 2 is lost; logs are in {tmp_path / 'log/learners'}/; ")
    assert (f"go on with  ding --resume {tmp_path}" in said) == goes_on
    assert ("no point was saved" in said) != goes_on
