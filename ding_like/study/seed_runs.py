"""Seeds of an experiment: each is started or resumed, all are shown, and how each ended is reported."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ding_like.errors import ConfigError
from ding_like.pipeline.process import StopSignal
from ding_like.report.experiment import SeedsPlan, seed_folder, seed_log
from ding_like.report.progress import Limits
from ding_like.report.run_console import log_terminal
from ding_like.report.runs import METRICS_FILE, last_lines, read_result
from ding_like.report.scores import measure
from ding_like.study.child_runs import ChildRuns, Ended, has_point, set_aside, text_hash, wait_until_free
from ding_like.study.seeds_view import SeedsStatus, SeedStatus, SeedsView

logger = logging.getLogger(__name__)

_LOOK_S = 0.5  # between two looks at what the seeds have written
_LAST_LINES = 5  # of a failed seed's output that are shown
_SERIAL = ("serial", "serial_onpolicy")


@dataclass(frozen=True)
class Failure:
    """Seed that failed, and how."""

    seed: int
    how: str
    log: Path
    lines: tuple[str, ...]  # its last words


class SeedRuns:
    """Seeds of a plan that have not ended, run `jobs` at a time.

    One that fails leaves the others alone. The first SIGINT or SIGTERM has all of them save a point and leave.
    """

    def __init__(
        self,
        folder: Path,
        plan: SeedsPlan,
        *,
        jobs: int,
        reopens: bool = False,  # whether those that have ended go on too, to other limits of the plan
    ) -> None:
        self._folder = folder
        self._plan = plan
        self._jobs = jobs
        self._reopens = reopens
        self.failures: list[Failure] = []

    def run(self, signals: StopSignal) -> None:
        """Run to the end, or until `signals` has received one.

        Raises ConfigError if a seed that has ended is to go on and saved no point to go on from.
        """
        plan, folder = self._plan, self._folder
        ended = {seed for seed in plan.seeds if read_result(seed_folder(folder, seed))}
        if self._reopens:
            self._reopen(ended)
            ended = set()
        limits = Limits(plan.max_env_step, plan.max_train_iter)
        status = SeedsStatus(plan.seeds, lambda seed: seed_folder(folder, seed) / METRICS_FILE, limits)
        wait_until_free([seed_folder(folder, seed) for seed in plan.seeds if seed not in ended], signals)
        with ChildRuns(self._jobs) as children:
            for seed in plan.seeds:
                if seed in ended:
                    status.seeds[seed].settle("ended", _ending(folder, seed))
                else:
                    children.start(str(seed), partial(self._command, seed), log=seed_log(folder, seed))
            self._watch(children, status, signals)

    def _reopen(self, ended: Iterable[int]) -> None:
        """Take back the results of seeds that are to go on: they have not ended any more."""
        folders = [seed_folder(self._folder, seed) for seed in sorted(ended)]
        lost = [str(folder) for folder in folders if not has_point(folder)]
        if lost:
            raise ConfigError(f"{', '.join(lost)} ended and saved no point to go on from: other limits need a new run.")
        for folder in folders:
            (folder / "result.json").unlink()

    def _watch(self, children: ChildRuns, status: SeedsStatus, signals: StopSignal) -> None:
        view = SeedsView(log_terminal(logger), str(self._folder))
        shown_s = time.monotonic()

        def look() -> None:
            nonlocal shown_s
            for name in children.running:
                status.seeds[int(name)].state = "runs"
            status.look()
            if time.monotonic() - shown_s >= view.every_s:
                view.show(status)
                shown_s = time.monotonic()

        try:
            children.supervise(
                signals,
                what="seeds",
                end=lambda ended, is_leaving: self._end(ended, status.seeds[int(ended.name)], is_leaving=is_leaving),
                look=look,
                every_s=_LOOK_S,
            )
            view.show(status)
        finally:
            view.close()

    def _end(self, ended: Ended, status: SeedStatus, *, is_leaving: bool) -> None:
        """Record how a seed's process ended."""
        seed = status.seed
        status.tail.read()
        if ended.status == 0 and read_result(seed_folder(self._folder, seed)):
            status.settle("ended", _ending(self._folder, seed))
            logger.info("seed %d ended: %s", seed, status.note)
            return
        if is_leaving and (ended.was_asked or ended.status == 0):
            status.settle("stopped", "saved" if has_point(seed_folder(self._folder, seed)) else "")
            return
        log = seed_log(self._folder, seed)
        lines = tuple(last_lines(log, _LAST_LINES))
        self.failures.append(Failure(seed, ended.how, log, lines))
        status.settle("failed", lines[-1] if lines else ended.how)
        logger.error("seed %d %s; the others go on. Its output is in %s", seed, ended.how, log)

    def _command(self, seed: int) -> list[str]:
        """Return the arguments of `ding` by which a seed begins, or goes on where it has saved a point."""
        folder, plan = seed_folder(self._folder, seed), self._plan
        if has_point(folder):
            # The plan's limits, always: the seed's own point may be of before they were changed.
            return ["--resume", str(folder), *_limits_of(plan)]
        set_aside(folder)
        begin = ["-m", plan.mode, "-c", plan.config, "-s", str(seed), "--exp-name", str(folder), *plan.arguments]
        if os.path.isfile(plan.config) and text_hash(plan.config) == plan.config_sha256:
            return [*begin, *plan.overrides]
        if plan.mode not in _SERIAL:
            logger.warning("%s is not what it was when the experiment began: seed %d may differ", plan.config, seed)
            return [*begin, *plan.overrides]
        # All seeds are to train alike: the config as it was, resolved, with the overrides.
        saved = str(self._folder / "total_config.py")
        logger.warning("%s is not what it was when the experiment began: seed %d runs %s", plan.config, seed, saved)
        return [saved if word == plan.config else word for word in begin]


def _limits_of(plan: SeedsPlan) -> list[str]:
    """Return the limits of a plan as arguments of `ding`."""
    words = plan.arguments
    places = [words.index(flag) for flag in ("--env-step", "--train-iter") if flag in words]
    return [word for place in places for word in words[place : place + 2]]


def _ending(folder: Path, seed: int) -> str:
    result = read_result(seed_folder(folder, seed))
    why = ", reached stop_value" if result.get("stop") else ""
    return f"last model returns {measure(float(result['eval_value']))} after {result['env_step']:,} env steps{why}"
