"""Kill the workers of a run on one machine, again and again; count what is lost and how long coming back takes."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos.audit import audit, saved_run
from tests.chaos.ledger import FOLDER, read_ledgers
from tests.chaos.live_run import ROOT, workers_of
from tests.chaos.report import Report, spread

CONFIG = Path(__file__).with_name("chaos_config.py")

_LOOK_S = 0.05


class Kill(NamedTuple):
    at: float  # seconds since 1970
    role: str
    successor: int  # pid of the process that came in its place


def run_kills(*, minutes: float, collector_kills: int, learner_kills: int, seed: int) -> Report:
    """Train for some minutes while workers are killed at random moments of equal slices of that time."""
    report = Report(
        "worker_kills", minutes=minutes, collectors=4, collector_kills=collector_kills,
        learner_kills=learner_kills, seed=seed,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="ding-chaos-") as name:
        folder = Path(name)
        (folder / "ledger").mkdir()
        said = folder / "said.txt"
        with open(said, "wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "ding_like.entry.cli", "-m", "parallel", "-c", str(CONFIG), "--exp-name", "run"],
                cwd=folder,
                env={**os.environ, FOLDER: str(folder / "ledger"), "PYTHONPATH": str(ROOT)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_for_ledgers(folder / "ledger", collectors=4, timeout_s=120)
            kills = _kill_by_plan(process.pid, folder / "ledger", _plan(minutes, collector_kills, learner_kills, seed))
            time.sleep(15.0)  # for the last to come back
            assert process.poll() is None, said.read_text()[-2000:]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
        _judge(report, folder, kills)
    return report


def wait_for_ledgers(folder: Path, *, collectors: int, timeout_s: float) -> None:
    """Wait until so many collectors and the learner have written something down."""
    deadline = time.monotonic() + timeout_s
    while len(list(folder.glob("collector-*"))) < collectors or not list(folder.glob("learner-*")):
        assert time.monotonic() < deadline, "the run has not begun"
        time.sleep(_LOOK_S)


def _plan(minutes: float, collector_kills: int, learner_kills: int, seed: int) -> list[tuple[float, str]]:
    """Return (seconds from the start, role) of each kill, in order."""
    rng = random.Random(seed)
    plan = []
    for role, number in (("collector", collector_kills), ("learner", learner_kills)):
        slice_s = 60.0 * minutes / max(number, 1)
        plan += [(slice_s * (index + rng.uniform(0.1, 0.9)), role) for index in range(number)]
    return sorted(plan)


def _kill_by_plan(launcher: int, ledger: Path, plan: list[tuple[float, str]]) -> list[Kill]:
    """Kill, at each moment of the plan, one of those of a role that are at work."""
    rng = random.Random(0)
    started = time.monotonic()
    kills = []
    for after_s, role in plan:
        time.sleep(max(started + after_s - time.monotonic(), 0.0))
        before = workers_of(launcher, role)
        at_work = {line["pid"] for line in read_ledgers(ledger, role) if line["kind"] in ("ack", "batch")}
        victims = [pid for pid in before if pid in at_work]
        if not victims:
            continue  # the one of before is not back
        os.kill(rng.choice(victims), signal.SIGKILL)
        at = time.time()
        kills.append(Kill(at, role, _new_one(launcher, role, before)))
    return kills


def _new_one(launcher: int, role: str, before: list[int]) -> int:
    deadline = time.monotonic() + 10.0
    while time.monotonic() < deadline:
        found = [pid for pid in workers_of(launcher, role) if pid not in before]
        if found:
            return found[0]
        time.sleep(_LOOK_S)
    return -1


def _judge(report: Report, folder: Path, kills: list[Kill]) -> None:
    acks = [line for line in read_ledgers(folder / "ledger", "collector") if line["kind"] == "ack"]
    weights = [line for line in read_ledgers(folder / "ledger", "collector") if line["kind"] == "weights"]
    batches = [line for line in read_ledgers(folder / "ledger", "learner") if line["kind"] == "batch"]
    found = audit(folder / "run/coordinator.sqlite", folder / "data", acks)
    collector_s = spread(_back_after(kills, "collector", acks))
    learner_s = spread(_back_after(kills, "learner", batches))
    counted = {role: sum(kill.role == role for kill in kills) for role in ("collector", "learner")}
    report.figures = {
        "kills": counted,
        "segments": found.segments,
        "rows": found.rows,
        "acked_segments": len({line["name"] for line in acks}),
        "batches_looked_at": sum(max(each["batches"] for each in lines) for lines in _by_pid(batches).values()),
        "collector_back_s": collector_s,
        "learner_back_s": learner_s,
        "worst_lost_updates": _worst_lost_updates(batches),
    }
    for role, number in counted.items():
        report.at_least(f"{role} kills", number, report.setting[f"{role}_kills"])
    report.at_least("times that a collector came back", collector_s["count"], counted["collector"])
    report.at_least("times that the learner came back", learner_s["count"], counted["learner"])
    report.at_most("acknowledged rows lost", found.lost_rows, 0)
    report.at_most("rows doubled in the index", found.doubled_rows + found.overlapping, 0)
    report.at_most("rows torn or mixed, segments unreadable", found.torn_rows + found.unreadable, 0)
    report.at_most("rows doubled in a training batch", _worst(batches, "doubled"), 0)
    report.at_most("rows torn in a training batch", _worst(batches, "torn"), 0)
    report.at_most("times that a collector saw older weights", _steps_back(weights), 0)
    report.at_most("updates lost that were saved", _saved_and_lost(batches), 0)
    report.at_most("updates beyond what the env steps allow", _updates_too_many(folder / "run/coordinator.sqlite"), 0)
    report.at_most("collector: kill to new data, median s", collector_s["median"], 5)
    report.at_most("collector: kill to new data, worst s", collector_s["worst"], 10)
    report.at_most("learner: kill to next update, worst s", learner_s["worst"], 15)


def _updates_too_many(state: Path) -> int:
    """Return by how much the learner has gone beyond the ratio of the config: 8 updates for 64 env steps after 64."""
    run = saved_run(state)
    allowed = (run["book"]["env_step"] - 64) * 8 // 64
    return max(0, run["learn_iter"] - allowed)


def _by_pid(lines: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for line in lines:
        found.setdefault(line["pid"], []).append(line)
    return found


def _back_after(kills: list[Kill], role: str, lines: list[dict[str, Any]]) -> list[float]:
    """Return the seconds from each kill of a role to the first line of the process that came in its place."""
    first = {pid: own[0]["t"] for pid, own in _by_pid(lines).items()}
    return [first[kill.successor] - kill.at for kill in kills if kill.role == role and kill.successor in first]


def _steps_back(weights: list[dict[str, Any]]) -> int:
    """Return how often a collector loaded weights older than those it had."""
    return sum(
        later["version"] < earlier["version"]
        for lines in _by_pid(weights).values()
        for earlier, later in itertools.pairwise(lines)
    )


def _worst(batches: list[dict[str, Any]], name: str) -> float:
    return max((each[name] for each in batches), default=float("nan"))


def _pairs(batches: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return (last line of a learner, first line of the one after it)."""
    lives = sorted(_by_pid(batches).values(), key=lambda lines: lines[0]["t"])
    return [(before[-1], after[0]) for before, after in itertools.pairwise(lives)]


def _worst_lost_updates(batches: list[dict[str, Any]]) -> int:
    return max((before["iter"] - after["iter"] for before, after in _pairs(batches)), default=0)


def _saved_and_lost(batches: list[dict[str, Any]]) -> int:
    """Return how many updates that a learner had saved were not there for the next."""
    return sum(max(before["saved"] - after["iter"], 0) for before, after in _pairs(batches))
