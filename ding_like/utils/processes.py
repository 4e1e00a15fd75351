"""Say how child processes ended, and see that they do."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from ding_like.utils.parent import forget_child

_KILL_S = 5.0  # for a process that was killed to be gone


def describe_status(status: int) -> str:
    """Say how a process ended, from Popen's return code."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


def end_processes(processes: Sequence[subprocess.Popen[bytes]], *, own_s: float = 10.0, asked_s: float = 10.0) -> None:
    """Wait `own_s` for children to end by themselves, ask all to, wait `asked_s`, and kill those that are left.

    One that was stopped (SIGSTOP) is let go on, so that it hears it.
    """
    _wait(processes, own_s)
    for end, wait_s in ((subprocess.Popen.terminate, asked_s), (subprocess.Popen.kill, _KILL_S)):
        for process in processes:
            if process.poll() is None:
                end(process)
                process.send_signal(signal.SIGCONT)
        _wait(processes, wait_s)
    for process in processes:
        forget_child(process)


def wait_for_end(pid: int, *, timeout_s: float) -> None:
    """Wait until a process of this machine, somebody else's child perhaps, has ended, for at most `timeout_s`.

    Where the system cannot tell (only Linux can) return at once.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):  # it has ended already, or this is no Linux
        return
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(max(timeout_s, 0.0) * 1000)
    finally:
        os.close(descriptor)


def _wait(processes: Sequence[subprocess.Popen[bytes]], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    for process in processes:
        try:
            process.wait(max(deadline - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            continue


def runs_with(pid: int, word: str) -> bool:
    """Tell whether a process of this machine lives and has a word in its command line; False without /proc."""
    try:
        return word.encode() in Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:
        return False


def num_cores() -> int:
    """Return how many CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
