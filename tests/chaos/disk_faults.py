"""Fill a run's disks for a moment, and lock its state file, as a large log or a backup does. Needs root."""

from __future__ import annotations

import functools
import os
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from tests.chaos.fault_course import course
from tests.chaos.live_run import LiveRun
from tests.chaos.report import Report
from tests.chaos.run_audit import saved_run

# (what, seconds): the disk of the coordinator's folder is full, that of segments and weights, or the state is locked.
FAULTS = (
    ("state disk full", 0.3), ("state disk full", 1.0), ("state disk full", 12.0), ("data disk full", 0.3),
    ("data disk full", 1.0), ("data disk full", 12.0), ("state locked", 5.0), ("state locked", 8.0),
)  # fmt: skip
_SIZE_MB = 48


@contextmanager
def small_disk() -> Iterator[Path]:
    """Mount a file system in memory that is soon full."""
    with tempfile.TemporaryDirectory(prefix="ding-disk-") as name:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_SIZE_MB}m", "none", name], check=True, timeout=20)
        try:
            yield Path(name)
        finally:
            subprocess.run(["umount", "-l", name], check=True, timeout=20)


def run_disk_faults(*, policy: str, mode: str = "dist", faults: tuple[tuple[str, float], ...] = FAULTS) -> Report:
    """Fill and free disks under a run, and look at what becomes of it; its files must all be there in the end."""
    name = f"disk_faults_{policy}" if mode == "dist" else f"disk_faults_{policy}_{mode}"
    report = Report(name, policy=policy, mode=mode, faults=[list(each) for each in faults])
    with small_disk() as state, small_disk() as data:
        system = {"path_data": str(data / "data"), "path_policy": str(data / "policy")}
        with course(report, policy, mode=mode, place=state / "run", system=system) as given:
            run = given.run
            given.start()
            for what, seconds in faults:
                inflict = {
                    "state disk full": functools.partial(_fill, state, seconds),
                    "data disk full": functools.partial(_fill, data, seconds),
                    "state locked": functools.partial(_lock, run, seconds),
                }[what]
                given.strike(f"{what} for {seconds:g} s", inflict)
            _look_at_what_is_left(run, report, data / "data", policy)
    return report


def _fill(disk: Path, seconds: float) -> None:
    """Take all room of a disk for some seconds; what is freed meanwhile is taken too."""
    deadline = time.monotonic() + seconds
    path = disk / "ballast"
    with open(path, "ab", buffering=0) as file:
        while True:
            for size in (1 << 20, 4096, 1):
                with suppress(OSError):
                    while file.write(bytes(size)) == size:
                        pass
            left = deadline - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(left, 0.05))
    os.unlink(path)


def _lock(run: LiveRun, seconds: float) -> None:
    """Hold the state file's lock for writing from another process's connection."""
    with closing(sqlite3.connect(run.place / "run/coordinator.sqlite", timeout=10.0, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        time.sleep(seconds)
        db.execute("ROLLBACK")


def _look_at_what_is_left(run: LiveRun, report: Report, data: Path, policy: str) -> None:
    """Check, before the run is asked to end, that it is not saved as over, and that its files are there."""
    state = run.place / "run/coordinator.sqlite"
    report.at_most("runs saved as over before they were", int(saved_run(state)["is_over"]), 0)
    if policy != "dqn":
        return  # on-policy, segments go when they were learned from
    with closing(sqlite3.connect(state, timeout=10.0)) as db:
        names = [key for (key,) in db.execute("SELECT json_extract(value, '$.name') FROM item WHERE kind = 'segment'")]
    missing = sum(not (data / f"{name}.safetensors").is_file() for name in names)
    report.at_most("files of segments in the index that are gone", missing, 0)
