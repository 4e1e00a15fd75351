"""Run functions of tests in processes that inherit nothing of this one but a pipe."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

# Forks of a process that has imported torch and nothing else start in milliseconds, not in seconds.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "ding_like.comm.tensors"])
_END_S = 10.0


class Fresh(NamedTuple):
    """Process that runs a function, and the pipe to it."""

    process: BaseProcess
    pipe: Connection

    def hear(self, timeout_s: float = 60.0) -> Any:
        """Return what the process says next. Raises EOFError if it has ended."""
        assert self.pipe.poll(timeout_s), "the process says nothing"
        return self.pipe.recv()

    def kill(self) -> None:
        """Kill the process, -9, and wait for its end."""
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.join()

    def stop(self) -> None:
        """Stop the process; return when all of its threads stand still, which is later than the signal was sent."""
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGSTOP)
        deadline = time.monotonic() + _END_S
        while not all(_state(path) == "T" for path in Path(f"/proc/{self.process.pid}/task").iterdir()):
            assert time.monotonic() < deadline, "the process does not stop"
            time.sleep(0.001)

    def go_on(self) -> None:
        """Let a stopped process go on."""
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGCONT)

    def join(self) -> None:
        """Wait for the process's end."""
        self.process.join(_END_S)
        assert not self.process.is_alive(), "the process does not end"


def _state(task: Path) -> str:
    # The name of the thread, in brackets, may hold anything.
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


def start_fresh(stack: ExitStack, function: Callable[..., None], *arguments: Any) -> Fresh:
    """Run `function(pipe, *arguments)` in a process; when the stack closes the pipe is closed, and the process ends."""
    ours, theirs = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=function, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()

    def end() -> None:
        ours.close()
        process.join(_END_S)
        if process.is_alive():
            process.kill()
            process.join(_END_S)
        process.close()

    stack.callback(end)
    return Fresh(process, ours)
