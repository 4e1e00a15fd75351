"""Run the seeds of an experiment: start each or let it go on, show all, and say what became of each."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from ding_like.errors import ConfigError
from ding_like.pipeline.checkpoint import resume_store
from ding_like.pipeline.interrupt import StopSignal
from ding_like.pipeline.parallel.reopen import STATE_FILE
from ding_like.report.experiment import SeedsPlan, seed_folder, seed_log
from ding_like.report.progress import Limits
from ding_like.report.runs import last_lines, read_result
from ding_like.report.text import measure
from ding_like.study.child_runs import ChildRuns, Ended
from ding_like.study.seeds_view import choose_seeds_view
from ding_like.study.standing import SeedStanding, Standings
from ding_like.utils.files import retry
from ding_like.utils.folder_lock import FolderLock, is_held

logger = logging.getLogger(__name__)

_LOOK_S = 0.5  # between two looks at what the seeds have written
_LAST_LINES = 5  # of a failed seed's output that are shown
_SERIAL = ("serial", "serial_onpolicy")
_GRACE_S = 60.0  # to save a point; a large replay buffer takes a while


@dataclass(frozen=True)
class Failure:
    """Say which seed failed, and how."""

    seed: int
    how: str
    log: Path
    lines: tuple[str, ...]  # its last words


class SeedRuns:
    """Run the seeds of a plan that have not ended, `jobs` at a time.

    One that fails leaves the others alone. The first SIGINT or SIGTERM has all of them save a point and leave.
    """

    def __init__(
        self,
        folder: Path,
        plan: SeedsPlan,
        *,
        jobs: int,
        reopens: bool = False,  # whether those that have ended go on too, to other limits of the plan
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._plan = plan
        self._jobs = jobs
        self._reopens = reopens
        self._clock = clock
        self.failures: list[Failure] = []

    def run(self, signals: StopSignal) -> None:
        """Run to the end, or until `signals` has received one; whoever opened it lets it act then.

        Raises ConfigError if a seed that has ended is to go on and saved no point to go on from.
        """
        plan, folder = self._plan, self._folder
        ended = {seed for seed in plan.seeds if read_result(seed_folder(folder, seed))}
        if self._reopens:
            self._reopen(ended)
            ended = set()
        limits = Limits(plan.max_env_step, plan.max_train_iter)
        standings = Standings(
            plan.seeds, lambda seed: seed_folder(folder, seed) / "metrics.jsonl", limits, clock=self._clock
        )
        self._wait_until_free(ended, signals)
        with ChildRuns(self._jobs, grace_s=_GRACE_S) as children:
            for seed in plan.seeds:
                if seed in ended:
                    self._settle(standings.seeds[seed], "ended", _ending(folder, seed))
                else:
                    children.start(str(seed), partial(self._command, seed), log=seed_log(folder, seed))
            self._watch(children, standings, signals)

    def _reopen(self, ended: Iterable[int]) -> None:
        """Take back the results of seeds that are to go on: they have not ended any more."""
        folders = [seed_folder(self._folder, seed) for seed in sorted(ended)]
        lost = [str(folder) for folder in folders if not has_point(folder)]
        if lost:
            raise ConfigError(f"{', '.join(lost)} ended and saved no point to go on from: other limits need a new run.")
        for folder in folders:
            (folder / "result.json").unlink()

    def _wait_until_free(self, ended: Container[int], signals: StopSignal) -> None:
        """Let the processes of seeds whose command was killed save their points and leave."""
        folders = [seed_folder(self._folder, seed) for seed in self._plan.seeds if seed not in ended]

        def look() -> None:
            if signals.received is None and any(is_held(folder) for folder in folders):
                raise BlockingIOError("held")

        with suppress(BlockingIOError):  # the new process says who holds it
            retry(look, BlockingIOError, timeout_s=_GRACE_S, max_wait_s=0.5)

    def _watch(self, children: ChildRuns, standings: Standings, signals: StopSignal) -> None:
        view, is_leaving = choose_seeds_view(str(self._folder)), False
        shown_s = self._clock()
        try:
            while not children.is_over:
                if signals.received is not None and not is_leaving:
                    is_leaving = True
                    logger.info("interrupted: %d seeds save a point and leave", len(children.running))
                    children.stop_all()
                for ended in children.wait(min(_LOOK_S, view.every_s)):
                    asked = is_leaving or signals.received is not None
                    self._note(ended, standings.seeds[int(ended.name)], is_leaving=asked)
                for name in children.running:
                    standings.seeds[int(name)].state = "runs"
                standings.look()
                if self._clock() - shown_s >= view.every_s:
                    view.show(standings)
                    shown_s = self._clock()
            view.show(standings)
        finally:
            view.close()

    def _note(self, ended: Ended, standing: SeedStanding, *, is_leaving: bool) -> None:
        """Take note of how a seed's process ended."""
        seed = standing.seed
        standing.look(self._clock())
        if ended.status == 0 and read_result(seed_folder(self._folder, seed)):
            self._settle(standing, "ended", _ending(self._folder, seed))
            logger.info("seed %d ended: %s", seed, standing.note)
            return
        if is_leaving and (ended.was_asked or ended.status == 0):
            has_saved = has_point(seed_folder(self._folder, seed))
            self._settle(standing, "stopped", "saved" if has_saved else "")
            return
        log = seed_log(self._folder, seed)
        how = ended.how if ended.status else "ended without a result"
        lines = tuple(last_lines(log, _LAST_LINES))
        self.failures.append(Failure(seed, how, log, lines))
        self._settle(standing, "failed", lines[-1] if lines else how)
        logger.error("seed %d %s; the others go on. Its output is in %s", seed, how, log)

    @staticmethod
    def _settle(standing: SeedStanding, state: Any, note: str) -> None:  # Any: a State
        standing.state, standing.note = state, note

    def _command(self, seed: int) -> list[str]:
        """Return the arguments of `ding` by which a seed begins, or goes on where it has saved a point."""
        folder, plan = seed_folder(self._folder, seed), self._plan
        if has_point(folder):
            # The plan's limits, always: the seed's own point may be of before they were changed.
            return ["--resume", str(folder), *_limits_of(plan)]
        set_aside(folder)
        begin = ["-m", plan.mode, "-c", plan.config, "-s", str(seed), "--exp-name", str(folder), *plan.arguments]
        if _is_unchanged(plan):
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


def has_point(folder: Path) -> bool:
    """Tell whether a run's folder holds what it can go on from."""
    return (folder / STATE_FILE).is_file() or bool(resume_store(str(folder)).steps())


def _is_unchanged(plan: SeedsPlan) -> bool:
    return os.path.isfile(plan.config) and text_hash(plan.config) == plan.config_sha256


def text_hash(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file's bytes."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _ending(folder: Path, seed: int) -> str:
    result = read_result(seed_folder(folder, seed))
    why = ", reached stop_value" if result.get("stop") else ""
    return f"last model returns {measure(float(result['eval_value']))} after {result['env_step']:,} env steps{why}"


def set_aside(folder: Path) -> None:
    """Rename what a seed or trial left that died before it saved a point, so that it can begin again in its place."""
    if not folder.exists():
        return
    aside = folder.with_name(f"{folder.name}_unfinished_{datetime.now():%y%m%d_%H%M%S_%f}")
    with FolderLock(folder):  # raises where its process still runs
        folder.rename(aside)
    logger.info("%s has saved no point to go on from: it begins again, and what was there is in %s", folder, aside)
