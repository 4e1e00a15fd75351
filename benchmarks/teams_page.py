"""Make what docs/algorithms/vdn.md says of games whose best return is known, from docs/reports/matrix_games.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from benchmarks.ray_page import NOT_YET, REPORTS, ROOT, fill

PAGE = ROOT / "docs" / "algorithms" / "vdn.md"
NAMES = {"cw_qmix": "`wqmix`, centrally", "ow_qmix": "`wqmix`, optimistically"}


def _name(policy: str) -> str:
    return NAMES.get(policy, f"`{policy}`")


def returns(report: Mapping[str, Any]) -> str:
    """Return what each policy ends at, by game, as a table in Markdown; bold where all seeds reach the best return."""
    policies = list(dict.fromkeys(name for found in report.values() for name in found["policies"]))
    games = [f"`{game}`, best {found['best']:g}" for game, found in report.items()]
    lines = [f"| policy | {' | '.join(games)} |", "|---" * (len(games) + 1) + "|"]
    for name in policies:
        cells = []
        for found in report.values():
            ends = [run["return"] for run in found["policies"].get(name, {"runs": []})["runs"]]
            shown = ", ".join(f"{each:g}" for each in ends)
            cells.append(f"**{shown}**" if ends and min(ends) >= found["best"] - 1e-3 else shown)
        lines.append(f"| {_name(name)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def values(found: Mapping[str, Any]) -> str:
    """Return what sums and mixers say of the joint actions of a game, in the first run, as a table in Markdown."""
    own = {name: each["runs"][0]["values"] for name, each in found["policies"].items() if each["runs"][0].get("values")}
    lines = [f"| first agent's action | {' | '.join(map(_name, own))} |", "|---" * (len(own) + 1) + "|"]
    for row in range(len(next(iter(own.values())))):
        cells = [", ".join(f"{value:.1f}" for value in table[row]) for table in own.values()]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def write() -> None:
    """Write the measured parts of the page."""
    path = REPORTS / "matrix_games.json"
    report = json.loads(path.read_text()) if path.exists() else {}
    game = report.get("nonmonotonic")
    written = {
        "matrix_games": returns(report) if report else NOT_YET,
        "matrix_values": values(game) if game else NOT_YET,
    }
    PAGE.write_text(fill(PAGE.read_text(), written))
