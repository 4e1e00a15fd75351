"""The page on parallel runs says what the reports say."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/parallel.md").read_text()


def figures(name: str) -> dict[str, Any]:
    report = json.loads((ROOT / f"docs/reports/chaos_{name}.json").read_text())
    assert all(check["ok"] for check in report["checks"]), f"{name} has missed a bar, and the page says otherwise"
    found: dict[str, Any] = report["figures"]
    return found


def test_the_table_of_faults_is_that_of_the_reports() -> None:
    kills, restarts, cuts = figures("worker_kills"), figures("coordinator_kills"), figures("partitions")
    segments, traffic = figures("bad_segments"), figures("bad_traffic")
    back = [cut["back_s"] for cut in cuts["back_s"]]
    rows = [
        f"| 0 of {kills['rows']:,} rows | 0 | {_two(kills['collector_back_s'])} |",
        f"| 0 saved updates | 0 | {_two(kills['learner_back_s'])} |",
        f"| 0 of {restarts['rows']:,} rows | 0 | {_two(restarts['ready_s'])} (to answer), "
        f"{_two(restarts['all_back_s'])} (all workers) |",
        f"| 0 of {cuts['rows']:,} rows | 0 | {statistics.median(back):.2f}, {max(back):.2f} (after healing) |",
        f"| 0 bad rows trained on | 0 | {segments['slowest_batch_s']:.2f} (slowest batch) |",
        f"| 0 of {traffic['rows']:,} rows | 0 | - |",
    ]

    assert [row for row in rows if row not in PAGE] == []


def _two(spread: dict[str, float]) -> str:
    return f"{spread['median']:.2f}, {spread['worst']:.2f}"


def test_the_table_of_loads_is_that_of_the_benchmark() -> None:
    lines = [json.loads(line) for line in (ROOT / "benchmarks/results/coordinator.jsonl").read_text().splitlines()]
    rows = [
        f"| {each['case'].replace(':', ', ')} | {each['requests_per_s']:,.0f} | {each['p50_ms']:,.1f} | "
        f"{each['p99_ms']:,.0f} | {each['errors']} | {each['lost']} | {each['doubled']} | {each['rss_mb']:,.0f} |"
        for each in lines
        if "case" in each
    ]

    assert len(rows) == 2 and [row for row in rows if row not in PAGE] == []
