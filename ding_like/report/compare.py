"""Compare experiments over their seeds: means, interquartile means, and how probable it is that one beats another."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ding_like.errors import ConfigError
from ding_like.report.curve import curves_of_seeds
from ding_like.report.experiment import Experiment
from ding_like.report.plot import COLOURS, Curve, Plot
from ding_like.report.score_table import aligned, summary_of
from ding_like.report.scores import (
    CONFIDENCE,
    RESAMPLES,
    Estimate,
    estimate,
    improvement,
    interquartile_mean,
    mean,
)
from ding_like.report.text import interval, measure
from ding_like.utils.files import atomic_write

# Env steps of experiments that differ by more than this share are not the same budget.
_SAME_BUDGET = 0.05
_FEW_SEEDS = 5  # below which intervals are known to be too narrow


@dataclass(frozen=True)
class Entry:
    """Hold what one experiment is worth."""

    name: str
    experiment: Experiment
    scores: tuple[float, ...]  # of its last models, a fresh evaluation each
    mean: Estimate
    iqm: Estimate


@dataclass(frozen=True)
class Pair:
    """Hold how probable it is that a run of `better` scores more than one of `than`."""

    better: str
    than: str
    probability: Estimate


@dataclass(frozen=True)
class Comparison:
    """Hold a comparison of experiments on one env."""

    env: str
    entries: tuple[Entry, ...]
    pairs: tuple[Pair, ...]  # every two of them, in the order that they were given
    warnings: tuple[str, ...]  # why its figures may mislead


def compare_experiments(experiments: Sequence[Experiment]) -> Comparison:
    """Return how experiments compare by the fresh evaluations of their last models.

    Raises ConfigError for fewer than two, for different envs, and for one in which no seed has ended.
    """
    if len(experiments) < 2:
        named = f"only '{experiments[0].folder}'" if experiments else "nothing"
        raise ConfigError(f"{named} to compare; give two experiments at least:  ding compare A B")
    _refuse_other_envs(experiments)
    for each in experiments:
        if not each.scores:
            raise ConfigError(
                f"no seed of '{each.folder}' has ended, so that no last model is evaluated; go on with  ding --resume "
                f"{each.folder}  or look at the curves:  ding plot {' '.join(str(one.folder) for one in experiments)}"
            )
    entries = tuple(
        Entry(name, each, tuple(each.scores), estimate(each.scores, mean), estimate(each.scores, interquartile_mean))
        for name, each in zip(names_of(experiments), experiments, strict=True)
    )
    pairs = tuple(
        Pair(first.name, second.name, improvement(first.scores, second.scores))
        for first, second in itertools.combinations(entries, 2)
    )
    return Comparison(experiments[0].env, entries, pairs, tuple(_warnings(entries)))


def names_of(experiments: Sequence[Experiment]) -> list[str]:
    """Return short names that tell experiments apart: the folder's, with as many of its parents as that takes."""
    paths = [each.folder.resolve().parts for each in experiments]
    for depth in range(1, max(map(len, paths)) + 1):
        names = ["/".join(parts[-depth:]) for parts in paths]
        if len(set(names)) == len(names):
            return names
    return [str(each.folder) for each in experiments]


def _refuse_other_envs(experiments: Sequence[Experiment]) -> None:
    envs = {each.env for each in experiments}
    if len(envs) > 1:
        named = ", ".join(f"{each.folder} is of {each.env or 'an env without a name'}" for each in experiments)
        raise ConfigError(f"scores of different envs do not compare: {named}. Give experiments of one env at a time.")


def _warnings(entries: Sequence[Entry]) -> list[str]:
    said = []
    for entry in entries:
        count, all_seeds = len(entry.scores), len(entry.experiment.members)
        if count < all_seeds:
            said.append(f"{entry.name}: {all_seeds - count} of {all_seeds} seeds have not ended and do not count")
        if count == 1:
            said.append(f"{entry.name} has one seed: it has no interval, and says nothing about another seed")
        elif count < _FEW_SEEDS:
            said.append(f"{entry.name} has {count} seeds: intervals of fewer than {_FEW_SEEDS} are too narrow")
    return [*said, *_budget_warning(entries)]


def _budget_warning(entries: Sequence[Entry]) -> list[str]:
    steps = {entry.name: entry.experiment.env_steps for entry in entries}
    lowest, highest = min(low for low, _ in steps.values()), max(high for _, high in steps.values())
    if highest <= lowest * (1 + _SAME_BUDGET):
        return []
    named = ", ".join(f"{name} {steps_text(*ends)}" for name, ends in steps.items())
    stopped = [entry.name for entry in entries if entry.experiment.stopped]
    why = f"; {' and '.join(stopped)} ended early at stop_value, which env.stop_value=1e9 switches off"
    why = why if stopped else ""
    return [f"the last models are of different numbers of env steps: {named}{why}"]


def steps_text(low: int, high: int) -> str:
    """Return a range of env steps."""
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def comparison_lines(comparison: Comparison) -> list[str]:
    """Return the tables as lines of a terminal, and the warnings."""
    header = ("experiment", "policy", "seeds", "mean [95% CI]", "interquartile mean [95% CI]", "env steps")
    rows = [
        (
            entry.name,
            entry.experiment.policy,
            str(len(entry.scores)),
            estimate_text(entry.mean),
            estimate_text(entry.iqm),
            steps_text(*entry.experiment.env_steps),
        )
        for entry in comparison.entries
    ]
    wins = [(f"P({pair.better} > {pair.than})", estimate_text(pair.probability)) for pair in comparison.pairs]
    return [
        f"{comparison.env}: returns of the last models, each a fresh evaluation",
        *aligned([header, *rows]),
        "",
        "probability of improvement [95% CI]; 0.5: no difference",
        *aligned(wins),
        *(f"warning: {text}" for text in comparison.warnings),
    ]


def estimate_text(found: Estimate) -> str:
    """Return a value with its interval."""
    return measure(found.value) + (f" {interval(*found.interval)}" if found.interval else "")


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Return what `compare.json` holds."""
    return {
        "format": 1,
        "env": comparison.env,
        "confidence": CONFIDENCE,
        "resamples": RESAMPLES,
        "experiments": [
            {**summary_of(entry.experiment), "name": entry.name, "folder": str(entry.experiment.folder)}
            for entry in comparison.entries
        ],
        "probability_of_improvement": [
            {
                "better": pair.better,
                "than": pair.than,
                "value": pair.probability.value,
                "interval": None if pair.probability.interval is None else list(pair.probability.interval),
            }
            for pair in comparison.pairs
        ],
        "warnings": list(comparison.warnings),
    }


def write_comparison(comparison: Comparison, path: Path) -> Path:
    """Write `comparison_json` into a file and return its path."""
    with atomic_write(path) as file:
        file.write(json.dumps(comparison_json(comparison), indent=2).encode())
    return path


def colour_of(index: int) -> str:
    """Return the colour of the experiment of a number."""
    return COLOURS[index % len(COLOURS)]


def curves_plot(comparison: Comparison) -> Plot:
    """Return the learning curves of the experiments, each with its band."""
    runs = [entry.experiment.runs for entry in comparison.entries]
    has_evaluations = all(len(run.evaluation) for several in runs for run in several)
    curves: list[Curve] = []
    for index, (entry, several) in enumerate(zip(comparison.entries, runs, strict=True)):
        curves += curves_of_seeds(entry.name, several, colour_of(index), has_evaluations=has_evaluations)
    y_label = "evaluation return" if has_evaluations else "training return, smoothed"
    return Plot(comparison.env, "mean over seeds; a run that has ended keeps its last value", y_label, curves)
