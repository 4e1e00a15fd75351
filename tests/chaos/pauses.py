"""Pause processes of a run (SIGSTOP, SIGCONT) for about as long as a lease: a lid that is closed, a machine that swaps."""

from __future__ import annotations

import signal
import tempfile
import time
from pathlib import Path

from tests.chaos.live_run import DQN, LEASE_S, PPO, LiveRun
from tests.chaos.report import Report, spread
from tests.chaos.run_audit import Quiet, RunAudit

ROLES = ("collector", "learner", "coordinator")
FACTORS = (0.5, 0.95, 1.05, 1.5)  # of a lease
_SETTLE_S = 4.0  # after a recovery, in which the age of weights is looked at
_BACK_S = 30.0
# (warm-up steps, env steps, updates) of the configs.
PACES = {"dqn": (64, 64, 8), "ppo": None}
CONFIGS = {"dqn": DQN, "ppo": PPO}


def run_pauses(
    *,
    policy: str,
    mode: str = "dist",
    roles: tuple[str, ...] = ROLES,
    factors: tuple[float, ...] = FACTORS,
    rounds: int = 1,
    name: str = "",
) -> Report:
    """Pause a process of each role for each part of a lease, and look at what becomes of rows, updates and weights."""
    plan = [(role, factor) for _ in range(rounds) for role in roles for factor in factors]
    report = Report(
        name or f"pauses_{policy}", policy=policy, mode=mode, lease_s=LEASE_S, roles=list(roles),
        parts_of_a_lease=list(factors), rounds=rounds,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="ding-chaos-") as folder:
        with LiveRun(Path(folder), CONFIGS[policy], mode=mode) as run:
            assert run.start(), run.gone()
            quiet, back = _pause_by_plan(run, plan)
            gone = run.gone()
            report.figures["gone"] = gone
            report.at_most("processes gone that should live", len(gone), 0)
            report.at_least("runs that ended by themselves, with a result", int(run.end()), 1)
        report.figures["back_s"] = spread([each for _, _, each in back])
        report.at_least("pauses", len(back), len(plan))
        report.at_most("end of a pause to new work of all, worst s", max(each for _, _, each in back), _BACK_S)
        RunAudit(run, PACES[policy]).judge(report, quiet)
    return report


def _pause_by_plan(run: LiveRun, plan: list[tuple[str, float]]) -> tuple[list[Quiet], list[tuple[str, float, float]]]:
    """Return the quiet times, and (role, part of a lease, seconds to new work of all) of each pause."""
    quiet, back = [], []
    for number, (role, factor) in enumerate(plan):
        name = {"collector": f"collector{number % 2}", "coordinator": run.coordinator}.get(role, role)
        run.send(name, signal.SIGSTOP)
        time.sleep(factor * LEASE_S)
        run.send(name, signal.SIGCONT)
        moment = time.monotonic()
        back.append((role, factor, run.wait_for_work(since=moment, timeout_s=_BACK_S)))
        if back[-1][2] == float("inf"):
            break
        since = time.monotonic()
        time.sleep(_SETTLE_S)
        quiet.append(Quiet(since, time.monotonic()))
    return quiet, back
