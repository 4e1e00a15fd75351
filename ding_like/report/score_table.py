"""Say what the seeds of an experiment are worth, as a table: printed, `scores.md` and `scores.json`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ding_like.report.experiment import Experiment, Member
from ding_like.report.interval import bootstrap_interval
from ding_like.report.scores import CONFIDENCE, RESAMPLES, Estimate, estimate, interquartile_mean, mean
from ding_like.report.text import clock, interval, measure
from ding_like.utils.files import atomic_write
from ding_like.utils.seeding import make_rng

_HEADER = ("seed", "state", "last model returns", "95% CI", "best", "env steps", "updates", "time")


def summary_of(experiment: Experiment) -> dict[str, Any]:
    """Return the scores of an experiment as JSON holds them; without an ended seed the means are None."""
    scores = experiment.scores
    means = {
        name: _as_json(estimate(scores, statistic) if scores else None)
        for name, statistic in (("mean", mean), ("iqm", interquartile_mean))
    }
    return {
        "format": 1,
        "name": experiment.name,
        "env": experiment.env,
        "policy": experiment.policy,
        "num_seeds": len(experiment.members),
        "num_ended": len(scores),
        "scores": scores,
        **means,
        "confidence": CONFIDENCE,
        "resamples": RESAMPLES,
        "seeds": [_seed_row(experiment, member) for member in experiment.members],
    }


def write_scores(experiment: Experiment) -> dict[str, Any]:
    """Write `scores.json` and `scores.md` into the experiment's folder and return what the first one holds."""
    summary = summary_of(experiment)
    with atomic_write(experiment.folder / "scores.json") as file:
        file.write(json.dumps(summary, indent=2).encode())
    with atomic_write(experiment.folder / "scores.md") as file:
        file.write(markdown(summary).encode())
    return summary


def table_lines(summary: dict[str, Any]) -> list[str]:
    """Return the table as lines of a terminal, and below it mean and interquartile mean."""
    rows = [_HEADER, *(_cells(row) for row in summary["seeds"])]
    return [*aligned(rows), *_mean_lines(summary)]


def markdown(summary: dict[str, Any]) -> str:
    """Return the table as Markdown."""
    rows = [_HEADER, tuple("---" for _ in _HEADER), *(_cells(row) for row in summary["seeds"])]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    title = f"# {summary['name']}: {summary['policy']} on {summary['env']}"
    return f"{title}\n\n{table}\n\n" + "\n".join(f"- {line}" for line in _mean_lines(summary)) + "\n"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of equally many cells as lines, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def said(estimated: dict[str, Any] | None) -> str:
    """Return a value of `summary_of` with its interval."""
    if estimated is None:
        return "-"
    ends = estimated["interval"]
    return measure(estimated["value"]) + (f" {interval(*ends)}" if ends else "")


def _mean_lines(summary: dict[str, Any]) -> list[str]:
    ended, seeds = summary["num_ended"], summary["num_seeds"]
    if not ended:
        return [f"no seed of {seeds} has ended yet"]
    of = f"{ended} seeds" if ended == seeds else f"{ended} of {seeds} seeds; the others have not ended"
    if ended == 1:
        return [f"mean {said(summary['mean'])} of {of}: one seed says nothing about the next; give five or more"]
    return [
        f"mean {said(summary['mean'])}, interquartile mean {said(summary['iqm'])} of {of}",
        "95% intervals by bootstrap over seeds; a seed's own is over its evaluation's episodes",
    ]


def _seed_row(experiment: Experiment, member: Member) -> dict[str, Any]:
    result = member.result
    row: dict[str, Any] = {"seed": member.seed, "state": state_of(member), "folder": _below(experiment, member)}
    if result:
        returns = result["eval_value_raw"]
        row |= {
            "eval_value": result["eval_value"],
            "eval_interval": list(bootstrap_interval(returns, rng=make_rng(0, "interval"))),
            "episodes": len(returns),
            **{name: result[name] for name in ("stop", "env_step", "train_iter", "duration_s")},
        }
    elif member.run is not None:
        last = member.run.evaluation if len(member.run.evaluation) else member.run.training
        row["env_step"] = int(last.env_step[-1])
    if result.get("best_eval") is not None:
        row["best_eval"] = result["best_eval"]
    elif member.run is not None and len(member.run.evaluation):
        row["best_eval"] = float(member.run.evaluation.mean.max())
    return row


def state_of(member: Member) -> str:
    """Return how a seed stands in words."""
    if member.has_ended:
        return "reached stop_value" if member.result["stop"] else "ended"
    return "not ended" if member.run is not None else "not begun"


def _below(experiment: Experiment, member: Member) -> str:
    folder, base = member.folder.resolve(), experiment.folder.resolve()
    return str(folder.relative_to(base)) if folder.is_relative_to(base) else str(member.folder)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    def number(name: str) -> str:
        return f"{row[name]:,}" if name in row else "-"

    return (
        "?" if row["seed"] is None else str(row["seed"]),
        row["state"],
        measure(row["eval_value"]) if "eval_value" in row else "-",
        interval(*row["eval_interval"]) if "eval_interval" in row else "-",
        measure(row["best_eval"]) if "best_eval" in row else "-",
        number("env_step"),
        number("train_iter"),
        clock(row["duration_s"]) if "duration_s" in row else "-",
    )


def _as_json(estimated: Estimate | None) -> dict[str, Any] | None:
    if estimated is None:
        return None
    return {"value": estimated.value, "interval": None if estimated.interval is None else list(estimated.interval)}
