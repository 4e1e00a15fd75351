"""Start the workers of a run on this machine, notice when one dies, and see that all are gone in the end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ding_like.errors import TrainingError

_TAIL = 2000  # characters of a worker's last words that are shown


class Children:
    """Hold worker processes; use it with `with`, so that none is left behind."""

    def __init__(self, log_folder: Path, *, grace_s: float = 20.0) -> None:
        self._folder = log_folder
        self._grace_s = grace_s
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._folder.mkdir(parents=True, exist_ok=True)

    def start(self, name: str, arguments: Sequence[str]) -> None:
        """Start `ding` with arguments; what it says goes to `{name}.txt`."""
        environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **os.environ}
        with open(self._folder / f"{name}.txt", "ab") as output:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "ding_like.entry.cli", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )

    def check(self) -> None:
        """Raise TrainingError if a worker has died, with what it said last."""
        for name, process in self._processes.items():
            status = process.poll()
            if status is not None and status != 0:
                raise TrainingError(f"{name} ended with status {status}: {self._last_words(name)}")

    def __enter__(self) -> Children:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Let the workers end by themselves; after the grace, or at once after an error, end them."""
        deadline = time.monotonic() + (self._grace_s if error is None else 0.0)
        for process in self._processes.values():
            self._wait(process, max(deadline - time.monotonic(), 0.0))
        for process in self._processes.values():
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
