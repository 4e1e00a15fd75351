"""Start the workers of a run on this machine, start one anew when it dies, and see that all are gone in the end."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ding_like.errors import TrainingError

logger = logging.getLogger(__name__)

_TAIL = 2000  # characters of a worker's last words that are shown

# Take the tasks of a dead process back, given (pid, why); return whether it had done anything.
Lost = Callable[[int, str], bool]


@dataclass
class _Child:
    process: subprocess.Popen[bytes]
    arguments: Sequence[str]
    fruitless: int = 0  # deaths in a row before anything was done


class Children:
    """Hold worker processes; use it with `with`, so that none is left behind.

    One that dies is started again, until it has died `max_restarts` + 1 times in a row without having done anything.
    `lost` is told of each.
    """

    def __init__(self, log_folder: Path, *, lost: Lost, max_restarts: int = 3, grace_s: float = 20.0) -> None:
        self._folder = log_folder
        self._lost = lost
        self._max_restarts = max_restarts
        self._grace_s = grace_s
        self._children: dict[str, _Child] = {}
        self._folder.mkdir(parents=True, exist_ok=True)

    def start(self, name: str, arguments: Sequence[str]) -> None:
        """Start `ding` with arguments; what it says goes to `{name}.txt`."""
        self._children[name] = _Child(self._launch(name, arguments), arguments)

    def _launch(self, name: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **os.environ}
        with open(self._folder / f"{name}.txt", "ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "ding_like.entry.cli", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )

    def check(self) -> list[str]:
        """Start anew what has died; return a line for each.

        Raises TrainingError, with what it said last, for one that keeps dying, or that ended with an error before it
        had done anything: it would again.
        """
        said = []
        for name, child in self._children.items():
            status = child.process.poll()
            if status is not None and status != 0:
                said.append(self._start_anew(name, child, status))
        return said

    def _start_anew(self, name: str, child: _Child, status: int) -> str:
        how = f"{name} {_describe(status)}"
        has_worked = self._lost(child.process.pid, how)
        child.fruitless = 0 if has_worked else child.fruitless + 1
        # A process that was killed may fare better next time; one that gave up by itself, with nothing done, will not.
        if child.fruitless > self._max_restarts or (status > 0 and not has_worked):
            raise TrainingError(f"{how}: {self._last_words(name)}")
        child.process = self._launch(name, child.arguments)
        return f"{how} and is started again"

    def __enter__(self) -> Children:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Let the workers end by themselves; after the grace, or at once after an error, end them."""
        deadline = time.monotonic() + (self._grace_s if error is None else 0.0)
        processes = [child.process for child in self._children.values()]
        for process in processes:
            self._wait(process, max(deadline - time.monotonic(), 0.0))
        for process in processes:
            self.end(process, grace_s=0.0)

    @classmethod
    def end(cls, process: subprocess.Popen[bytes], *, grace_s: float = 10.0) -> None:
        """Wait for a process to end by itself; then ask it to, then kill it."""
        cls._wait(process, grace_s)
        for end in (subprocess.Popen.terminate, subprocess.Popen.kill):
            if process.poll() is None:
                end(process)
                cls._wait(process, 5.0)

    @staticmethod
    def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> None:
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return

    def _last_words(self, name: str) -> str:
        text = (self._folder / f"{name}.txt").read_text(errors="replace")[-_TAIL:].strip()
        return text.splitlines()[-1] if text else "it said nothing"


def _describe(status: int) -> str:
    """Say how a process ended."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
