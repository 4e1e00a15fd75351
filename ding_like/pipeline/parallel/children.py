"""Supervisor of the workers of a run on this machine: starts them, restarts those that die, ends all."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ding_like.errors import TrainingError
from ding_like.utils.processes import describe_status, end_processes, forget_child, last_line, start_child

logger = logging.getLogger(__name__)

# Take the tasks of a dead process back, given (pid, why); return whether it had done anything.
Lost = Callable[[int, str], bool]


@dataclass
class _Child:
    process: subprocess.Popen[bytes]
    arguments: Sequence[str]
    fruitless: int = 0  # deaths in a row before anything was done


class Children:
    """Supervisor of the worker processes of this machine; use it with `with`, so that none is left behind.

    One that dies is started again, until it has died `max_restarts` + 1 times in a row without having done anything.
    `lost` is called for each. All have ended within `grace_s` of the block's end; they end, too, when this process is
    killed.
    """

    def __init__(self, log_folder: Path, *, lost: Lost, max_restarts: int = 3, grace_s: float = 20.0) -> None:
        self._folder = log_folder
        self._lost = lost
        self._max_restarts = max_restarts
        self._grace_s = grace_s
        self._children: dict[str, _Child] = {}
        self._folder.mkdir(parents=True, exist_ok=True)

    def start(self, name: str, arguments: Sequence[str]) -> None:
        """Start `ding` with arguments; its output goes to `{name}.txt`."""
        self._children[name] = _Child(self._launch(name, arguments), arguments)

    def _launch(self, name: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **os.environ}
        with open(self._folder / f"{name}.txt", "ab") as output:
            return start_child(
                [sys.executable, "-m", "ding_like.entry.cli", *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )

    def check(self) -> list[str]:
        """Restart what has died; return a line for each.

        Raises TrainingError, with its last line of output, for one that keeps dying, or that ended with an error before
        it had done anything: it would again.
        """
        said = []
        for name, child in self._children.items():
            status = child.process.poll()
            if status is not None and status != 0:
                said.append(self._start_anew(name, child, status))
        return said

    def _start_anew(self, name: str, child: _Child, status: int) -> str:
        how = f"{name} {describe_status(status)}"
        has_worked = self._lost(child.process.pid, how)
        child.fruitless = 0 if has_worked else child.fruitless + 1
        # A process that was killed may fare better next time; one that gave up by itself, with nothing done, will not.
        if child.fruitless > self._max_restarts or (status > 0 and not has_worked):
            raise TrainingError(f"{how}: {last_line(self._folder / f'{name}.txt') or 'it printed nothing'}")
        forget_child(child.process)
        child.process = self._launch(name, child.arguments)
        return f"{how} and is started again"

    def __enter__(self) -> Children:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Let the workers end by themselves for half of the grace, not at all after an error; then end them."""
        own_s = self._grace_s / 2 if error is None else 0.0
        end_processes([child.process for child in self._children.values()], own_s=own_s, asked_s=self._grace_s - own_s)
