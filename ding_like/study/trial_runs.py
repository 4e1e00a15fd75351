"""Run the trials of a study: each is a run in a process of its own, whose last model is what it is worth."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState

from ding_like.errors import TrainingError
from ding_like.pipeline.interrupt import StopSignal
from ding_like.report.experiment import seed_folder
from ding_like.report.runs import PLAN_FILE, last_lines, read_result
from ding_like.report.text import measure
from ding_like.study.child_runs import ChildRuns, Ended
from ding_like.study.journal import ask, overrides_of, running
from ding_like.study.plan import StudyPlan, trial_folder, trial_log
from ding_like.study.seed_runs import has_point, set_aside, text_hash
from ding_like.study.tail import MetricsTail
from ding_like.utils.folder_lock import is_held

logger = logging.getLogger(__name__)

_LOOK_S = 0.5  # between two looks at what the trials have written
_GRACE_S = 60.0  # to save a point; a large replay buffer takes a while
_MAX_RESTARTS = 3  # of a trial whose process was killed
_MAX_FAILURES = 3  # trials that fail before one has succeeded: then it is the config
_STRETCHES = 10  # of a budget; at the end of each trials are compared
_LAST_LINES = 5  # of a failed trial's output that are shown
PRUNED_AT = "pruned_at"  # of a trial that is to be ended early: where that was decided
FAILED = "failed"  # of a trial that failed: how


class TrialRuns:
    """Run a study's trials, `jobs` at a time, until it has as many as its plan says.

    A trial that was under way when the study was stopped goes on from its saved point. One whose process is killed is
    started again; one that fails by itself is noted as failed, and the others go on.
    """

    def __init__(self, folder: Path, plan: StudyPlan, study: optuna.Study, *, jobs: int) -> None:
        self._folder = folder
        self._plan = plan
        self._study = study
        self._jobs = jobs
        self._trials: dict[str, optuna.Trial] = {}  # under way, by the child's name
        self._tails: dict[str, MetricsTail] = {}
        self._restarts: dict[str, int] = {}
        self._waits: list[optuna.Trial] = []  # for another process to leave their folder
        self._wait_ends_s = 0.0
        self._has_changed = False  # the config file, which was said

    def run(self, signals: StopSignal) -> None:
        """Run to the end, or until `signals` has received one; whoever opened it lets it act then.

        Raises TrainingError if the first trials fail, one like the other.
        """
        self._wait_ends_s = time.monotonic() + _GRACE_S
        with ChildRuns(self._jobs, grace_s=_GRACE_S) as children:
            self._waits = [trial for trial in running(self._study, self._plan) if not self._is_settled(trial)]
            is_leaving = False
            while True:
                if signals.received is not None and not is_leaving:
                    is_leaving = True
                    logger.info("interrupted: %d trials save a point and leave", len(children.running))
                    children.stop_all()
                if not is_leaving:
                    self._fill(children)
                if children.is_over and (is_leaving or not self._waits):
                    return
                for ended in children.wait(_LOOK_S):
                    self._note(ended, children, is_leaving=is_leaving or signals.received is not None)
                if self._plan.prune and not is_leaving:
                    self._prune(children)

    def _is_settled(self, trial: optuna.Trial) -> bool:
        """Tell a study what became of a trial that ended while nobody looked; False if it is to go on."""
        if PRUNED_AT in trial.user_attrs:
            self._study.tell(trial, state=TrialState.PRUNED)
            return True
        value = self._value(trial.number)
        if value is not None:
            self._complete(trial, value)
        return value is not None

    def _fill(self, children: ChildRuns) -> None:
        """Start what there is room for: first the trials that were under way, then new ones."""
        for trial in list(self._waits):
            if len(self._trials) >= self._jobs:
                return
            if is_held(trial_folder(self._folder, trial.number)) and time.monotonic() < self._wait_ends_s:
                continue  # its process of before saves a point
            self._waits.remove(trial)
            if not self._is_settled(trial):
                self._start(trial, children)
        while len(self._trials) + len(self._waits) < self._jobs and self._num_trials() < self._plan.trials:
            self._start(ask(self._study, self._plan), children)

    def _num_trials(self) -> int:
        return len(self._study.get_trials(deepcopy=False))

    def _start(self, trial: optuna.Trial, children: ChildRuns) -> None:
        name = str(trial.number)
        self._trials[name] = trial
        self._tails[name] = MetricsTail(trial_folder(self._folder, trial.number) / "metrics.jsonl")
        logger.info("trial %s begins: %s", name, "  ".join(overrides_of(trial, self._plan)))
        children.start(name, partial(self._command, trial), log=trial_log(self._folder, trial.number))

    def _command(self, trial: optuna.Trial) -> list[str]:
        """Return the arguments of `ding` by which a trial begins, or goes on where it has saved a point."""
        plan, folder = self._plan, trial_folder(self._folder, trial.number)
        if has_point(folder) or (folder / PLAN_FILE).is_file():
            return ["--resume", str(folder)]
        set_aside(folder)
        if not self._has_changed and plan.config_sha256 and text_hash(plan.config) != plan.config_sha256:
            self._has_changed = True
            logger.warning(
                "%s was changed since the study began: trials from %d on are of it", plan.config, trial.number
            )
        seeds = range(plan.first_seed, plan.first_seed + plan.seeds)
        words = ["-m", plan.mode, "-c", plan.config, "--exp-name", str(folder)]
        for seed in seeds:
            words += ["-s", str(seed)]
        words += ["-j", "1"] if plan.seeds > 1 else []
        return [*words, *plan.limits, *plan.overrides, *overrides_of(trial, plan)]

    def _note(self, ended: Ended, children: ChildRuns, *, is_leaving: bool) -> None:
        """Take note of how a trial's process ended."""
        trial = self._trials.pop(ended.name)
        value = self._value(trial.number)
        if value is not None:
            self._complete(trial, value)
        elif PRUNED_AT in trial.user_attrs:
            self._study.tell(trial, state=TrialState.PRUNED)
            at = trial.user_attrs[PRUNED_AT]
            logger.info("trial %d ended early, at %s %d, behind the others%s", trial.number, *at, self._so_far())
        elif is_leaving:
            pass  # it goes on when the study does
        elif (ended.status < 0 or ended.was_asked) and self._restarts.get(ended.name, 0) < _MAX_RESTARTS:
            self._restarts[ended.name] = self._restarts.get(ended.name, 0) + 1
            logger.warning("trial %d %s and is started again", trial.number, ended.how)
            self._start(trial, children)
        else:
            self._fail(trial, ended)

    def _complete(self, trial: optuna.Trial, value: float) -> None:
        self._study.tell(trial, value)
        logger.info("trial %d ended: %s%s", trial.number, measure(value), self._so_far())

    def _fail(self, trial: optuna.Trial, ended: Ended) -> None:
        log = trial_log(self._folder, trial.number)
        lines = last_lines(log, _LAST_LINES)
        how = ended.how if ended.status else "ended without a result"
        trial.set_user_attr(FAILED, lines[-1] if lines else how)
        self._study.tell(trial, state=TrialState.FAIL)
        logger.error("trial %d %s; the others go on. Its output is in %s", trial.number, how, log)
        states = [each.state for each in self._study.get_trials(deepcopy=False)]
        if states.count(TrialState.FAIL) >= _MAX_FAILURES and TrialState.COMPLETE not in states:
            said = "\n".join(f"    {line}" for line in lines)
            raise TrainingError(f"the first {_MAX_FAILURES} trials failed; {log} ends with\n{said}")

    def _so_far(self) -> str:
        trials = self._study.get_trials(deepcopy=False)
        done = sum(each.state.is_finished() for each in trials)
        if not any(each.state == TrialState.COMPLETE for each in trials):
            return f"  ({done} of {self._plan.trials})"
        best = self._study.best_trial
        return f"  (best {measure(float(best.value or 0.0))} of trial {best.number}; {done} of {self._plan.trials})"

    def _value(self, number: int) -> float | None:
        """Return the fresh evaluation of a trial's last models, their mean over seeds; None if it has not ended."""
        folder, plan = trial_folder(self._folder, number), self._plan
        folders = [folder]
        if plan.seeds > 1:
            folders = [seed_folder(folder, seed) for seed in range(plan.first_seed, plan.first_seed + plan.seeds)]
        return mean_value([read_result(each) for each in folders])

    def _prune(self, children: ChildRuns) -> None:
        """End trials that are behind the median of the others at the same stretch of the budget."""
        for name in children.running:
            trial, tail = self._trials[name], self._tails[name]
            tail.read()
            if PRUNED_AT in trial.user_attrs or math.isnan(tail.best_eval):
                continue
            done = tail.env_step if self._plan.budget_unit == "env_step" else tail.train_iter
            stretch = min(int(_STRETCHES * done / self._plan.budget), _STRETCHES - 1)
            if stretch in self._study.get_trials(deepcopy=False)[trial.number].intermediate_values:
                continue
            trial.report(tail.best_eval, stretch)
            if trial.should_prune():
                trial.set_user_attr(PRUNED_AT, ["env step" if self._plan.budget_unit == "env_step" else "update", done])
                children.stop(name)


def mean_value(results: Sequence[Any]) -> float | None:
    """Return the mean of what runs' results say that their last models return; None while one has not ended."""
    values = [float(result["eval_value"]) for result in results if result]
    return sum(values) / len(values) if len(values) == len(results) else None
