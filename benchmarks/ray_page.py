"""Make what docs/ray.md says of measurements: beside RLlib, beside our own serial, CartPole's records, what breaks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.table import BENCHMARKS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "ray.md"
RESULTS = ROOT / "benchmarks" / "results"
LEARNING = ROOT / "docs" / "learning"
REPORTS = ROOT / "docs" / "reports"
NOT_YET = "Not recorded yet."
# In the order of the page.
FAILURES = ("ray_gcs_kills",)
# Benchmarks of DQN in mode parallel and on Ray beside one process.
SERIAL = {
    "parallel_cartpole": "CartPole, a minute with the evaluations of the config",
    "parallel_cartpole_training": "CartPole, no evaluations",
    "parallel_busy_500us": "CartPole with steps of 0.5 ms",
    "parallel_busy_2ms": "of 2 ms",
    "parallel_busy_5ms": "of 5 ms",
}
ALGORITHMS = {"dqn": "DQN", "ppo": "PPO", "impala": "IMPALA"}

Found = Mapping[tuple[str, str], Mapping[str, Any]]  # rows of a result, by name and metric


def load(benchmark: str) -> Found | None:
    """Return the rows of a recorded benchmark, None if there is no recording yet."""
    path = RESULTS / f"{benchmark}.jsonl"
    if not path.exists():
        return None
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {(row["name"], row["metric"]): row for row in rows if "metric" in row}


def rllib_table(results: Mapping[str, Found | None]) -> str:
    """Return ours beside RLlib as two tables in Markdown, with the bars."""
    work, until = ["env_steps_cpu", "peak_memory"], ["cpu_to_475", "env_steps", "peak_memory"]
    lines = []
    if (found := results["ray_ppo_work"]) is not None:
        lines += [
            "| PPO, the same work on 2 processors | ours, env steps per CPU-second | RLlib's | ratio | "
            "ours, MiB of all processes | RLlib's | ratio |",
            "|---|---|---|---|---|---|---|",
        ]
        for number in ("0", "2"):
            pair = f"ours_{number}_workers", f"rllib_{number}_workers"
            lines.append(f"| {number} workers | {_pairs(found, pair, work)} |")
    solves = {name: found for name in ("ppo", "impala") if (found := results[f"ray_{name}_solve"]) is not None}
    if solves:
        lines += [
            "",
            "| Until CartPole is solved, 2 workers | ours, CPU-seconds with the cluster's start | RLlib's | "
            "ratio | ours, env steps | RLlib's | ratio | ours, MiB of all processes | RLlib's | ratio |",
            "|---|---|---|---|---|---|---|---|---|---|",
            *(f"| {ALGORITHMS[name]} | {_pairs(found, ('ours', 'rllib'), until)} |" for name, found in solves.items()),
        ]
    return "\n".join(lines) or NOT_YET


def compared(what: str, found: Found, pair: tuple[str, str], metric: str) -> str:
    """Return a row of a table in Markdown: two contenders by one metric, their ratio and its bar."""
    cells = [_cell(found, name, metric) for name in pair]
    ratio = found.get((f"{pair[0]} / {pair[1]}", metric))
    if ratio is None:
        return f"| {what} | {cells[0]} | {cells[1]} | | |"
    bar = ""
    if "bar" in ratio:
        verdict = {True: "met", False: "missed", None: "not judged"}[ratio["is_met"]]
        bar = f"{ratio.get('bar_is', 'at least')} {ratio['bar']:g}: {verdict}"
    spread = f"{ratio['value']:.2f} ({ratio['lo']:.2f} to {ratio['hi']:.2f})"
    return f"| {what} | {cells[0]} | {cells[1]} | {spread} | {bar} |"


def _pairs(found: Found, pair: tuple[str, str], metrics: Sequence[str]) -> str:
    """Return cells of a table in Markdown: two contenders by each metric, their ratio and its bar."""
    cells = []
    for metric in metrics:
        cells += [_cell(found, name, metric) for name in pair]
        ratio = found.get((f"{pair[0]} / {pair[1]}", metric))
        cells.append("" if ratio is None else f"{ratio['value']:.2f} ({ratio['lo']:.2f} to {ratio['hi']:.2f})")
        if ratio is not None and "bar" in ratio:
            verdict = {True: "met", False: "missed", None: "not judged"}[ratio["is_met"]]
            cells[-1] += f"; {ratio.get('bar_is', 'at least')} {ratio['bar']:g}: {verdict}"
    return " | ".join(cells)


def _cell(found: Found, name: str, metric: str) -> str:
    value = found[name, metric]["value"]
    text = f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"
    solved = found.get((name, "solved"))
    if metric == "peak_memory" or solved is None or solved["lo"] == 1:
        return text
    return f"{text}, {'never' if solved['hi'] == 0 else 'not always'} solved"


def serial_table() -> str:
    """Return DQN on Ray beside the same in one process, as a table in Markdown."""
    lines = [
        "| DQN | 2 workers, env steps/s | serial, env steps/s | 2 workers / serial | start-up, s |",
        "|---|---|---|---|---|",
    ]
    for benchmark, what in SERIAL.items():
        if (found := load(benchmark)) is not None:
            cells = _pairs(found, ("ours_ray", "ours_serial"), ["env_steps_wall"])
            lines.append(f"| {what} | {cells} | {found['ours_ray', 'startup']['value']:.1f} |")
    return "\n".join(lines) if len(lines) > 2 else NOT_YET


def learning_table(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Return CartPole's records on Ray beside serial's, as a table in Markdown; `records` are by name."""
    lines = [
        "| 2 workers, 5 seeds | return of 20 fresh episodes, median | worst return | env steps, median | "
        "env steps, serial | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for algorithm, what in ALGORITHMS.items():
        if (found := records.get(f"cartpole_{algorithm}_ray")) is not None:
            steps, serial = found["median_env_step"], records[f"cartpole_{algorithm}"]["median_env_step"]
            values = f"{found['median_eval_value']:.1f} | {found['worst_eval_value']:.1f}"
            lines.append(f"| {what} | {values} | {steps:,} | {serial:,} | {steps / serial:.2f} |")
    return "\n".join(lines) if len(lines) > 2 else NOT_YET


def failures_table(reports: Sequence[Mapping[str, Any]]) -> str:
    """Return the summaries of reports as one table in Markdown."""
    lines = ["| what happens | times | p50, ms | p95, ms | worst, ms | bar, ms |", "|---|---|---|---|---|---|"]
    for row in (row for report in reports for row in rows_of(report)):
        if "count" in row:
            lines.append(f"| {row['what']}: {row['count']} | {row['n']:,} | | | | |")
            continue
        times = " | ".join(f"{row[key]:,.1f}" if key in row else "" for key in ("p50_ms", "p95_ms", "worst_ms"))
        lines.append(f"| {row['what']} | {row['n']:,} | {times} | {_bar(row)} |")
    return "\n".join(lines) if len(lines) > 2 else NOT_YET


def rows_of(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what the page says of a report: what it calls its summary, or what is made of its figures here.

    A row has `what` and `n`, and either times (p50_ms, p95_ms, worst_ms; `bar_ms` is of `bar_of`) or a `count`.
    """
    if "summary" in report:
        return list(report["summary"])
    return _kill_rows(report)


def _kill_rows(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    setting, found = report["setting"], report["figures"]
    checks = {check["what"]: check for check in report["checks"]}
    who = f"{setting['kills']} workers killed in {setting['minutes']:g} minutes, gradients {setting['gradients']}"
    spoiled = [
        f"{checks[what]['found']:g} {short}"
        for what, short in (
            ("rows handed over and lost", f"of {found['rows']:,} rows handed over lost"),
            ("rows doubled, or from nowhere", "doubled"),
            ("batches drawn and lost, whole or in part", f"of {found['updates']:,} batches lost"),
            ("batches applied twice, or of no batch", "trained on twice"),
        )
    ]
    limits = {"kill to known, p95 ms": "p95_ms", "known to replaced, median ms": "p50_ms"}
    bars = [{"bar_ms": checks[what]["at_most"], "bar_of": of} if what in checks else {} for what, of in limits.items()]
    return [
        {"what": who, "n": setting["kills"], "count": ", ".join(spoiled)},
        _times("a kill until it is known", found["kill_known_ms"]) | bars[0],
        _times("known until a worker that stands by has its place", found["replaced_ms"]) | bars[1],
        _times("a kill until the next worker has brought something", found["kill_to_work_of_the_next_ms"]),
    ]


def _times(what: str, found: Mapping[str, float]) -> dict[str, Any]:
    """Return a row of a spread, as `tests.chaos.report` names its figures."""
    times = {"p50_ms": found["median"], "p95_ms": found["p95"], "worst_ms": found["worst"]}
    return {"what": what, "n": int(found["count"]), **times}


def _bar(row: Mapping[str, Any]) -> str:
    if "bar_ms" not in row:
        return ""
    of = row.get("bar_of", "worst_ms")
    verdict = "met" if row[of] <= row["bar_ms"] else "missed"
    return f"{of.removesuffix('_ms')} at most {row['bar_ms']:g}: {verdict}"


def parts() -> dict[str, str]:
    """Return what stands between the marks of the page, by name."""
    results = {name: load(name) for name in BENCHMARKS if name.startswith("ray_")}
    records = {path.stem: json.loads(path.read_text()) for path in LEARNING.glob("cartpole_*.json")}
    paths = [REPORTS / f"{name}.json" for name in FAILURES]
    return {
        "ray_rllib": rllib_table(results),
        "ray_serial": serial_table(),
        "ray_learning": learning_table(records),
        "ray_failures": failures_table([json.loads(path.read_text()) for path in paths if path.exists()]),
    }


def fill(page: str, written: Mapping[str, str]) -> str:
    """Return the page with its measured parts written afresh."""

    def between(found: re.Match[str]) -> str:
        return f"<!-- measured: {found['name']} -->\n\n{written[found['name']]}\n\n<!-- end of measured -->"

    return re.sub(r"<!-- measured: (?P<name>\w+) -->.*?<!-- end of measured -->", between, page, flags=re.DOTALL)


def write() -> None:
    """Write the measured parts of the page."""
    PAGE.write_text(fill(PAGE.read_text(), parts()))
