"""Make what docs/from_sb3.md says of the same small project, done with this package and with SB3 and rl-zoo3."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from benchmarks.ray_page import NOT_YET, REPORTS, ROOT, fill

PAGE = ROOT / "docs" / "from_sb3.md"
REPORT = REPORTS / "first_hour.json"

Report = Mapping[str, Any]  # Any: what a JSON file holds


def table(report: Report) -> str:
    """Return a line for each step of the project, and what it took in all."""
    if not report:
        return NOT_YET
    ours, peer = report["ours"], report["sb3"]
    lines = ["| step | ours: commands, s | SB3 and rl-zoo3: commands, s |", "|---|---|---|"]
    for own, other in zip(ours["steps"], peer["steps"], strict=True):
        lines.append(f"| {own['step']} | {_took(own)} | {_took(other)} |")
    lines.append(f"| minutes in all | {_minutes(ours):.1f} | {_minutes(peer):.1f} |")
    lines.append(f"| commands typed | {_commands(ours)} | {_commands(peer)} |")
    lines.append(f"| lines of code written | {_lines(ours)} | {_lines(peer)} |")
    lines.append(
        f"| largest difference of a weight after the resume | {ours['difference_after_resume']:.2g} "
        f"| {peer['difference_after_resume']:.2g} |"
    )
    return "\n".join(lines)


def files(report: Report) -> str:
    """Return how many lines of code each file has."""
    if not report:
        return NOT_YET
    return "; ".join(
        f"{who}: " + ", ".join(f"`{name}` {count}" for name, count in report[key]["files"].items())
        for key, who in (("ours", "ours"), ("sb3", "SB3 and rl-zoo3"))
    )


def machine(report: Report) -> str:
    """Return where and when it was measured."""
    if not report:
        return NOT_YET
    return f"Measured on {report['processor']} with {report['cpus']} cores; {report['date']}."


def _took(step: Mapping[str, Any]) -> str:
    return f"{step['commands']}, {step['s']:.1f} s"


def _minutes(done: Mapping[str, Any]) -> float:
    return sum(float(step["s"]) for step in done["steps"]) / 60


def _commands(done: Mapping[str, Any]) -> int:
    return sum(int(step["commands"]) for step in done["steps"])


def _lines(done: Mapping[str, Any]) -> int:
    return sum(map(int, done["files"].values()))


def parts() -> dict[str, str]:
    """Return the measured parts of the page by name."""
    report = json.loads(REPORT.read_text()) if REPORT.is_file() else {}
    return {"first_hour": table(report), "first_hour_files": files(report), "first_hour_machine": machine(report)}


def write() -> None:
    """Write the measured parts of the page."""
    PAGE.write_text(fill(PAGE.read_text(), parts()))
