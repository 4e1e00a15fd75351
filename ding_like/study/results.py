"""Say what a study found: a table, the best config, and what matters."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from ding_like.config.literal import literal
from ding_like.report.text import measure
from ding_like.study.picture import StudyPicture, TrialPoint
from ding_like.study.plan import StudyPlan, trial_folder
from ding_like.study.trial_runs import FAILED, PRUNED_AT
from ding_like.utils.files import atomic_write

logger = logging.getLogger(__name__)

BEST_CONFIG = "best_config.py"
TABLE_FILE = "trials.md"
_ENOUGH = 4  # trials, for importances to say something


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
    head, *rows = table_rows(study, plan)
    lines = [f"# {folder.name}: {len(rows)} trials of {plan.trials}", "", f"`{plan.command}`", ""]
    lines += [_markdown(head), _markdown(["---"] * len(head)), *map(_markdown, rows)]
    weights = importances(study)
    if weights:
        said = ", ".join(f"`{key}` {share:.0%}" for key, share in weights.items())
        lines += ["", f"Share of the differences between trials that a setting explains (PED-ANOVA): {said}."]
    path = folder / TABLE_FILE
    with atomic_write(path) as file:
        file.write(("\n".join(lines) + "\n").encode())
    return path


def importances(study: optuna.Study) -> dict[str, float]:
    """Return which share of the differences in value each setting explains, the largest first; empty of few trials."""
    ended = ended_trials(study)
    if len(ended) < _ENOUGH or len({trial.value for trial in ended}) < 2:
        return {}
    try:
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    except (ValueError, RuntimeError, ImportError) as error:  # too few distinct values, say: no reason to fail
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
    with atomic_write(path) as file:
        file.write(f'{head}{text}main_config["exp_name"] = {name}\n'.encode())
    return path


def picture(study: optuna.Study, plan: StudyPlan, folder: Path) -> StudyPicture | None:
    """Return what there is to draw of a study; None before a trial has ended."""
    points = []
    for trial in study.get_trials(deepcopy=False):
        if trial.state == TrialState.COMPLETE and trial.value is not None:
            points.append(TrialPoint(trial.number, float(trial.value), dict(trial.params)))
        elif trial.state == TrialState.PRUNED and trial.intermediate_values:
            last = trial.intermediate_values[max(trial.intermediate_values)]
            points.append(TrialPoint(trial.number, float(last), dict(trial.params), was_pruned=True))
    if not any(not point.was_pruned for point in points):
        return None
    logarithmic = tuple(param.key for param in plan.space if param.kind in ("log", "logint"))
    keys = tuple(param.key for param in plan.space)
    return StudyPicture(folder.name, points, keys, logarithmic, importances(study))


def write_summary(study: optuna.Study, plan: StudyPlan, folder: Path) -> None:
    """Write `study_result.json`: counts, the best trial and its settings."""
    ended = ended_trials(study)
    trials = study.get_trials(deepcopy=False)
    best: dict[str, Any] | None = None
    if ended:
        found = ended[0]
        best = {"trial": found.number, "value": found.value, "params": dict(found.params)}
    counts = {state.name.lower(): sum(each.state == state for each in trials) for state in TrialState}
    said = {"trials": len(trials), "asked": plan.trials, "states": counts, "best": best}
    with atomic_write(folder / "study_result.json") as file:
        file.write(json.dumps(said, indent=2).encode())


def table_lines(rows: Sequence[Sequence[str]], *, most: int) -> list[str]:
    """Return the first rows of a table for a terminal, with its head."""
    shown = rows[: most + 1]
    widths = [max(len(row[column]) for row in shown) for column in range(len(shown[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown]
    return lines + ([f"and {len(rows) - len(shown)} more in {TABLE_FILE}"] if len(rows) > len(shown) else [])


def _markdown(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _text(value: Any) -> str:  # Any: what a sampler draws
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _state(trial: FrozenTrial) -> str:
    if trial.state == TrialState.PRUNED and PRUNED_AT in trial.user_attrs:
        unit, at = trial.user_attrs[PRUNED_AT]
        return f"ended early at {unit} {at:,}"
    if trial.state == TrialState.FAIL:
        return f"failed: {trial.user_attrs.get(FAILED, '')}"[:120]
    return {TrialState.COMPLETE: "ended", TrialState.RUNNING: "under way"}.get(trial.state, trial.state.name.lower())
