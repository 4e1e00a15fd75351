"""The page on parallel runs says what the reports say."""

from __future__ import annotations

import json
from pathlib import Path

from tests.chaos.page import table

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/parallel.md").read_text()


def test_the_table_of_faults_is_that_of_the_reports() -> None:
    assert table() in PAGE


def test_the_table_of_loads_is_that_of_the_benchmark() -> None:
    lines = [json.loads(line) for line in (ROOT / "benchmarks/results/coordinator.jsonl").read_text().splitlines()]
    rows = [
        f"| {each['case'].replace(':', ', ')} | {each['requests_per_s']:,.0f} | {each['p50_ms']:,.1f} | "
        f"{each['p99_ms']:,.0f} | {each['errors']} | {each['lost']} | {each['doubled']} | {each['rss_mb']:,.0f} |"
        for each in lines
        if "case" in each
    ]

    assert len(rows) == 2 and [row for row in rows if row not in PAGE] == []
