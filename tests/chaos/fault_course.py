"""Inflict faults on a run, one after another; wait after each for all to work again; then end the run and judge it."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.chaos.live_run import DQN, PPO, LiveRun
from tests.chaos.report import Report, spread
from tests.chaos.run_audit import Quiet, RunAudit

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
        self._back: list[tuple[str, float]] = []
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
        self._back.append((what, back_s))
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
        report, back = self._report, [seconds for _, seconds in self._back]
        report.figures["gone"] = gone
        for name in [each.partition(":")[0] for each in gone]:
            print(f"{name} has gone:", *self.run.last_words(name)[-_LINES:], sep="\n  ", file=sys.stderr)
        report.at_most("processes gone that should live", len(gone), 0)
        report.at_least("runs that ended by themselves, with a result", int(self.run.end()), 1)
        if self._planned:
            report.figures["back_s"] = spread(back)
            report.figures["not_back_after"] = [what for what, seconds in self._back if seconds == float("inf")]
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
