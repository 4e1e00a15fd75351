"""Kill the head (GCS) of a run on Ray again and again, and go on each time with `ding --resume EXP`.

python -m tests.pipeline.ray.gcs_kills --kills 10 --out docs/reports/ray_gcs_kills.json

Each time the run must end by itself within a minute, with a point saved that is valid and newer than the one before,
with the line that says how to go on, and with nothing left: no process, and no folder of the cluster. At last it goes
on to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.provenance import provenance
from ding_like.comm.ray.leftovers import find_processes
from ding_like.errors import CheckpointError
from ding_like.pipeline.record import resume_store

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "dizoo/classic_control/cartpole/config/cartpole_dqn_config.py"
END_S = 60.0  # from the kill: later Ray ends the process, without a word
_START_S = 180.0  # for a run to have trained for a while; machines may be busy
_FINISH_S = 300.0
_LOOK_S = 0.02
_LAST_STEPS = 3_000  # env steps of the run that is not killed
_RESUME_LINE = "go on with  ding --resume run"
_ENV_STEP = re.compile(r"at env step ([\d,]+), iteration ([\d,]+): saved")


class Kill(NamedTuple):
    """Record of what came of one kill."""

    at_s: float  # after the head was there
    end_s: float  # from the kill until the run had ended; NaN: it did not by itself
    status: int | None  # that it ended with
    has_line: bool  # it said how to go on
    env_step: int  # of the newest valid point, -1 without one
    left: int  # processes, and folders of the cluster, after it had ended


class Run:
    """Record of a `ding` process of a run on Ray."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._said = folder / "said.txt"
        with open(self._said, "wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ding_like.entry.cli", *arguments],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self) -> str:
        return self._said.read_text(errors="replace")

    def head(self) -> int | None:
        """Return the process id of the head of this run's cluster, None while there is none."""
        for pid in _children(self.process.pid):
            with suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == "gcs_server":
                    return pid
        return None

    def wait_for(self, seen: Callable[[], Any], timeout_s: float) -> Any:
        """Return what `seen` returns once it is true. Raises AssertionError if the run, or the time, ends before."""
        deadline_s = time.monotonic() + timeout_s
        while not (found := seen()):
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                raise AssertionError(f"status {self.process.poll()}, said:\n{self.said[-3000:]}")
            time.sleep(_LOOK_S)
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.wait(20.0)


def kill_heads(folder: Path, *, kills: int, seed: int, overrides: Sequence[str] = ()) -> tuple[list[Kill], bool]:
    """Run, kill the head, resume, and so on; return what came of each, and whether the last run came to its end."""
    rng = random.Random(seed)
    first = ("-m", "ray", "-c", str(CONFIG), "-s", str(seed), "--exp-name", "run", "env.stop_value=1e9", *overrides)
    found: list[Kill] = []
    for number in range(kills):
        run = Run(folder, *(("--resume", "run") if number else first))
        try:
            found.append(_kill(run, folder, after_s=rng.uniform(0.0, 5.0)))
        finally:
            run.close()
        print(found[-1], flush=True)
        if found[-1].env_step < 0:
            print(run.said[-3000:], file=sys.stderr)
            return found, False
    last = Run(folder, "--resume", "run", "--env-step", str(found[-1].env_step + _LAST_STEPS))
    try:
        is_done = last.process.wait(_FINISH_S) == 0
    except subprocess.TimeoutExpired:
        is_done = False
    finally:
        last.close()
    if not is_done:
        print(last.said[-3000:], file=sys.stderr)
    return found, is_done and (folder / "run/result.json").is_file()


def _kill(run: Run, folder: Path, *, after_s: float) -> Kill:
    head = int(run.wait_for(run.head, _START_S))
    began_s = time.monotonic()
    cluster = _folder_of(head)
    metrics = folder / "run/metrics.jsonl"
    before = metrics.stat().st_size if metrics.exists() else 0
    # Rows of metrics come with turns of the run.
    run.wait_for(lambda: metrics.exists() and metrics.stat().st_size > before, _START_S)
    deadline_s = time.monotonic() + after_s
    run.wait_for(lambda: time.monotonic() > deadline_s, after_s + 10.0)
    os.kill(head, signal.SIGKILL)
    killed_s = time.monotonic()
    try:
        status: int | None = run.process.wait(2 * END_S)
        end_s = time.monotonic() - killed_s
    except subprocess.TimeoutExpired:
        status, end_s = None, float("nan")
    said = run.said
    if _RESUME_LINE not in said:
        print(said[-3000:], file=sys.stderr)
    try:
        env_step = resume_store(str(folder / "run")).load_newest().step
    except CheckpointError as error:
        print(error, file=sys.stderr)
        env_step = -1
    told = _ENV_STEP.search(said)
    if told is not None and int(told[1].replace(",", "")) != env_step:
        print(
            f"the run says that it saved env step {told[1]}, and the newest valid point is {env_step}", file=sys.stderr
        )
        env_step = -1
    left = len(find_processes(cluster)) + int(os.path.exists(cluster))
    return Kill(killed_s - began_s, end_s, status, _RESUME_LINE in said, env_step, left)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path("/proc").glob(f"{pid}/task/*/children"):
        with suppress(OSError):
            found += [int(each) for each in path.read_text().split()]
    return found


def _folder_of(head: int) -> str:
    """Return the folder of the cluster that a process is of."""
    arguments = Path(f"/proc/{head}/cmdline").read_bytes().decode().split("\0")
    session = next(each for each in arguments if each.startswith("--session-dir=")).removeprefix("--session-dir=")
    return str(Path(session).parents[1])


def _is_clean(kill: Kill) -> bool:
    """Tell whether the run ended as one that says why does: with status 1, by no signal, and nothing is left."""
    return kill.status == 1 and kill.has_line and kill.left == 0


def summary(found: Sequence[Kill], *, kills: int, goes_on: bool) -> list[dict[str, Any]]:
    """Return rows for the page: times with the bar they are held to, and counts."""
    ends = sorted(each.end_s for each in found)
    points = sum(before < now for before, now in pairwise([-1, *(each.env_step for each in found)]))
    clean = sum(map(_is_clean, found))
    return [
        {
            "what": "the head (GCS) was killed: the run has saved, said how to go on, and ended",
            "n": kills,
            "p50_ms": round(1000 * ends[len(ends) // 2], 1),
            "worst_ms": round(1000 * ends[-1], 1),
            "bar_ms": 1000 * END_S,
        },
        {
            "what": "the same kills: valid points, each newer than the one before; clean ends; `ding --resume EXP`",
            "n": kills,
            "count": f"{points} points, {clean} clean ends, {'done' if goes_on else 'not done'}",
        },
    ]


def is_ok(found: Sequence[Kill], *, kills: int, goes_on: bool) -> bool:
    """Tell whether every kill had the end that is promised."""
    steps = [-1, *(each.env_step for each in found)]
    return (
        goes_on
        and len(found) == kills
        and all(each.end_s < END_S and _is_clean(each) for each in found)
        and all(before < now for before, now in pairwise(steps))
    )


def main() -> int:
    """Kill so many heads; the exit status is 1 unless all went as promised."""
    parser = argparse.ArgumentParser(prog="python -m tests.pipeline.ray.gcs_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="a file to write the figures to")
    parser.add_argument("--allow-dirty", action="store_true", help="also where the code is not what is committed")
    arguments = parser.parse_args()
    code = provenance(allow_dirty=arguments.allow_dirty or arguments.out is None)
    with tempfile.TemporaryDirectory(prefix="ding-gcs-") as place:
        found, goes_on = kill_heads(Path(place), kills=arguments.kills, seed=arguments.seed)
    rows = summary(found, kills=arguments.kills, goes_on=goes_on)
    print(json.dumps(rows, indent=1))
    if arguments.out:
        setting = {"kills": arguments.kills, "seed": arguments.seed, "config": CONFIG.name}
        kills = [each._asdict() for each in found]
        record = {**code.to_plain(), "setting": setting, "summary": rows, "kills": kills, "goes_on": goes_on}
        Path(arguments.out).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0 if is_ok(found, kills=arguments.kills, goes_on=goes_on) else 1


if __name__ == "__main__":
    sys.exit(main())
