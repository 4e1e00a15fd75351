"""Measure what the page of a run costs the run: CPU seconds of its threads, with and without an open page. Linux only.

python -m benchmarks.live_page --out docs/reports/live_page.json [--windows 4] [--seconds 20]

A serial run of DQN on CartPole is watched in windows, in turn without a reader and with one that asks once a second, as
an open page does. The system counts the CPU time of each thread: that of the main thread is the training's, all others
are the page's. Wall time would measure what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import requests

from benchmarks.provenance import ROOT, provenance

RUN = ("-m", "serial", "-e", "cartpole", "-p", "dqn", "-s", "0", "--env-step", "4000000", "env.stop_value=600")
_START_S = 300.0
_TICKS = os.sysconf("SC_CLK_TCK")


class Reader:
    """Reader of a page's state, with what it has already."""

    def __init__(self, url: str) -> None:
        self._base, token = url.split("/?token=")
        self._session, self._cursor = requests.Session(), ""
        self._session.headers["Authorization"] = f"Bearer {token}"

    def ask(self) -> dict[str, Any]:
        """Return the state."""
        found: dict[str, Any] = self._session.get(
            f"{self._base}/api/state", params={"cursor": self._cursor}, timeout=10
        ).json()
        self._cursor = found["cursor"]
        return found


def cpu_s(pid: int) -> tuple[float, float]:
    """Return the CPU seconds of a process's main thread, and of all others."""
    seconds = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        seconds[int(task.name)] = (int(fields[11]) + int(fields[12])) / _TICKS
    return seconds[pid], sum(value for thread, value in seconds.items() if thread != pid)


def window(pid: int, reader: Reader | None, seconds: float) -> dict[str, Any]:
    """Return what the threads of a process take in a while, with a reader that asks once a second or without."""
    before, began_s, requested = cpu_s(pid), time.monotonic(), 0
    while time.monotonic() - began_s < seconds:
        if reader is not None:
            reader.ask()
            requested += 1
        threading.Event().wait(1.0)
    main, others = (after - first for first, after in zip(before, cpu_s(pid), strict=True))
    wall_s = time.monotonic() - began_s
    found = {"requests": requested, "training_cpu_s": main, "page_cpu_s": others, "wall_s": wall_s}
    return {name: round(value, 3) for name, value in found.items()}


def measure(windows: int, seconds: float) -> list[dict[str, Any]]:
    """Return the windows of one run."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "output.txt")
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with open(output, "wb") as file:
            command = [sys.executable, "-m", "ding_like", *RUN, "--exp-name", "run", "--page"]
            run = subprocess.Popen(command, cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT)
        try:
            end_s = time.monotonic() + _START_S
            while (url := re.search(r"page: (\S+)", output.read_text())) is None:
                assert time.monotonic() < end_s, output.read_text()
                threading.Event().wait(0.1)
            reader = Reader(url[1])
            while reader.ask()["train_iter"] < 1_000:  # it learns
                assert time.monotonic() < end_s
                threading.Event().wait(0.5)
            found = [window(run.pid, reader if number % 2 else None, seconds) for number in range(2 * windows)]
        finally:
            run.kill()
            run.wait()
    return found


def share(windows: list[dict[str, Any]]) -> float:
    """Return the part of a core that the page takes: the training's own part depends on what else the machine does."""
    return round(statistics.median(each["page_cpu_s"] / each["wall_s"] for each in windows), 5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    source = provenance(allow_dirty=given.out is None)
    found = measure(given.windows, given.seconds)
    read, quiet = [[each for each in found if bool(each["requests"]) is is_read] for is_read in (True, False)]
    report = {
        "command": "ding " + " ".join(RUN) + " --page",
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()},
        **source.to_plain(),
        "page_share_of_a_core": {"read once a second": share(read), "not read": share(quiet)},
        "cpu_ms_a_request": round(1_000 * sum(e["page_cpu_s"] for e in read) / sum(e["requests"] for e in read), 2),
        "windows": found,
    }
    text = json.dumps(report, indent=1)
    print(text)
    if given.out is not None:
        given.out.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
