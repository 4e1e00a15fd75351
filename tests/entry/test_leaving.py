"""A worker that is asked to leave has left in time, whatever it waits for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

WORKER = """
import signal, sys, threading, time
from ding_like.entry.leaving import Leaving
asked, kind = threading.Event(), sys.argv[1]
with Leaving(asked.set, grace_s=float(sys.argv[2])):
    try:
        print("ready", flush=True)
        if kind == "willing":
            asked.wait(30)
        elif kind == "deaf":
            threading.Event().wait(30)
        else:
            while True:
                try:
                    threading.Event().wait(30)
                except SystemExit:
                    continue
    finally:
        print("closed", flush=True)
"""


def leave(kind: str, *numbers: int, grace_s: float = 1.0, ignores: int | None = None) -> tuple[int, str, float]:
    """Return (exit status, what it printed, seconds) of a worker that is sent signals."""

    def before() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
        if ignores is not None:
            signal.signal(ignores, signal.SIG_IGN)

    with subprocess.Popen(
        [sys.executable, "-c", WORKER, kind, str(grace_s)], stdout=subprocess.PIPE, text=True, preexec_fn=before
    ) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        started = time.monotonic()
        for number in numbers:
            os.kill(worker.pid, number)
            time.sleep(0.1)
        said = worker.stdout.read().strip()
        return worker.wait(20), said, time.monotonic() - started


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_asks_to_leave(number: int) -> None:
    assert leave("willing", number, grace_s=20.0)[:2] == (0, "closed")


def test_the_second_signal_breaks_off() -> None:
    status, said, seconds = leave("deaf", signal.SIGTERM, signal.SIGTERM, grace_s=20.0)

    assert (status, said) == (143, "closed") and seconds < 5.0


def test_what_does_not_end_is_broken_off_and_closed_within_the_grace() -> None:
    status, said, seconds = leave("deaf", signal.SIGTERM, grace_s=1.0)

    assert (status, said) == (143, "closed") and 0.5 < seconds < 5.0


def test_what_cannot_be_broken_off_ends_after_the_grace() -> None:
    status, said, seconds = leave("stubborn", signal.SIGHUP, grace_s=1.0)

    assert (status, said) == (128 + signal.SIGHUP, "") and 0.9 < seconds < 6.0


def test_an_ignored_signal_stays_ignored() -> None:
    """As SIGHUP under nohup."""
    status, said, _ = leave("willing", signal.SIGHUP, signal.SIGTERM, grace_s=20.0, ignores=signal.SIGHUP)

    assert (status, said) == (0, "closed")
