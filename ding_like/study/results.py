"""Results of a study: a table, the best config, the importance of settings, and a picture."""

from __future__ import annotations

import itertools
import json
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from ding_like.config.tree import literal
from ding_like.errors import ConfigError
from ding_like.report.compare import aligned, markdown_table
from ding_like.report.curve import COLOURS
from ding_like.report.scores import measure
from ding_like.study.plan import Param, StudyPlan, trial_folder
from ding_like.study.trials import FAILED, PRUNED_AT
from ding_like.utils.files import atomic_write, write_text

logger = logging.getLogger(__name__)

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
