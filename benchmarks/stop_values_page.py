"""Make what docs/di_engine_stop_values.md says of DI-engine's config files, run towards their own stop_value."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.ray_page import NOT_YET, REPORTS, ROOT, fill

PAGE = ROOT / "docs" / "di_engine_stop_values.md"
REPORT = REPORTS / "di_engine_stop_values.json"

Row = Mapping[str, Any]  # Any: what a JSON file holds


def table(rows: Sequence[Row]) -> str:
    """Return a line for each file, without and with `--di-engine`: what its random seeds came to."""
    if not rows:
        return NOT_YET
    lines = [
        "| file | `--di-engine` | env | stop value | reached | env steps of each seed | fresh episodes of each seed |",
        "|---|---|---|---|---|---|---|",
    ]
    for (config, is_switched), group in groupby(rows, key=lambda row: (row["config"], is_with_switch(row))):
        runs = list(group)
        reached = f"{sum(run['reached'] for run in runs)} of {len(runs)}"
        steps = ", ".join(f"{run['env_step']:,}" for run in runs)
        fresh = ", ".join(f"{run['fresh_value']:.0f}" for run in runs)
        env, stop = runs[0]["env_id"], runs[0]["stop_value"]
        switch = "with" if is_switched else "without"
        lines.append(f"| `{Path(config).name}` | {switch} | {env} | {stop:g} | {reached} | {steps} | {fresh} |")
    return "\n".join(lines)


def is_with_switch(row: Row) -> bool:
    """Tell whether a run took DI-engine's defaults."""
    return "--di-engine" in row["arguments"]


def parts() -> dict[str, str]:
    """Return the measured part of the page by its name."""
    rows = json.loads(REPORT.read_text())["runs"] if REPORT.is_file() else []
    return {"stop_values": table(rows)}


def write() -> None:
    """Write the measured part of the page."""
    PAGE.write_text(fill(PAGE.read_text(), parts()))
