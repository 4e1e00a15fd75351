"""Pause processes of a run (SIGSTOP, SIGCONT) for about as long as a lease, as a closed lid or a busy machine does."""

from __future__ import annotations

import functools
import signal
import time

from tests.chaos.fault_course import course
from tests.chaos.live_run import LEASE_S, LiveRun
from tests.chaos.report import Report

ROLES = ("collector", "learner", "coordinator")
PARTS = (0.5, 0.95, 1.05, 1.5)  # of a lease


def run_pauses(
    *,
    policy: str,
    mode: str = "dist",
    roles: tuple[str, ...] = ROLES,
    parts: tuple[float, ...] = PARTS,
    rounds: int = 1,
) -> Report:
    """Pause a process of each role for each part of a lease, `rounds` times, and look at what becomes of the run."""
    name = f"pauses_{policy}" if mode == "dist" else f"pauses_{policy}_{mode}"
    report = Report(
        name, policy=policy, mode=mode, lease_s=LEASE_S, roles=list(roles), parts_of_a_lease=list(parts), rounds=rounds
    )
    plan = [(role, part) for _ in range(rounds) for role in roles for part in parts]
    with course(report, policy, mode=mode) as faults:
        run = faults.run
        assert run.start(), run.gone()
        for number, (role, part) in enumerate(plan):
            names = {"collector": f"collector{number % 2}", "coordinator": run.coordinator}
            pause = functools.partial(_pause, run, names.get(role, role), part * LEASE_S)
            faults.strike(f"{role} paused for {part:g} leases", pause)
    return report


def _pause(run: LiveRun, name: str, seconds: float) -> None:
    run.send(name, signal.SIGSTOP)
    time.sleep(seconds)
    run.send(name, signal.SIGCONT)
