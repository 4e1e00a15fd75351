"""Pause processes of a run (SIGSTOP, SIGCONT) for about as long as a lease, as a closed lid or a busy machine does."""

from __future__ import annotations

import functools
import signal
import time

from tests.chaos.fault_course import course
from tests.chaos.live_run import LEASE_S, LiveRun
from tests.chaos.report import Report

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
