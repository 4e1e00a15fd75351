"""Run a scenario's driver as a child, and find the processes of its run by a mark in their environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.chaos.kills import ROOT
from tests.chaos.report import Report

MARK = "DING_CHAOS_RUN"


def run_child(module: str, folder: Path, *, timeout_s: float) -> int:
    """Run a module on a folder, which is the mark; return its exit status, -1 if it did not end in time."""
    with open(folder / "said.txt", "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(folder)],
            cwd=folder,
            env={**os.environ, MARK: str(folder), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return -1
        finally:
            process.kill()
            process.wait(20.0)


def end_what_is_left(folder: Path) -> list[int]:
    """Kill the processes of a run that are there ten seconds after its end, and return their ids."""
    deadline = time.monotonic() + 10.0
    while (left := _left(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return left


def has_ended_well(report: Report, folder: Path, code: int) -> bool:
    """Note whether a child ended by itself, and left nothing behind."""
    left = end_what_is_left(folder)
    has_ended = code == 0 and (folder / "run/result.json").is_file() and (folder / "found.json").is_file()
    report.at_least("runs that ended by themselves, with a result", int(has_ended), 1)
    report.at_most("processes left behind", len(left), 0)
    if not has_ended:
        print((folder / "said.txt").read_text(errors="replace")[-6000:], file=sys.stderr)
    return has_ended


def _left(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and f"{MARK}={folder}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]
