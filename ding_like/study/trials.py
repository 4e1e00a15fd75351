"""Trials of a study, each a run in a process of its own, which optuna's journal keeps; and their results: a table, the
best config, the importance of settings, and a picture.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import math
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from ding_like.config.tree import literal
from ding_like.errors import ConfigError, TrainingError
from ding_like.pipeline.process import StopSignal
from ding_like.report.compare import aligned, markdown_table
from ding_like.report.curve import COLOURS
from ding_like.report.experiment import METRICS_FILE, PLAN_FILE, last_lines, read_result, seed_folder
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
from ding_like.study.plan import Param, StudyPlan, trial_folder, trial_log
from ding_like.utils.files import atomic_write, write_text

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


BEST_CONFIG = "best_config.py"
TABLE_FILE = "trials.md"
PICTURE_FILE = "study.png"
_ENOUGH = 4  # trials, for importances to mean something
# Of the picture: panels of so many inches, and characters of a choice that are shown.
_PANEL, _COLUMNS, _MAX_PANELS, _LABEL = (3.6, 2.9), 3, 9, 18


def ended_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials that ran to their end, the best first."""
    found = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return sorted(found, key=lambda trial: (-(trial.value or 0.0), trial.number))


def table_rows(study: optuna.Study, plan: StudyPlan) -> list[list[str]]:
    """Return the table of all trials, the best first, with its head."""
    ended = ended_trials(study)
    others = [trial for trial in study.get_trials(deepcopy=False) if trial.state != TrialState.COMPLETE]
    keys = [param.key for param in plan.space]
    rows = [["trial", "value", *keys, "state"]]
    for trial in [*ended, *others]:
        values = [_text(trial.params[key]) if key in trial.params else "" for key in keys]
        value = measure(float(trial.value)) if trial.state == TrialState.COMPLETE and trial.value is not None else "-"
        rows.append([str(trial.number), value, *values, _state(trial)])
    return rows


def write_table(study: optuna.Study, plan: StudyPlan, folder: Path) -> Path:
    """Write all trials as a table of Markdown."""
    rows, path = table_rows(study, plan), folder / TABLE_FILE
    text = f"# {folder.name}: {len(rows) - 1} trials of {plan.trials}\n\n`{plan.command}`\n\n{markdown_table(rows)}\n"
    weights = importances(study)
    if weights:
        listed = ", ".join(f"`{key}` {share:.0%}" for key, share in weights.items())
        text += f"\nShare of the differences between trials that a setting explains (PED-ANOVA): {listed}.\n"
    write_text(path, text)
    return path


def importances(study: optuna.Study) -> dict[str, float]:
    """Return which share of the differences in value each setting explains, the largest first; empty of few trials."""
    ended = ended_trials(study)
    if len(ended) < _ENOUGH or len({trial.value for trial in ended}) < 2:
        return {}
    try:
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    except (ValueError, RuntimeError, ImportError) as error:  # such as too few distinct values: no reason to fail
        logger.info("no importances: %s", error)
        return {}
    return {key: share for key, share in found.items() if math.isfinite(share)}


def write_best_config(study: optuna.Study, plan: StudyPlan, folder: Path) -> Path | None:
    """Write the config of the best trial, which runs as any other; None before a trial has ended."""
    ended = ended_trials(study)
    saved = trial_folder(folder, ended[0].number) / "total_config.py" if ended else None
    if saved is None or not saved.is_file():
        return None
    best, path = ended[0], folder / BEST_CONFIG
    text = saved.read_text(encoding="utf-8").split("\n", 1)[1]  # without its head, which names that file
    worth = measure(float(best.value or 0.0))
    head = f"# The best of {len(ended)} trials: trial {best.number}, whose last model returned {worth}.\n"
    head += f"# To run it: ding -m {plan.mode} -c {path} {' '.join(plan.limits)}\n"
    name = literal(f"{folder.name}_best")
    write_text(path, f'{head}{text}main_config["exp_name"] = {name}\n')
    return path


def write_summary(study: optuna.Study, plan: StudyPlan, folder: Path) -> None:
    """Write `study_result.json`: counts, the best trial and its settings."""
    trials = study.get_trials(deepcopy=False)
    best = [{"trial": each.number, "value": each.value, "params": each.params} for each in ended_trials(study)[:1]]
    counts = {state.name.lower(): sum(each.state == state for each in trials) for state in TrialState}
    summary = {"trials": len(trials), "asked": plan.trials, "states": counts, "best": best[0] if best else None}
    write_text(folder / "study_result.json", json.dumps(summary, indent=2))


def table_lines(rows: Sequence[Sequence[str]], *, most: int) -> list[str]:
    """Return the first rows of a table for a terminal, with its head."""
    lines = aligned(rows[: most + 1])
    return lines + ([f"and {len(rows) - len(lines)} more in {TABLE_FILE}"] if len(rows) > len(lines) else [])


def _text(value: Any) -> str:  # Any: what a sampler draws
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _state(trial: FrozenTrial) -> str:
    if trial.state == TrialState.PRUNED and PRUNED_AT in trial.user_attrs:
        unit, at = trial.user_attrs[PRUNED_AT]
        return f"ended early at {unit} {at:,}"
    if trial.state == TrialState.FAIL:
        return f"failed: {trial.user_attrs.get(FAILED, '')}"[:120]
    return {TrialState.COMPLETE: "ended", TrialState.RUNNING: "under way"}.get(trial.state, trial.state.name.lower())


def save_picture(study: optuna.Study, plan: StudyPlan, folder: Path) -> Path | None:
    """Draw a study's history, and its trials over each setting, into a PNG and return its path.

    None before a trial has ended, and, with a line in the log, without matplotlib.
    """
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    trials = [trial for trial in trials if trial.state == TrialState.COMPLETE or trial.intermediate_values]
    ended, shares, path = ended_trials(study), importances(study), folder / PICTURE_FILE
    if not ended:
        return None
    try:
        from ding_like.report.drawing import GREY, new_figure, tidy
    except ConfigError as error:
        logger.info("no picture: %s", error)
        return None
    params = sorted(plan.space, key=lambda param: -shares.get(param.key, 0.0))[: _MAX_PANELS - 1]
    columns = 2 if len(params) == 3 else min(_COLUMNS, len(params) + 1)
    rows = math.ceil((len(params) + 1) / columns)
    with new_figure((_PANEL[0] * columns, _PANEL[1] * rows + 0.6)) as figure:
        panels = [figure.add_subplot(rows, columns, index + 1) for index in range(len(params) + 1)]
        _draw_history(panels[0], trials)
        for axes, param in zip(panels[1:], params, strict=True):
            _draw_slice(axes, trials, param, shares.get(param.key))
        for axes in panels:
            axes.set_ylabel("return of the last model", fontsize=9)
            axes.tick_params(labelsize=8, colors=GREY)
            tidy(axes)
        title = f"{folder.name}: best {ended[0].value:.4g}, trial {ended[0].number}"
        figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        with atomic_write(path) as file:
            figure.savefig(file, format="png")
    return path


def _draw_history(axes: Any, trials: Sequence[FrozenTrial]) -> None:
    _dots(axes, [(trial.number, trial) for trial in trials])
    ended = [(trial.number, _drawn_value(trial)) for trial in trials if trial.state == TrialState.COMPLETE]
    numbers, values = zip(*ended, strict=True)
    best = list(itertools.accumulate(values, max))
    axes.step(numbers, best, where="post", color=COLOURS[1], linewidth=1.6, label="best so far")
    axes.set_title("history", loc="left", fontsize=10)
    axes.set_xlabel("trial", fontsize=9)
    _count_in_whole_numbers(axes)
    axes.legend(frameon=False, fontsize=8, loc="lower right")


def _draw_slice(axes: Any, trials: Sequence[FrozenTrial], param: Param, share: float | None) -> None:
    key = param.key
    having = [trial for trial in trials if key in trial.params]
    if any(isinstance(trial.params[key], str) for trial in having):
        choices = sorted({str(trial.params[key]) for trial in having})
        _dots(axes, [(choices.index(str(trial.params[key])), trial) for trial in having])
        axes.set_xticks(range(len(choices)), [choice[:_LABEL] for choice in choices], fontsize=8)
        axes.set_xlim(-0.5, len(choices) - 0.5)
    else:
        _dots(axes, [(float(trial.params[key]), trial) for trial in having])
        if param.kind in ("log", "logint"):
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")  # plain, for no text is a formula here
        elif all(isinstance(trial.params[key], int) for trial in having):
            _count_in_whole_numbers(axes)
    axes.set_title(key.removeprefix("policy.") + ("" if share is None else f"  ({share:.0%})"), loc="left", fontsize=10)


def _count_in_whole_numbers(axes: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _dots(axes: Any, places: Sequence[tuple[float, FrozenTrial]]) -> None:
    """Draw trials as dots, those that were ended early hollow."""
    for state, face, label in ((TrialState.COMPLETE, COLOURS[0], "trial"), (TrialState.PRUNED, "none", "ended early")):
        some = [(x, _drawn_value(trial)) for x, trial in places if trial.state == state]
        if some:
            x, y = zip(*some, strict=True)
            axes.scatter(x, y, s=22, facecolors=face, edgecolors=COLOURS[0], linewidths=1.0, alpha=0.8, label=label)


def _drawn_value(trial: FrozenTrial) -> float:
    """Return what a trial is worth; of one that was ended early, the last that was known."""
    known = trial.intermediate_values
    return float(known[max(known)] if trial.state == TrialState.PRUNED else trial.value or 0.0)
