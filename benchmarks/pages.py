"""Put what was recorded into pages: of docs/learning tables and pictures; of the rest, tables into pages of docs.

`ding list` and `ding info` read what of it is of shipped configs from ding_like/report/recorded.json.

python -m benchmarks.pages            # after python -m tests.learning.record ... --out docs/learning/NAME.json
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import (
    first_hour_page,
    imitation_page,
    machine_page,
    offline_page,
    parallel_page,
    ray_page,
    results_page,
    seed_page,
    stop_values_page,
    teams_page,
    weights_page,
)
from ding_like.report import recorded as recorded_runs

DOCS = Path(__file__).resolve().parents[1] / "docs"
# What stands between these lines of a page is written here.
BEGIN, END = "<!-- recorded: {name} -->", "<!-- end of recorded -->"
# The mean return that a config is held to.
BARS = {
    "cartpole": 475.0,
    "cartpole_hidden": 400.0,
    "cartpole_hidden_r2d2": 475.0,
    "cartpole_trex": 450.0,
    "cartpole_trex_reversed": 50.0,  # not to be reached
    "cartpole_drex": 450.0,
    "acrobot": -100.0,
    "acrobot_dqn": -90.0,
    "mountain_car": -110.0,
    "pendulum": -200.0,
    "pendulum_bc": -163.0,
    "pendulum_gail": -163.0,
    "pendulum_hidden": -300.0,
    "lunarlander_dqn": 200.0,
    "lunarlander_ppo": 250.0,
    "lunarlander_cont_sac": 260.0,
    "bipedalwalker": 280.0,
    "bitflip": 0.95,
    "fetchreach": -4.0,
    "cliffwalking": -13.0,
    "frozen_lake": 1.0,
    "taxi": 7.0,
    "chain": 1.0,
    "gym_hybrid": 1.53,  # 80 % of docs/reports/gym_hybrid_moving_optimum.json
}


def bar_of(name: str) -> float:
    """Return the bar of a record: that of the longest name that it begins with."""
    return BARS[max((env for env in BARS if name.startswith(env)), key=len)]


def table(record: Mapping[str, Any]) -> str:
    """Return the recorded runs as a table in Markdown."""
    lines = [
        f"| seed | fresh {record['episodes']} episodes | env steps | updates | wall, s |",
        "|---|---|---|---|---|",
    ]
    for run in record["runs"]:
        lines.append(
            f"| {run['seed']} | {_value(run['eval_value'])} | {run['env_step']:,} | {run['train_iter']:,} "
            f"| {run['wall_s']:.0f} |"
        )
    return "\n".join(lines)


def recorded(name: str, record: Mapping[str, Any]) -> str:
    """Return everything that stands between the two marks of a page."""
    is_ablation = "variants" in record
    rows = ablation_table(record) if is_ablation else table(record)
    what = "evaluations of each variant" if is_ablation else "evaluations of each seed"
    return f"{BEGIN.format(name=name)}\n\n{rows}\n\n![{name}: {what}]({name}.png)\n\n{END}"


def fill(page: str, records: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a page with all its recorded parts written afresh."""

    def written(found: re.Match[str]) -> str:
        name = found["name"]
        return recorded(name, records[name]) if name in records else _unrecorded(name)

    return re.sub(r"<!-- recorded: (?P<name>\w+) -->.*?<!-- end of recorded -->", written, page, flags=re.DOTALL)


def _unrecorded(name: str) -> str:
    return f"{BEGIN.format(name=name)}\n\nNot recorded yet.\n\n{END}"


def fill_index(index: str, records: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the index with its marked rows (`| who <!-- NAME --> |`) written afresh, where there is a record."""

    def written(found: re.Match[str]) -> str:
        record = records.get(found["name"])
        return found[0] if record is None else f"{found['who']} | {index_row(record)}"

    return re.sub(r"^(?P<who>\|.*<!-- (?P<name>\w+) -->) \|.*$", written, index, flags=re.MULTILINE)


def index_row(record: Mapping[str, Any]) -> str:
    """Return what the index says of a record, behind who it is."""
    median, worst = record["median_eval_value"], record["worst_eval_value"]
    steps, most = record["median_env_step"], record["most_env_steps"]
    return f"`{record['config']}` | {_value(median)} | {_value(worst)} | {steps:,} | {most:,} |"


def _value(value: float) -> str:
    """Return a mean return, small ones (shares of goals that were reached) with one more place."""
    return f"{value:.2f}" if abs(value) < 2 else f"{value:.1f}"


def load() -> dict[str, dict[str, Any]]:
    """Return what was recorded, by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted((DOCS / "learning").glob("*.json"))}


def draw(name: str, record: Mapping[str, Any], path: Path) -> None:
    """Draw the evaluations of every seed, and what the last model is worth on fresh episodes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.2, 3.4), dpi=80, layout="constrained")
    of_steps = bool(record["most_env_steps"])  # else the runs collect nothing
    for run in record["runs"]:
        steps, means = zip(*run["history"], strict=True)
        (line,) = axes.plot(steps, means, linewidth=1.2, alpha=0.8, label=f"seed {run['seed']}")
        axes.plot(
            run["env_step" if of_steps else "train_iter"], run["eval_value"], "o", markersize=6, color=line.get_color()
        )
    axes.axhline(bar_of(name), linestyle="--", linewidth=1, color="0.4", label="bar")
    axes.set_xlabel("env steps" if of_steps else "updates")
    axes.set_ylabel("mean return of an evaluation")
    axes.set_title(f"{name.replace('_', ' ')}: evaluations; dots: {record['episodes']} fresh episodes", fontsize=10)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path)
    pyplot.close(figure)


def draw_ablation(name: str, record: Mapping[str, Any], path: Path) -> None:
    """Draw a line for each variant: the mean of its seeds' evaluations, the first variant's above the others."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.2, 4.0), dpi=80, layout="constrained")
    for number, variant in enumerate(record["variants"]):
        histories = [run["history"] for run in variant["runs"]]
        # Not strict: a seed whose first rows took some steps more may have an evaluation less.
        evaluations = list(zip(*histories, strict=False))
        steps = [points[0][0] for points in evaluations]
        means = [sum(value for _, value in points) / len(points) for points in evaluations]
        style = dict(linewidth=2.4, color="black", zorder=3) if number == 0 else dict(linewidth=1.3)
        axes.plot(steps, means, label=variant["name"], **style)
    axes.set_xlabel("env steps")
    axes.set_ylabel("mean return of an evaluation")
    seeds = len(record["variants"][0]["runs"])
    axes.set_title(f"{name.replace('_', ' ')}: mean of {seeds} seeds, each without one part", fontsize=10)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path)
    pyplot.close(figure)


def ablation_table(record: Mapping[str, Any]) -> str:
    """Return what became of the variants as a table in Markdown."""
    lines = [
        f"| | mean of all evaluations | fresh {record['episodes']} episodes of each seed's last model |",
        "|---|---|---|",
    ]
    for variant in record["variants"]:
        values = ", ".join(f"{run['eval_value']:.0f}" for run in variant["runs"])
        lines.append(f"| {variant['name']} | {variant['mean_of_evaluations']:.0f} | {values} |")
    return "\n".join(lines)


def main() -> None:
    """Write all pictures and all recorded parts."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    records = load()
    for name, record in records.items():
        picture = draw_ablation if "variants" in record else draw
        picture(name, record, DOCS / "algorithms" / f"{name}.png")
    for path in sorted((DOCS / "algorithms").glob("*.md")):
        path.write_text(fill_index(fill(path.read_text(), records), records))
    weights_page.write()
    parallel_page.write()
    ray_page.write()
    seed_page.write()
    imitation_page.write()
    offline_page.write()
    teams_page.write()
    stop_values_page.write()
    first_hour_page.write()
    machine_page.write()
    results_page.write()
    recorded_runs.FILE.write_text(recorded_runs.summaries({**records, **results_page.load()}))


if __name__ == "__main__":
    main()
