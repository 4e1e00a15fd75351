"""A worker that is asked to leave has left in time, whatever it waits for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

WORKER = """
import signal, sys, threading
from ding_like.pipeline.process import graceful_shutdown
asked, kind = threading.Event(), sys.argv[1]
def ask():
    print("asked", flush=True)
    asked.set()
with graceful_shutdown(ask, grace_s=float(sys.argv[2])):
    try:
        print("ready", flush=True)
        if kind == "willing":
            asked.wait(300)
        elif kind == "deaf":
            threading.Event().wait(300)
        else:
            while True:
                try:
                    threading.Event().wait(300)
                except SystemExit:
                    continue
    finally:
        print("closed", flush=True)
"""


def leave(kind: str, *numbers: int, grace_s: float = 200.0) -> tuple[int, str]:
    """Return (exit status, what it printed last) of a worker that is sent signals, one after the other."""

    def before() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup

    with subprocess.Popen(
        [sys.executable, "-c", WORKER, kind, str(grace_s)], stdout=subprocess.PIPE, text=True, preexec_fn=before
    ) as worker:
        assert worker.stdout is not None
        for number in numbers:
            assert worker.stdout.readline() in ("ready\n", "asked\n")
            os.kill(worker.pid, number)
        said = worker.stdout.read()
        return worker.wait(60), said.removeprefix("asked\n").strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_asks_to_leave(number: int) -> None:
    assert leave("willing", number) == (0, "closed")


@pytest.mark.timeout(60)
def test_the_second_signal_breaks_off() -> None:
    assert leave("deaf", signal.SIGTERM, signal.SIGTERM) == (143, "closed")


@pytest.mark.timeout(60)
def test_what_does_not_end_is_broken_off_and_closed_within_the_grace() -> None:
    assert leave("deaf", signal.SIGTERM, grace_s=1.0) == (143, "closed")


@pytest.mark.timeout(60)
def test_what_cannot_be_broken_off_ends_after_the_grace() -> None:
    assert leave("stubborn", signal.SIGHUP, grace_s=1.0) == (128 + signal.SIGHUP, "")


def test_an_ignored_signal_stays_ignored() -> None:
    """As SIGHUP under nohup."""
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, "willing", "200"],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    ) as worker:
        assert worker.stdout is not None and worker.stdout.readline() == "ready\n"
        os.kill(worker.pid, signal.SIGHUP)
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.stdout.read().split() == ["asked", "closed"] and worker.wait(60) == 0
