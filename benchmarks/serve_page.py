"""Put what was recorded of `ding serve` into its page: `python -m benchmarks.serve_page`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
PAGE, REPORT = DOCS / "serve.md", DOCS / "reports/serve.json"
_BEGIN, _END = "<!-- recorded: serve -->", "<!-- end of recorded -->"


def recorded(report: Mapping[str, Any]) -> str:
    """Return what stands between the marks."""
    load = report["kinds"]
    versions = report["answers_by_version"]
    lines = [
        f"{report['requests']:,} requests of {len(load)} clients with {report['reloads']} reloads under way took "
        f"{report['wall_s']:.1f} s on {report['machine']['cpus']} CPUs, clients included; {report['failed']} failed. "
        f"Answers by version: {', '.join(f'{count:,}' for count in versions.values())}. "
        f"The server's own p50 and p99 were {report['server']['p50_ms']:.2f} and {report['server']['p99_ms']:.2f} ms.",
        "",
        "| request | one client alone: p50, p99, ms | all at once, with reloads: p50, p99, longest, ms |",
        "|---|---|---|",
    ]
    for name, alone in report["alone"].items():
        busy = load[name]
        lines.append(
            f"| {name} | {alone['p50_ms']:.2f}, {alone['p99_ms']:.2f} "
            f"| {busy['p50_ms']:.2f}, {busy['p99_ms']:.2f}, {busy['max_ms']:.1f} |"
        )
    return "\n".join(lines)


def fill(page: str, report: Mapping[str, Any]) -> str:
    """Return the page with the recorded part written afresh."""
    written = f"{_BEGIN}\n\n{recorded(report)}\n\n{_END}"
    return re.sub(f"{_BEGIN}.*?{_END}", lambda _: written, page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text(), json.loads(REPORT.read_text())))
