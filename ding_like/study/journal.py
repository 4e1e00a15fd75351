"""Keep a study's trials in a file that a killed process leaves whole: optuna's journal."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from ding_like.study.plan import StudyPlan

JOURNAL_FILE = "journal.log"
_NAME = "study"
# Trials that are drawn at random before there is something to learn from.
_RANDOM_TRIALS = 5


class _OwnedLock:
    """Lock nothing: the study's folder is held by one process, and a lock file would outlive a killed one."""

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

    A study that is taken up again draws as if it had not been stopped.
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
    """Take away half a line, which a process that was killed as it wrote may have left at the end."""
    if not path.is_file():
        return
    data = path.read_bytes()
    whole = len(data.rpartition(b"\n")[0]) + 1 if b"\n" in data else 0
    if whole != len(data):
        os.truncate(path, whole)
