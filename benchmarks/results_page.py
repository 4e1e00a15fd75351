"""Write docs/results.md from docs/results/*.json, which `tests.learning.learn` records: tables and curves."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.provenance import ROOT
from tests.learning.learn import BUDGETS, Budget

DOCS = ROOT / "docs"
RESULTS = DOCS / "results"
_MARK = re.compile(r"<!-- results: (?P<group>\w+) -->.*?<!-- end of results -->", re.DOTALL)
_HEAD = "| | env steps | return, median | lowest to highest | seeds | CPU-hours | published | recorded from |"
_LABELS = {name: name.upper() for name in "sac tqc ppo pqn sb3 mappo qmix maddpg masac".split()}
_LABELS |= {"crossq": "CrossQ", "rainbow": "Rainbow"}
Records = dict[str, dict[str, Any]]


class Group(NamedTuple):
    """Results that stand in one table, and in one picture with a panel for each env."""

    names: tuple[str, ...]
    panels: dict[str, tuple[str, ...]]  # title -> what is drawn there
    by_cpu: bool = False


def _minatar() -> Group:
    games = ("asterix", "breakout", "freeway", "seaquest", "spaceinvaders")
    panels = {game: tuple(f"minatar_{game}_{policy}" for policy in ("ppo", "pqn")) for game in games}
    return Group(tuple(name for names in panels.values() for name in names), panels)


def _teams() -> Group:
    tasks = ("simple_spread", "speaker_listener")
    panels = {task: tuple(f"{task}_{policy}" for policy in ("mappo", "qmix", "maddpg")) for task in tasks}
    names = tuple(name for task, own in panels.items() for name in (*own, f"{task}_random"))
    return Group(names, panels)


_MAMUJOCO = ("halfcheetah_2x3_mappo", "halfcheetah_2x3_masac")
_CHEETAH = ("halfcheetah_crossq", "halfcheetah_tqc", "halfcheetah_sac", "halfcheetah_sac_sb3")
_PPO = ("halfcheetah_ppo", "hopper_ppo", "walker2d_ppo")
_BEST = tuple(f"{env}_crossq_200k" for env in ("halfcheetah", "hopper", "walker2d", "ant"))
_PONG = ("pong_ppo", "pong_rainbow")
GROUPS = {
    "cheetah": Group(_CHEETAH, {"HalfCheetah-v5": _CHEETAH}, by_cpu=True),
    "best": Group(_BEST, {name: (name,) for name in _BEST}),
    "mujoco_ppo": Group(_PPO, {name: (name,) for name in _PPO}),
    "minatar": _minatar(),
    "teams": _teams(),
    "mamujoco": Group(_MAMUJOCO, {name: (name,) for name in _MAMUJOCO}),
    "pong": Group(_PONG, {"Pong": _PONG}),
}


def load() -> Records:
    """Return what is recorded, by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}


def table(names: Iterable[str], records: Records) -> str:
    """Return the results as a table in Markdown; those that are not recorded stand there as such."""
    rows = [_row(name, BUDGETS[name], records.get(name)) for name in names]
    return "\n".join([_HEAD, "|---" * _HEAD.count(" |") + "|", *rows])


def _row(name: str, budget: Budget, record: Mapping[str, Any] | None) -> str:
    published = "" if budget.published is None else f"{budget.published:,g} ({budget.source})"
    if record is None:
        return f"| `{name}` | {budget.env_step:,} | not recorded yet | | | | {published} | |"
    runs = record["runs"]
    values = [run["eval_value"] for run in runs]
    hours = statistics.median(run["cpu_s"] for run in runs) / 3600
    commits = sorted({run.get("commit") or run["version"] for run in runs})
    cells = (
        f"`{name}`",
        f"{max(run['env_step'] for run in runs):,}",
        f"{statistics.median(values):,.1f}",
        f"{min(values):,.1f} to {max(values):,.1f}",
        f"{len(values)} of {budget.seeds}",
        f"{hours:.2f}",
        published,
        ", ".join(commits),
    )
    return f"| {' | '.join(cells)} |"


def draw(group: Group, records: Records, path: Path) -> None:
    """Draw the evaluations of all seeds: their mean as a line, the lowest to the highest as a band."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = {title: names for title, names in group.panels.items() if set(names) & set(records)}
    size = (min(3.4 * len(panels), 12.0) + 1.6, 3.6)
    figure, axes = pyplot.subplots(1, len(panels), figsize=size, dpi=80, layout="constrained", squeeze=False)
    for panel, (title, names) in zip(axes[0], panels.items(), strict=True):
        for name in (name for name in names if name in records):
            x, low, mean, high = _curve(records[name], by_cpu=group.by_cpu)
            (line,) = panel.plot(x, mean, linewidth=1.6, label=_label(name))
            panel.fill_between(x, low, high, alpha=0.2, color=line.get_color(), linewidth=0)
        for place, value in enumerate(sorted({BUDGETS[name].published for name in names} - {None})):
            label = None if place else "published"
            panel.axhline(value, linestyle="--", linewidth=1, color="0.4", label=label)
        panel.set_title(title, fontsize=10)
        panel.set_xlabel("CPU-hours" if group.by_cpu else "env steps")
        if not group.by_cpu:
            panel.xaxis.set_major_formatter(lambda value, _: f"{value / 1e6:g}M")
            panel.locator_params(axis="x", nbins=5)
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(fontsize=7, frameon=False)
    axes[0][0].set_ylabel("mean return of an evaluation")
    figure.savefig(path)
    pyplot.close(figure)


def _curve(record: Mapping[str, Any], *, by_cpu: bool) -> tuple[Any, Any, Any, Any]:
    """Return places [P], and the lowest, mean and highest evaluation of the seeds there [P].

    Of processor time, an evaluation's is its share of the run's env steps.
    """
    runs = record["runs"]
    # Not strict: a seed may have an evaluation less.
    points = np.array([list(each) for each in zip(*(run["history"] for run in runs), strict=False)])  # [P, S, 2]
    x = points[:, 0, 0]
    if by_cpu:
        x = x * statistics.median(run["cpu_s"] / run["env_step"] for run in runs) / 3600
    values = points[:, :, 1]
    return x, values.min(axis=1), values.mean(axis=1), values.max(axis=1)


def _label(name: str) -> str:
    """Return the policy that a curve is of: `halfcheetah_sac_sb3` is 'SAC, SB3'."""
    policy, *peer = [part for part in name.split("_") if part in _LABELS]
    return ", ".join(_LABELS[part] for part in (policy, *peer))


def fill(page: str, records: Records) -> str:
    """Return the page with its tables and pictures written afresh."""

    def written(found: re.Match[str]) -> str:
        name = found["group"]
        group = GROUPS[name]
        picture = (
            f"![{name}: evaluations of all seeds](results/{name}.png)\n\n" if set(group.names) & set(records) else ""
        )
        return f"<!-- results: {name} -->\n\n{table(group.names, records)}\n\n{picture}<!-- end of results -->"

    return _MARK.sub(written, page)


def write() -> None:
    """Write the page and its pictures."""
    records = load()
    for name, group in GROUPS.items():
        if set(group.names) & set(records):
            draw(group, records, RESULTS / f"{name}.png")
    page = DOCS / "results.md"
    page.write_text(fill(page.read_text(), records))


if __name__ == "__main__":
    write()
