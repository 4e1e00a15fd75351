"""Processes that a test starts with a mark in their environment, which their children inherit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_MARK = "DING_TEST_MARK"


def processes_with(mark: str) -> set[int]:
    """Return the processes that inherited `mark` in their environment, zombies left out."""
    found = set()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it ended meanwhile, or is not ours to look at
            if f"{_MARK}={mark}".encode() in environ.read_bytes():
                found.add(int(environ.parent.name))
    return found


def wait_until_gone(mark: str, timeout_s: float = 60.0) -> set[int]:
    """Return the processes that are still there after a while."""
    deadline = time.monotonic() + timeout_s
    while (left := processes_with(mark)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


@pytest.fixture
def mark() -> Iterator[str]:
    """Yield a mark of this test; processes that still have it at the end are killed."""
    mark = uuid.uuid4().hex
    yield mark
    for pid in processes_with(mark):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def start_marked(
    mark: str, *args: str, cwd: Path | None = None, stderr: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    """Start this Python with arguments and a mark."""
    return subprocess.Popen(
        [sys.executable, *args],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env={**os.environ, "PYTHONPATH": str(_ROOT), _MARK: mark},
        cwd=cwd,
    )
