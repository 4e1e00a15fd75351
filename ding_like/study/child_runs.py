"""Run `ding` commands as child processes, a few at a time, each with its output in a file of its own."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ding_like.utils.parent import start_child
from ding_like.utils.processes import describe_status, end_processes

_WATCH_S = 5.0  # for the thread of a process that has ended to end

# Arguments of a command, or what makes them when it is started.
Arguments = Sequence[str] | Callable[[], Sequence[str]]


class Ended(NamedTuple):
    """Say how a child ended."""

    name: str
    status: int  # Popen's: below 0 the signal
    duration_s: float

    @property
    def how(self) -> str:
        """Return how it ended in words."""
        return describe_status(self.status)

    @property
    def was_asked(self) -> bool:
        """Tell whether it left because it was asked to, by SIGTERM, SIGINT or SIGHUP."""
        asked = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        return self.status in {sign * number + base for number in asked for sign, base in ((-1, 0), (1, 128))}


@dataclass
class _Child:
    name: str
    arguments: Arguments
    log: Path
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    watch: threading.Thread | None = field(default=None, repr=False)
    is_asked: bool = False  # to leave


class ChildRuns:
    """Run `ding ARGUMENTS` in child processes, at most `limit` at a time; use it with `with`.

    Each computes in one thread unless OMP_NUM_THREADS says otherwise, finds modules where this process does, is in a
    session of its own, so that Ctrl-C is for the parent, and saves a point and leaves when it is asked to stop or when
    this process has ended, in whatever way. At the block's end all are asked to leave, and killed `grace_s` later.
    """

    def __init__(self, limit: int, *, grace_s: float = 60.0) -> None:
        self._limit = limit
        self._grace_s = grace_s
        self._waiting: list[_Child] = []
        self._started: dict[str, _Child] = {}
        self._changed = threading.Condition()
        self._ended: list[Ended] = []  # that `wait` has not returned yet

    def start(self, name: str, arguments: Arguments, *, log: Path) -> None:
        """Have a command run as soon as there is room; what it says goes to the end of the file `log`."""
        self._waiting.append(_Child(name, arguments, log))
        self._fill()

    @property
    def running(self) -> list[str]:
        """Return the names of those at work."""
        return [name for name, child in self._started.items() if child.process and child.process.poll() is None]

    @property
    def waiting(self) -> list[str]:
        """Return the names of those that are not started yet."""
        return [child.name for child in self._waiting]

    @property
    def is_over(self) -> bool:
        """Tell whether all have ended, and `wait` has returned them."""
        return not self._waiting and not self._started

    def pid(self, name: str) -> int:
        """Return the process id of one at work."""
        process = self._started[name].process
        assert process is not None, "it has been started"
        return process.pid

    def wait(self, timeout_s: float) -> list[Ended]:
        """Return those that have ended since, waiting at most `timeout_s` for one; start others in their place."""
        with self._changed:
            if not self._ended:
                self._changed.wait(timeout_s)
            ended, self._ended = self._ended, []
        for each in ended:
            self._release(self._started.pop(each.name))
        self._fill()
        return ended

    def stop(self, name: str) -> None:
        """Ask one to save a point and leave, or forget it if it has not been started."""
        self._waiting = [child for child in self._waiting if child.name != name]
        child = self._started.get(name)
        if child is not None and child.process is not None and child.process.poll() is None and not child.is_asked:
            child.is_asked = True  # once: a second signal would end it before it has saved its point
            child.process.terminate()
            child.process.send_signal(signal.SIGCONT)  # one that was stopped hears it too

    def stop_all(self) -> None:
        """Ask all to leave, and start no more."""
        self._waiting = []
        for name in list(self._started):
            self.stop(name)

    def close(self) -> None:
        """End all that is left; may be called again."""
        self.stop_all()
        processes = [child.process for child in self._started.values() if child.process is not None]
        end_processes(processes, own_s=self._grace_s, asked_s=0.0)
        for child in self._started.values():
            self._release(child)
        self._started = {}

    def __enter__(self) -> ChildRuns:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    def _fill(self) -> None:
        while self._waiting and len(self._started) < self._limit:
            self._launch(self._waiting.pop(0))

    def _launch(self, child: _Child) -> None:
        environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **os.environ}
        child.log.parent.mkdir(parents=True, exist_ok=True)
        arguments = child.arguments() if callable(child.arguments) else child.arguments
        said = json.dumps({"path": sys.path, "arguments": list(arguments)})
        with open(child.log, "ab") as output:
            child.process = start_child(
                [sys.executable, "-m", "ding_like.entry.child_run", said],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        child.started_s = time.monotonic()
        child.watch = threading.Thread(target=self._watch, args=(child, child.process), daemon=True)
        self._started[child.name] = child
        child.watch.start()

    def _watch(self, child: _Child, process: subprocess.Popen[bytes]) -> None:
        status = process.wait()
        with self._changed:
            self._ended.append(Ended(child.name, status, time.monotonic() - child.started_s))
            self._changed.notify_all()

    @staticmethod
    def _release(child: _Child) -> None:
        if child.process is not None:
            end_processes([child.process], own_s=0.0, asked_s=0.0)
        if child.watch is not None:
            child.watch.join(_WATCH_S)


def command_line(arguments: Sequence[str]) -> str:
    """Return a command as it is typed: `ding` and its arguments, quoted where the shell needs it."""
    return shlex.join(["ding", *arguments])
