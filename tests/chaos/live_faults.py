"""Inflict faults on a run, one after another; wait after each for all to work again; then end the run and judge it.

Processes are paused, their clocks jump, answers are lost, coordinator and learner are killed, disks are full.
"""

from __future__ import annotations

import functools
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.chaos.audit import Quiet, RunAudit, saved_run
from tests.chaos.ledger import read_ledgers
from tests.chaos.live_run import DQN, LEASE_S, PPO, LiveRun, host_of
from tests.chaos.proxy import HeldAnswer, LostAnswers
from tests.chaos.report import Report, spread
from tests.entry.test_namespaces import Net

_SETTLE_S = 3.5  # after a recovery, in which the age of weights is looked at
_BACK_S = 30.0
_START_S = 90.0
_LINES = 25  # of what a process said that has gone
# (warm-up steps, env steps, updates) of the configs; None: on-policy.
_PACES = {"dqn": (64, 64, 8), "ppo": None}
_CONFIGS = {"dqn": DQN, "ppo": PPO}


class FaultCourse:
    """Running run, and the faults that were injected into it."""

    def __init__(self, run: LiveRun, report: Report) -> None:
        self.run = run
        self._report = report
        self.back: list[tuple[str, float]] = []  # (fault, seconds until each worker did a piece of work again)
        self._quiet: list[Quiet] = []
        self._planned = 0
        self._has_ended = self._is_broken = False

    def start(self, begin: Callable[[], object] | None = None) -> None:
        """Start the run, or have `begin` start it, and wait for each worker to do a piece of work."""
        (begin or self.run.start)()
        started_s = self.run.wait_for_start()
        self._is_broken = started_s == float("inf")
        self._report.at_most("start to first work of all, s", started_s, _START_S)

    def strike(self, what: str, inflict: Callable[[], object], *, settle_s: float = _SETTLE_S) -> None:
        """Have a fault happen, and wait for each worker to do a piece of work after its end.

        Nothing is done to a run that did not come back from a fault before.
        """
        self._planned += 1
        if self._is_broken:
            return
        inflict()
        back_s = self.run.wait_for_work(since=time.monotonic(), timeout_s=_BACK_S)
        self.back.append((what, back_s))
        self._is_broken = back_s == float("inf")
        if not self._is_broken:
            self.rest(settle_s)

    def rest(self, seconds: float) -> None:
        """Let the run be for some seconds."""
        since = time.monotonic()
        time.sleep(seconds)
        self._quiet.append(Quiet(since, time.monotonic()))

    def end(self) -> None:
        """Let the run come to its end, and note who had gone before that; a second call does nothing."""
        if self._has_ended:
            return
        self._has_ended = True
        gone = self.run.gone()
        report, back = self._report, [seconds for _, seconds in self.back]
        report.figures["gone"] = gone
        for name in [each.partition(":")[0] for each in gone]:
            print(f"{name} has gone:", *self.run.last_words(name)[-_LINES:], sep="\n  ", file=sys.stderr)
        report.at_most("processes gone that should live", len(gone), 0)
        report.at_least("runs that ended by themselves, with a result", int(self.run.end()), 1)
        if self._planned:
            report.figures["all_back_s"] = spread(back)
            report.figures["not_back_after"] = [what for what, seconds in self.back if seconds == float("inf")]
            report.at_least("faults inflicted", len(back), self._planned)
            report.at_most("end of a fault to new work of all, worst s", max(back, default=float("inf")), _BACK_S)

    def judge(self, policy: str, *, lost_lives: int = 0) -> None:
        """Hold the rows, updates and weights of the run, which has ended, to their bars."""
        RunAudit(self.run, _PACES[policy]).judge(self._report, self._quiet, lost_lives=lost_lives)


@contextmanager
def course(report: Report, policy: str, *, lost_lives: int = 0, **run: Any) -> Iterator[FaultCourse]:
    """Start a run; when the block is done end and judge it. `run` are arguments of LiveRun."""
    with tempfile.TemporaryDirectory(prefix="ding-chaos-") as folder:
        with LiveRun(Path(folder), _CONFIGS[policy], **run) as live:
            made = FaultCourse(live, report)
            yield made
            made.end()
        made.judge(policy, lost_lives=lost_lives)


def run_kills(*, collector_kills: int, learner_kills: int, seed: int) -> Report:
    """Kill workers of a run on one machine at random moments."""
    report = Report(
        "worker_kills", policy="dqn", mode="parallel", collectors=4, collector_kills=collector_kills,
        learner_kills=learner_kills, seed=seed,
    )  # fmt: skip
    rng = random.Random(seed)
    plan = ["collector"] * collector_kills + ["learner"] * learner_kills
    rng.shuffle(plan)
    with course(report, "dqn", mode="parallel", collectors=4) as faults:
        faults.start()
        for role in plan:
            name = role if role == "learner" else f"collector{rng.randrange(4)}"
            faults.strike(f"{role} killed", functools.partial(_kill, faults.run, name), settle_s=rng.uniform(0.0, 3.0))
    for role, worst_s in (("collector", 10), ("learner", 15)):
        took = [seconds for what, seconds in faults.back if what.startswith(role)]
        report.figures[f"{role}_back_s"] = spread(took)
        report.at_most(f"{role}: kill to new work of all, worst s", max(took, default=0.0), worst_s)
    return report


def _kill(run: LiveRun, name: str) -> None:
    """Kill a child of the launcher, and wait until it is gone."""
    pid = run.pids()[name]
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _BACK_S
    while pid in run.pids().values() and time.monotonic() < deadline:
        time.sleep(0.01)


Cuts = tuple[tuple[str, float], ...]  # (process, seconds)


def run_partitions(*, cuts: Cuts) -> Report:
    """Cut hosts, which are network namespaces, off the net, one after another. Needs root."""
    report = Report("partitions", policy="dqn", cuts=[list(cut) for cut in cuts])
    streamed = {"path_data": None, "path_policy": None}
    with Net() as net, course(report, "dqn", net=net, system=streamed) as faults:
        faults.start()
        for name, seconds in cuts:
            cut = functools.partial(net.cut, host_of(name), seconds)
            faults.strike(f"{name} cut off for {seconds:g} s", cut)
        faults.end()
        acks = [line for line in read_ledgers(faults.run.ledger, "collector") if line["kind"] == "ack"]
    for what, took in faults.back:
        report.at_most(f"{what}: healing to next work, s", took, 5)
    report.at_most("attempts with two owners", _two_owners(acks), 0)
    report.at_most("acknowledgements to an owner of before", _late_acks(acks), 0)
    return report


def _two_owners(acks: list[dict[str, Any]]) -> int:
    """Return how many attempts at a task more than one worker was acknowledged for."""
    owners: dict[tuple[str, int], set[str]] = {}
    for ack in acks:
        owners.setdefault((ack["task"], ack["attempt"]), set()).add(ack["worker"])
    return sum(len(each) > 1 for each in owners.values())


def _late_acks(acks: list[dict[str, Any]]) -> int:
    """Return how many acknowledgements came for an attempt after one for a later attempt."""
    newest: dict[str, int] = {}
    late = 0
    for ack in acks:
        late += ack["attempt"] < newest.get(ack["task"], 0)
        newest[ack["task"]] = max(newest.get(ack["task"], 0), ack["attempt"])
    return late


ROLES = ("collector", "learner", "coordinator")
PARTS = (0.5, 0.95, 1.05, 1.5, 2.4)  # of a lease; beyond two, a request that waits is given up
_BETWEEN_S = 0.3  # two pauses in a row


def run_pauses(
    *,
    policy: str,
    mode: str = "dist",
    roles: tuple[str, ...] = ROLES,
    parts: tuple[float, ...] = PARTS,
    in_a_row: int = 1,
) -> Report:
    """Pause a process of each role for each part of a lease, and look at what becomes of the run.

    In the end each role is paused `in_a_row` times, a little longer than a lease, with no time to recover between.
    """
    name = f"pauses_{policy}" if mode == "dist" else f"pauses_{policy}_{mode}"
    report = Report(
        name, policy=policy, mode=mode, lease_s=LEASE_S, roles=list(roles), parts_of_a_lease=list(parts),
        in_a_row=in_a_row,
    )  # fmt: skip
    plan = [(role, part, 1) for role in roles for part in parts]
    plan += [(role, 1.05, in_a_row) for role in roles if in_a_row > 1]
    with course(report, policy, mode=mode) as faults:
        run = faults.run
        faults.start()
        for number, (role, part, times) in enumerate(plan):
            names = {"collector": f"collector{number % 2}", "coordinator": run.coordinator}
            pause = functools.partial(_pause, run, names.get(role, role), part * LEASE_S, times)
            faults.strike(f"{role} paused for {part:g} leases, {times} times", pause)
    return report


def _pause(run: LiveRun, name: str, seconds: float, times: int) -> None:
    for index in range(times):
        time.sleep(_BETWEEN_S if index else 0.0)
        run.send(name, signal.SIGSTOP)
        time.sleep(seconds)
        run.send(name, signal.SIGCONT)


NAMES = ("collector0", "learner", "coordinator")
JUMPS_S = (600.0, -600.0, 0.0)  # where a clock is after each jump, from the true time


def run_clock_jumps(*, policy: str, names: tuple[str, ...] = NAMES, jumps_s: tuple[float, ...] = JUMPS_S) -> Report:
    """Move the clock of one process after another, and look at what becomes of the run."""
    report = Report(f"clock_jumps_{policy}", policy=policy, names=list(names), jumps_s=list(jumps_s))
    with course(report, policy) as faults:
        faults.start()
        for name in names:
            for offset_s in jumps_s:
                jump = functools.partial(faults.run.set_clock, name, offset_s)
                faults.strike(f"clock of {name} at {offset_s:+g} s", jump)
    return report


# Requests of a run whose files travel through the coordinator. No worker sends 'fail'.
ROUTES = (
    "POST workers", "POST workers/*/heartbeat", "DELETE workers/*", "POST tasks/claim", "POST tasks/*/data",
    "POST tasks/*/info", "POST tasks/*/finish", "POST buffers/*/sample", "POST buffers/*/update", "POST policies/*",
    "PUT segments/*", "PUT weights/*", "GET weights/*",
)  # fmt: skip


def run_lost_answers(*, policy: str, seconds: float, chance: float, seed: int) -> Report:
    """Lose the first answer of each route, and others by chance, from the first request of a run to the last."""
    report = Report(f"lost_answers_{policy}", policy=policy, seconds=seconds, chance=chance, seed=seed)
    streamed = {"path_data": None, "path_policy": None}
    with course(report, policy, system=streamed) as faults:
        run = faults.run
        run.start_coordinator()
        with LostAnswers(run.port, chance, seed=seed) as proxy:
            run.url = f"http://127.0.0.1:{proxy.port}"
            faults.start(run.start_workers)
            faults.rest(seconds)
            faults.end()
        report.figures["lost"] = dict(sorted(proxy.lost.items()))
        for route in ROUTES:
            report.at_least(f"answers lost of {route}", proxy.lost[route], 1)
    return report


# That a run sends again and again; for 'POST tasks/claim' a collector is killed first.
KILL_ROUTES = (
    "POST buffers/*/sample", "POST policies/*", "POST tasks/*/data", "POST tasks/claim", "POST buffers/*/update",
    "POST tasks/*/info", "POST workers/*/heartbeat",
)  # fmt: skip
_TAKEN_S = 20.0


def run_restarts(
    *, policy: str, routes: tuple[str, ...] = KILL_ROUTES, learner_kills: int, seed: int, rounds: int = 1
) -> Report:
    """Kill, start again, and look whether updates granted, received and learned come out equal."""
    report = Report(
        f"restarts_{policy}", policy=policy, routes=list(routes), learner_kills=learner_kills, rounds=rounds
    )
    rng = random.Random(seed)
    plan = [*routes] * rounds + ["learner"] * learner_kills
    rng.shuffle(plan)
    with course(report, policy, lost_lives=learner_kills) as faults:
        run = faults.run
        run.start_coordinator()
        with HeldAnswer(run.port) as proxy:
            run.url = f"http://127.0.0.1:{proxy.port}"
            faults.start(run.start_workers)
            for what in plan:
                if what == "learner":
                    inflict = functools.partial(_kill_learner, run, rng.uniform(0.0, 1.0))
                else:
                    inflict = functools.partial(_kill_between, run, proxy, what, report)
                faults.strike(f"{what} killed", inflict, settle_s=3.0)
            faults.end()
    return report


def _kill_learner(run: LiveRun, after_s: float) -> None:
    time.sleep(after_s)
    run.kill("learner")
    run.start_worker("learner")


def _kill_between(run: LiveRun, proxy: HeldAnswer, route: str, report: Report) -> None:
    """Kill the coordinator when it has taken a message of a route, before the worker has the answer."""
    proxy.hold(route)
    if route == "POST tasks/claim":
        run.kill("collector0")
        run.start_worker("collector0")
    is_taken = proxy.wait_until_taken(_TAKEN_S)
    run.kill("coordinator")
    proxy.lose()
    report.at_least(f"coordinator killed after it took {route}", int(is_taken), 1)
    run.start_coordinator()


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
