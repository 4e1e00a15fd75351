"""Trials of a study: optuna's journal keeps them, and each is a run in a process of its own."""

from __future__ import annotations

import hashlib
import logging
import math
import os
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from ding_like.errors import TrainingError
from ding_like.pipeline.process import StopSignal
from ding_like.report.experiment import seed_folder
from ding_like.report.runs import METRICS_FILE, PLAN_FILE, last_lines, read_result
from ding_like.report.scores import measure
from ding_like.study.child_runs import (
    ChildRuns,
    Ended,
    MetricsTail,
    has_point,
    set_aside,
    text_hash,
    wait_until_free,
)
from ding_like.study.plan import StudyPlan, trial_folder, trial_log

logger = logging.getLogger(__name__)

JOURNAL_FILE = "journal.log"
_NAME = "study"
_RANDOM_TRIALS = 5  # that are drawn before the sampler has enough results
_MAX_RESTARTS = 3  # of a trial whose process was killed
_MAX_FAILURES = 3  # trials that fail before one has succeeded: then it is the config
_STRETCHES = 10  # of a budget; at the end of each trials are compared
_LAST_LINES = 5  # of a failed trial's output that are shown
PRUNED_AT = "pruned_at"  # of a trial that is to be ended early: where that was decided
FAILED = "failed"  # of a trial that failed: how


class TrialRuns:
    """Trials of a study, run `jobs` at a time until it has as many as planned.

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
        self._has_warned = False  # that the config file was changed

    def run(self, signals: StopSignal) -> None:
        """Run to the end, or until `signals` has received one.

        Raises TrainingError if the first trials fail, one like the other.
        """
        begun = running(self._study, self._plan)
        wait_until_free([trial_folder(self._folder, trial.number) for trial in begun], signals)
        with ChildRuns(self._jobs) as children:
            for trial in begun:
                if not self._is_settled(trial):
                    self._start(trial, children)
            children.supervise(
                signals,
                what="trials",
                fill=lambda: self._fill(children),
                end=lambda ended, is_leaving: self._end(ended, children, is_leaving=is_leaving),
                look=lambda: self._prune(children) if self._plan.prune else None,
            )

    def _is_settled(self, trial: optuna.Trial) -> bool:
        """Record how a trial ended; return False if it has neither a result nor was ended early."""
        value = self._value(trial.number)
        if value is not None:
            self._study.tell(trial, value)
            logger.info("trial %d ended: %s%s", trial.number, measure(value), self._so_far())
        elif PRUNED_AT in trial.user_attrs:
            self._study.tell(trial, state=TrialState.PRUNED)
            at = trial.user_attrs[PRUNED_AT]
            logger.info("trial %d ended early, at %s %d, behind the others%s", trial.number, *at, self._so_far())
        return value is not None or PRUNED_AT in trial.user_attrs

    def _fill(self, children: ChildRuns) -> None:
        """Start trials while there is room."""
        while len(self._trials) < self._jobs and len(self._all_trials()) < self._plan.trials:
            self._start(ask(self._study, self._plan), children)

    def _all_trials(self) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False)

    def _start(self, trial: optuna.Trial, children: ChildRuns) -> None:
        name = str(trial.number)
        self._trials[name] = trial
        self._tails[name] = MetricsTail(trial_folder(self._folder, trial.number) / METRICS_FILE)
        logger.info("trial %s begins: %s", name, "  ".join(overrides_of(trial, self._plan)))
        children.start(name, partial(self._command, trial), log=trial_log(self._folder, trial.number))

    def _command(self, trial: optuna.Trial) -> list[str]:
        """Return the arguments of `ding` by which a trial begins, or goes on where it has saved a point."""
        plan, folder = self._plan, trial_folder(self._folder, trial.number)
        if has_point(folder) or (folder / PLAN_FILE).is_file():
            return ["--resume", str(folder)]
        set_aside(folder)
        if not self._has_warned and plan.config_sha256 and text_hash(plan.config) != plan.config_sha256:
            self._has_warned = True
            logger.warning(
                "%s was changed since the study began: trials from %d on are of it", plan.config, trial.number
            )
        seeds = range(plan.first_seed, plan.first_seed + plan.seeds)
        words = ["-m", plan.mode, "-c", plan.config, "--exp-name", str(folder)]
        for seed in seeds:
            words += ["-s", str(seed)]
        words += ["-j", "1"] if plan.seeds > 1 else []
        return [*words, *plan.limits, *plan.overrides, *overrides_of(trial, plan)]

    def _end(self, ended: Ended, children: ChildRuns, *, is_leaving: bool) -> None:
        """Record how a trial's process ended."""
        trial = self._trials.pop(ended.name)
        if self._is_settled(trial) or is_leaving:  # one that leaves goes on when the study is resumed
            return
        restarts = self._restarts.get(ended.name, 0)
        if (ended.status < 0 or ended.was_asked) and restarts < _MAX_RESTARTS:
            self._restarts[ended.name] = restarts + 1
            logger.warning("trial %d %s and is started again", trial.number, ended.how)
            self._start(trial, children)
        else:
            self._fail(trial, ended)

    def _fail(self, trial: optuna.Trial, ended: Ended) -> None:
        log = trial_log(self._folder, trial.number)
        lines = last_lines(log, _LAST_LINES)
        trial.set_user_attr(FAILED, lines[-1] if lines else ended.how)
        self._study.tell(trial, state=TrialState.FAIL)
        logger.error("trial %d %s; the others go on. Its output is in %s", trial.number, ended.how, log)
        states = [each.state for each in self._all_trials()]
        if states.count(TrialState.FAIL) >= _MAX_FAILURES and TrialState.COMPLETE not in states:
            ending = "\n".join(f"    {line}" for line in lines)
            raise TrainingError(f"the first {_MAX_FAILURES} trials failed; {log} ends with\n{ending}")

    def _so_far(self) -> str:
        trials = self._all_trials()
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
        results = [read_result(each) for each in folders]
        return sum(float(each["eval_value"]) for each in results) / len(results) if all(results) else None

    def _prune(self, children: ChildRuns) -> None:
        """End trials that are behind the median of the others at the same stretch of the budget."""
        for name in children.running:
            trial, tail = self._trials[name], self._tails[name]
            tail.read()
            if PRUNED_AT in trial.user_attrs or math.isnan(tail.best_eval):
                continue
            done = tail.env_step if self._plan.budget_unit == "env_step" else tail.train_iter
            stretch = min(int(_STRETCHES * done / self._plan.budget), _STRETCHES - 1)
            if stretch in self._all_trials()[trial.number].intermediate_values:
                continue
            trial.report(tail.best_eval, stretch)
            if trial.should_prune():
                trial.set_user_attr(PRUNED_AT, ["env step" if self._plan.budget_unit == "env_step" else "update", done])
                children.stop(name)


class _OwnedLock:
    """Lock without effect: the study's folder is locked by its process, and a lock file would outlive a killed one."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        """Do nothing."""


def open_study(folder: Path, plan: StudyPlan) -> optuna.Study:
    """Return the study of a folder that this process holds, begun or as far as it is."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    path = folder / JOURNAL_FILE
    _cut_torn_line(path)
    lock: Any = _OwnedLock()  # optuna exports no type for it
    backend = JournalFileBackend(str(path), lock_obj=lock)
    return optuna.create_study(
        storage=JournalStorage(backend),
        study_name=_NAME,
        direction="maximize",
        load_if_exists=True,
        sampler=sampler_of(plan, 0),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=2),
    )


def sampler_of(plan: StudyPlan, number: int) -> optuna.samplers.BaseSampler:
    """Return the sampler of one trial: what it draws depends on the study's seed, the number and what is known.

    A resumed study draws as if it had not been stopped.
    """
    words = hashlib.sha256(f"{plan.sampler_seed}/{number}".encode()).digest()
    return optuna.samplers.TPESampler(seed=int.from_bytes(words[:4], "little"), n_startup_trials=_RANDOM_TRIALS)


def ask(study: optuna.Study, plan: StudyPlan) -> optuna.Trial:
    """Begin the next trial of a study."""
    study.sampler = sampler_of(plan, len(study.get_trials(deepcopy=False)))
    return _with_values(study.ask(), plan)


def running(study: optuna.Study, plan: StudyPlan) -> list[optuna.Trial]:
    """Return the trials that have begun and not ended; of one whose beginning was cut off the rest is drawn."""
    states = (optuna.trial.TrialState.RUNNING,)
    found = [(each.number, each._trial_id) for each in study.get_trials(deepcopy=False, states=states)]
    trials = []
    for number, trial_id in found:
        study.sampler = sampler_of(plan, number)
        trials.append(_with_values(optuna.Trial(study, trial_id), plan))
    return trials


def _with_values(trial: optuna.Trial, plan: StudyPlan) -> optuna.Trial:
    for param in plan.space:
        param.suggest(trial)
    return trial


def overrides_of(trial: Any, plan: StudyPlan) -> list[str]:
    """Return the settings of a trial, a Trial or a FrozenTrial, as arguments of `ding`."""
    return [param.override(trial.params[param.key]) for param in plan.space]


def _cut_torn_line(path: Path) -> None:
    """Remove half a line, which a process that was killed as it wrote may have left at the end."""
    if path.is_file():
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
