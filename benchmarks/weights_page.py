"""Make what docs/weights.md says of measurements: how long weights take, and our updater beside TorchRL's."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "weights.md"
PICTURE = ROOT / "docs" / "weights.png"
UPDATER = ROOT / "docs" / "reports" / "weight_updater_torchrl.json"
SIZES = {"weights_10mb": "10 MB", "weights_100mb": "100 MB"}
AGAINST = "pipe_pickle"
NAMES = {
    "ours_files": "files in memory",
    "ours_rest_files": "files, announced by a coordinator",
    "ours_rest_stream": "files, streamed by a coordinator",
    "ours_updater": "DistributedWeightUpdater, gloo",
    "pipe_pickle": "a pipe of pickles",
    "pipe_pickle_tensors": "the same, tensors pickled as they are",
    "queue_pickle": "a queue of pickles",
    "torch_queue": "a queue of torch.multiprocessing",
    "torchrl_shared_memory": "TorchRL, SharedMemWeightSyncScheme",
    "torchrl_queues": "TorchRL, MultiProcessWeightSyncScheme",
    "torchrl_updater": "TorchRL, DistributedWeightUpdater, gloo",
}
_METRICS = ("applied_p50", "applied_least", "send_blocks_p50", "sender_cpu_p50")

Figures = Mapping[tuple[str, str], float]  # by name and metric


def load_figures() -> dict[str, Figures]:
    """Return what was measured, by benchmark."""
    found = {}
    for benchmark in SIZES:
        lines = (ROOT / "benchmarks" / "results" / f"{benchmark}.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        found[benchmark] = {(row["name"], row["metric"]): row["value"] for row in rows if "metric" in row}
    return found


def times_table(found: Mapping[str, Figures]) -> str:
    """Return the times as a table in Markdown: a row for each way, both sizes side by side."""
    head = [f"{size}, ms" for size in SIZES.values()]
    columns = [f"{name} | least | learner waits | its CPU | x pipe" for name in head]
    lines = [f"| to 4 workers, all applied | {' | '.join(columns)} |", "|---" * (1 + 5 * len(SIZES)) + "|"]
    for name, said in NAMES.items():
        cells = [cell for figures in found.values() for cell in _cells(name, figures)]
        lines.append(f"| {said} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cells(name: str, figures: Figures) -> list[str]:
    if (name, _METRICS[0]) not in figures:
        return ["-"] * 5
    times = figures[AGAINST, "applied_p50"] / figures[name, "applied_p50"]
    return [*(_number(figures[name, metric]) for metric in _METRICS), "1" if name == AGAINST else f"{times:.1f}"]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def updater_summary(report: Mapping[str, Any]) -> str:
    """Return in Markdown how many comparisons were equal, and how many differ on purpose."""
    cases = report["cases"]
    num_equal = sum(len(case["equal"]) for case in cases)
    num_meant = sum(len(case["on_purpose"]) for case in cases)
    num_unexpected = sum(len(case["unexpected"]) for case in cases)
    lines = [
        f"{len(cases)} cases over the same fake store, TorchRL {report['versions']['torchrl']}: {num_equal} "
        f"comparisons are equal, {num_meant} differ on purpose, {num_unexpected} differ without.",
        "",
        _crossed(report["crossed"]),
    ]
    return "\n".join(lines)


def _crossed(crossed: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    pushes = {trainer: _num_right(found) for trainer, found in crossed.items()}
    workers = len(next(iter(crossed.values()))[0]["workers"])
    return (
        f"Over a real TCPStore and gloo, {workers} workers in processes of their own had the trainer's weights after "
        f"{pushes['torchrl']} pushes of TorchRL's updater to our workers, and after {pushes['ours']} of ours to "
        "workers by TorchRL's words."
    )


def _num_right(found: Sequence[Mapping[str, Any]]) -> str:
    right = sum(each["workers"] == [each["trainer"]] * len(each["workers"]) for each in found)
    return f"{right} of {len(found)}"


def parts() -> dict[str, str]:
    """Return what stands between the marks of the page, by name."""
    picture = f"![milliseconds until four workers have the weights]({PICTURE.name})"
    return {
        "weights": f"{times_table(load_figures())}\n\n{picture}",
        "weight_updater": updater_summary(json.loads(UPDATER.read_text())),
    }


def fill(page: str, written: Mapping[str, str]) -> str:
    """Return the page with its measured parts written afresh."""

    def between(found: re.Match[str]) -> str:
        return f"<!-- measured: {found['name']} -->\n\n{written[found['name']]}\n\n<!-- end of measured -->"

    return re.sub(r"<!-- measured: (?P<name>\w+) -->.*?<!-- end of measured -->", between, page, flags=re.DOTALL)


def draw(found: Mapping[str, Figures], path: Path) -> None:
    """Draw the median and the least time of each way, a panel for each size."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    figure, panels = pyplot.subplots(1, len(found), figsize=(9.0, 4.2), dpi=80, layout="constrained", sharey=True)
    names = list(reversed(NAMES))
    for axes, (benchmark, figures) in zip(panels, found.items(), strict=True):
        for place, name in enumerate(names):
            if (name, "applied_p50") in figures:
                color = "C0" if name.startswith("ours") else "C1" if name.startswith("torchrl") else "0.6"
                axes.barh(place, figures[name, "applied_p50"], height=0.7, color=color)
                axes.plot(figures[name, "applied_least"], place, "|", color="black", markersize=7)
        axes.set_xscale("log")
        # 10, 30, 100, 300: left to itself a scale over less than two decades writes over its own numbers.
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("ms until all four have them; |: least")
        axes.set_title(SIZES[benchmark], fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3, axis="x")
    panels[0].set_yticks(range(len(names)), [NAMES[name] for name in names], fontsize=8)
    figure.savefig(path)
    pyplot.close(figure)


def write() -> None:
    """Write the picture and the measured parts of the page."""
    draw(load_figures(), PICTURE)
    PAGE.write_text(fill(PAGE.read_text(), parts()))
