"""Write what a scenario found: a JSON file, and a table of its checks."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.provenance import provenance

REPORTS = Path(__file__).parents[2] / "docs/reports"


class Report:
    """Collect figures, and checks of them against bars."""

    def __init__(self, name: str, **setting: Any) -> None:
        self.name = name
        self.setting = setting
        self.figures: dict[str, Any] = {}
        self.checks: list[dict[str, Any]] = []

    def at_most(self, what: str, found: float, bar: float) -> None:
        """Hold a figure to a bar; NaN is above every bar."""
        found = round(float(found), 3)
        self.checks.append({"what": what, "found": found, "at_most": bar, "ok": found <= bar})

    def at_least(self, what: str, found: float, bar: float) -> None:
        """Hold a figure to a bar; NaN is below every bar."""
        found = round(float(found), 3)
        self.checks.append({"what": what, "found": found, "at_least": bar, "ok": found >= bar})

    @property
    def is_ok(self) -> bool:
        return bool(self.checks) and all(check["ok"] for check in self.checks)

    def table(self) -> str:
        """Return the checks as lines of text."""
        lines = [f"{self.name}  {self.setting}"]
        for check in self.checks:
            bar = f"<= {check['at_most']:g}" if "at_most" in check else f">= {check['at_least']:g}"
            lines.append(f"  {'ok  ' if check['ok'] else 'MISS'} {check['what']:<64} {check['found']:>12g}  {bar}")
        return "\n".join(lines)

    def write(self, folder: Path = REPORTS) -> Path:
        """Write `chaos_{name}.json`."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"chaos_{self.name}.json"
        code = provenance(allow_dirty=True)
        plain = {**code.to_plain(), "setting": self.setting, "figures": self.figures, "checks": self.checks}
        path.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
        return path


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the median, the 95th percentile and the worst of some seconds; NaN without any."""
    if not values:
        return {"count": 0, "median": float("nan"), "p95": float("nan"), "worst": float("nan")}
    ordered = sorted(values)
    return {
        "count": len(ordered),
        "median": round(statistics.median(ordered), 3),
        "p95": round(ordered[min(int(0.95 * len(ordered)), len(ordered) - 1)], 3),
        "worst": round(ordered[-1], 3),
    }
