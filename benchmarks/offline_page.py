"""Make what docs/offline.md says of measurements: two states, and policies beside d3rlpy on the same data."""

from __future__ import annotations

import json

from benchmarks.ray_page import NOT_YET, REPORTS, ROOT, fill, load
from benchmarks.table import OFFLINE, offline_name

PAGE = ROOT / "docs" / "offline.md"
POLICIES = {"bc": "BC", "td3_bc": "TD3+BC", "iql": "IQL", "rebrac": "ReBRAC", "cql": "CQL"}
POLICIES |= {"bcq": "BCQ", "dt": "Decision transformer", "discrete_cql": "Discrete CQL", "discrete_bcq": "Discrete BCQ"}


def beside_d3rlpy() -> str:
    """Return scores and processor time of both libraries as a table in Markdown."""
    lines = [
        "| data | policy | updates | seeds | score, ours | d3rlpy's | CPU ms an update, ours | its | share |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (data, method, *more), updates in OFFLINE.items():
        if (found := load(offline_name(data, method, *more))) is not None:
            cells, cpu_ms = [], []
            for name in ("ours", "d3rlpy"):
                if (name, "score") in found:
                    score = found[name, "score"]
                    cells.append(f"{score['value']:.1f} [{score['lo']:.1f}, {score['hi']:.1f}]")
                    cpu_ms.append(1000.0 / found[name, "updates"]["value"])
            first, num = more[0] if more else 0, found["ours", "score"]["n"]
            seeds = f"{first} to {first + num - 1}"
            ratio = found.get(("ours / d3rlpy", "updates"))
            theirs = (cells[1], f"{cpu_ms[1]:.1f}", f"{1.0 / ratio['value']:.2f}") if ratio else ("", "", "")
            lines.append(
                f"| {data} | {POLICIES[method]} | {updates:,} | {seeds} | {cells[0]} | {theirs[0]} | {cpu_ms[0]:.1f} | "
                f"{theirs[1]} | {theirs[2]} |"
            )
    return "\n".join(lines) if len(lines) > 2 else NOT_YET


def two_states() -> str:
    """Return what policies take their actions to be worth, beside the truth, as a table in Markdown."""
    path = REPORTS / "two_states.json"
    if not path.exists():
        return NOT_YET
    lines = ["| policy | action in state 0 | its value, estimated | true |", "|---|---|---|---|"]
    for name, found in json.loads(path.read_text()).items():
        lines.append(f"| `{name}` | {found['action']:g} | {found['estimate']:.1f} | {found['truth']:.1f} |")
    return "\n".join(lines)


def write() -> None:
    """Write the measured parts of the page."""
    PAGE.write_text(fill(PAGE.read_text(), {"d3rlpy": beside_d3rlpy(), "two_states": two_states()}))
