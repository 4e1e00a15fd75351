"""Have the wall clocks of a signed run's processes jump by ten minutes, to and fro."""

from __future__ import annotations

import functools

from tests.chaos.fault_course import course
from tests.chaos.report import Report

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
