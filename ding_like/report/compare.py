"""Scores of experiments over their seeds: the table of one, and comparisons of several."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

from ding_like.errors import ConfigError
from ding_like.report.experiment import Experiment, Member, names_of
from ding_like.report.scores import (
    CONFIDENCE,
    RESAMPLES,
    Estimate,
    bootstrap_interval,
    clock,
    estimate,
    improvement,
    interquartile_mean,
    interval,
    mean,
    measure,
)
from ding_like.types import Config, Json
from ding_like.utils.files import write_text

# Env steps of experiments that differ by more than this share are not the same budget.
_SAME_BUDGET = 0.05
_FEW_SEEDS = 5  # below which intervals are known to be too narrow

# Columns of the table of seeds: title, name in `summary_of`, how a value is written.
_COLUMNS = (
    ("seed", "seed", str),
    ("state", "state", str),
    ("last model returns", "eval_value", measure),
    ("95% CI", "eval_interval", lambda ends: interval(*ends)),
    ("best", "best_eval", measure),
    ("env steps", "env_step", "{:,}".format),
    ("updates", "train_iter", "{:,}".format),
    ("time", "duration_s", clock),
)
SEED_HEADER = tuple(title for title, _, _ in _COLUMNS)


def summary_of(experiment: Experiment) -> Json:
    """Return the scores of an experiment as `scores.json` holds them; without an ended seed the means are None."""
    scores = experiment.scores
    return {
        "format": 1,
        "name": experiment.name,
        "env": experiment.env,
        "policy": experiment.policy,
        "num_seeds": len(experiment.members),
        "num_ended": len(scores),
        "scores": scores,
        "mean": estimate(scores, mean) if scores else None,
        "iqm": estimate(scores, interquartile_mean) if scores else None,
        "confidence": CONFIDENCE,
        "resamples": RESAMPLES,
        "seeds": [_seed_row(experiment, member) for member in experiment.members],
    }


def _seed_row(experiment: Experiment, member: Member) -> Json:
    result, run = member.result, member.run
    folder, base = member.folder.resolve(), experiment.folder.resolve()
    below = folder.relative_to(base) if folder.is_relative_to(base) else member.folder
    row: Json = {"seed": member.seed, "state": member.state, "folder": str(below)}
    if result:
        row |= {name: result[name] for name in ("eval_value", "stop", "env_step", "train_iter", "duration_s")}
        row["eval_interval"] = bootstrap_interval(result["eval_value_raw"])
        row["episodes"] = len(result["eval_value_raw"])
    elif run is not None:
        row["env_step"] = int(run.newest.env_step[-1])
    if result.get("best_eval") is not None:
        row["best_eval"] = result["best_eval"]
    elif run is not None and len(run.evaluation):
        row["best_eval"] = float(run.evaluation.mean.max())
    return row


def write_scores(experiment: Experiment) -> Json:
    """Write `scores.json` and `scores.md` into the experiment's folder and return what the first one holds."""
    summary = summary_of(experiment)
    write_text(experiment.folder / "scores.json", json.dumps(summary, indent=2))
    write_text(experiment.folder / "scores.md", markdown(summary))
    return summary


def seed_cells(row: Config) -> list[str]:
    """Return a seed of `summary_of` as texts below `SEED_HEADER`."""
    known = {**row, "seed": "?" if row["seed"] is None else row["seed"]}
    return [write(known[name]) if name in known else "-" for _, name, write in _COLUMNS]


def table_lines(summary: Config) -> list[str]:
    """Return the table as lines of a terminal, and below it mean and interquartile mean."""
    return [*aligned([SEED_HEADER, *map(seed_cells, summary["seeds"])]), *_mean_lines(summary)]


def markdown(summary: Config) -> str:
    """Return the table as Markdown."""
    table = markdown_table([SEED_HEADER, *map(seed_cells, summary["seeds"])])
    means = "\n".join(f"- {line}" for line in _mean_lines(summary))
    return f"# {summary['name']}: {summary['policy']} on {summary['env']}\n\n{table}\n\n{means}\n"


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of equally many cells, the first of which is the head, as a table of Markdown."""
    head, *body = ([cell.replace("|", r"\|") for cell in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of equally many cells as lines, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def estimate_text(found: Estimate) -> str:
    """Return a value with its interval."""
    return measure(found["value"]) + (f" {interval(*found['interval'])}" if found["interval"] else "")


def _mean_lines(summary: Config) -> list[str]:
    ended, seeds = summary["num_ended"], summary["num_seeds"]
    if not ended:
        return [f"no seed of {seeds} has ended yet"]
    average = f"mean {estimate_text(summary['mean'])}"
    of = f"{ended} seeds" if ended == seeds else f"{ended} of {seeds} seeds; the others have not ended"
    if ended == 1:
        return [f"{average} of {of}: a single seed is no evidence about others; give five or more"]
    return [
        f"{average}, interquartile mean {estimate_text(summary['iqm'])} of {of}",
        "95% intervals by bootstrap over seeds; a seed's own is over its evaluation's episodes",
    ]


def compare_experiments(experiments: Sequence[Experiment]) -> Json:
    """Return how experiments compare by the fresh evaluations of their last models, as `compare.json` holds it.

    Raises ConfigError for fewer than two, for different envs, and for one in which no seed has ended.
    """
    if len(experiments) < 2:
        named = f"only '{experiments[0].folder}'" if experiments else "nothing"
        raise ConfigError(f"{named} to compare; give two experiments at least:  ding compare A B")
    if len({each.env for each in experiments}) > 1:
        named = ", ".join(f"{each.folder} is of {each.env or 'an env without a name'}" for each in experiments)
        raise ConfigError(f"scores of different envs do not compare: {named}. Give experiments of one env at a time.")
    for each in experiments:
        if not each.scores:
            raise ConfigError(
                f"no seed of '{each.folder}' has ended, so that no last model is evaluated; go on with  ding --resume "
                f"{each.folder}  or look at the curves:  ding plot {' '.join(str(one.folder) for one in experiments)}"
            )
    named_experiments = list(zip(names_of(experiments), experiments, strict=True))
    return {
        "format": 1,
        "env": experiments[0].env,
        "confidence": CONFIDENCE,
        "resamples": RESAMPLES,
        "experiments": [
            {**summary_of(each), "name": name, "folder": str(each.folder)} for name, each in named_experiments
        ],
        "probability_of_improvement": [
            {"better": name, "than": other, **improvement(first.scores, second.scores)}
            for (name, first), (other, second) in itertools.combinations(named_experiments, 2)
        ],
        "warnings": [*_seed_warnings(named_experiments), *_budget_warnings(named_experiments)],
    }


def write_comparison(comparison: Config, path: Path) -> Path:
    """Write a comparison into a JSON file and return its path."""
    write_text(path, json.dumps(comparison, indent=2))
    return path


def comparison_lines(comparison: Config) -> list[str]:
    """Return the tables as lines of a terminal, and the warnings."""
    header = ("experiment", "policy", "seeds", "mean [95% CI]", "interquartile mean [95% CI]", "env steps")
    rows = [
        (
            each["name"],
            each["policy"],
            str(each["num_ended"]),
            estimate_text(each["mean"]),
            estimate_text(each["iqm"]),
            _steps_text([row["env_step"] for row in each["seeds"] if "eval_value" in row]),
        )
        for each in comparison["experiments"]
    ]
    pairs = comparison["probability_of_improvement"]
    return [
        f"{comparison['env']}: returns of the last models, each a fresh evaluation",
        *aligned([header, *rows]),
        "",
        "probability of improvement [95% CI]; 0.5: no difference",
        *aligned([(f"P({pair['better']} > {pair['than']})", estimate_text(pair)) for pair in pairs]),
        *(f"warning: {text}" for text in comparison["warnings"]),
    ]


def _seed_warnings(named: Sequence[tuple[str, Experiment]]) -> list[str]:
    warnings = []
    for name, experiment in named:
        count, all_seeds = len(experiment.scores), len(experiment.members)
        if count < all_seeds:
            warnings.append(f"{name}: {all_seeds - count} of {all_seeds} seeds have not ended and do not count")
        if count == 1:
            warnings.append(f"{name} has one seed: it has no interval, and is no evidence about another seed")
        elif count < _FEW_SEEDS:
            warnings.append(f"{name} has {count} seeds: intervals of fewer than {_FEW_SEEDS} are too narrow")
    return warnings


def _budget_warnings(named: Sequence[tuple[str, Experiment]]) -> list[str]:
    steps = {name: [int(member.result["env_step"]) for member in each.ended] for name, each in named}
    every = [step for some in steps.values() for step in some]
    if max(every) <= min(every) * (1 + _SAME_BUDGET):
        return []
    stopped = [name for name, each in named if any(member.result["stop"] for member in each.ended)]
    why = f"; {' and '.join(stopped)} ended early at stop_value, which env.stop_value=1e9 switches off"
    listed = ", ".join(f"{name} {_steps_text(some)}" for name, some in steps.items())
    return [f"the last models are of different numbers of env steps: {listed}{why if stopped else ''}"]


def _steps_text(steps: Sequence[int]) -> str:
    low, high = min(steps), max(steps)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
