"""Write what a scenario found: a JSON file, and a table of its checks.

`python -m tests.chaos.report` writes the table of faults on the page on parallel runs from the reports.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
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


PAGE = Path(__file__).parents[2] / "docs/parallel.md"
_HEAD = "| what was done | lost | doubled | back after, s: median, worst |\n|---|---|---|---|\n"

Plain = dict[str, Any]


def table() -> str:
    """Return the table of all reports that there are. Raises ValueError for one that has missed a bar."""
    return _HEAD + "".join(f"{row}\n" for name, make in _ROWS.items() for row in _rows_of(name, make))


def write() -> None:
    """Put the table in the place of the one on the page."""
    text = PAGE.read_text()
    first = text.index(_HEAD)
    behind = text.index("\n\n", first) + 1
    PAGE.write_text(text[:first] + table() + text[behind:])


def _rows_of(name: str, make: Callable[[Plain, Plain], list[str]]) -> list[str]:
    path = REPORTS / f"chaos_{name}.json"
    if not path.exists():
        return []
    report = json.loads(path.read_text())
    missed = [check["what"] for check in report["checks"] if not check["ok"]]
    if missed:
        raise ValueError(f"{path.name} has missed {missed}, and the page says that none was")
    return make(report["setting"], report["figures"])


def _coordinator_kills(setting: Plain, found: Plain) -> list[str]:
    return [
        f"| {setting['kills']} kills of the coordinator under {found['messages_per_s']:.0f} messages a second | "
        f"0 of {found['rows']:,} rows | 0 | {_two(found['ready_s'])} (to answer), {_two(found['all_back_s'])} "
        "(all workers) |"
    ]


def _bad_segments(setting: Plain, found: Plain) -> list[str]:
    num_bad = sum(found["spoiled"].values())
    return [
        f"| {setting['segments']:,} segments, {num_bad} of them bad in five ways | 0 bad rows trained on | 0 | "
        f"{found['slowest_batch_s']:.2f} (slowest batch) |"
    ]


def _bad_traffic(setting: Plain, found: Plain) -> list[str]:
    return [f"| eight kinds of bad traffic, of {setting['workers']} workers | 0 of {found['rows']:,} rows | 0 | - |"]


def _live(what: Callable[[Plain, Plain], str]) -> Callable[[Plain, Plain], list[str]]:
    """Return what makes the row of a scenario on a live run: rows and updates were all there in the end."""

    def make(setting: Plain, found: Plain) -> list[str]:
        back = _two(found["all_back_s"]) if "all_back_s" in found else "-"
        updates, unit = found.get("updates_learned"), "updates"
        if updates is None:
            updates, unit = found["batches_learned"], "batches"
        name = str(setting["policy"]).upper()
        mode = ", on one machine" if setting.get("mode") == "parallel" else ""
        lost = f"0 of {found['acked_rows']:,} rows, 0 of {updates:,} {unit}"
        return [f"| {name}{mode}: {what(setting, found)} | {lost} | 0 | {back} |"]

    return make


def _pauses(setting: Plain, found: Plain) -> str:
    parts = _listed([f"{each:g}" for each in setting["parts_of_a_lease"]])
    return f"{_listed(setting['roles'])} paused for {parts} leases"


def _worker_kills(setting: Plain, found: Plain) -> str:
    of_learner = f"{setting['learner_kills']} of the learner"
    return f"{setting['collector_kills']} kills of {setting['collectors']} collectors, {of_learner}"


def _partitions(setting: Plain, found: Plain) -> str:
    seconds = [f"{each:g}" for _, each in sorted(setting["cuts"], key=lambda cut: float(cut[1]))]
    return f"hosts cut off for {_listed(seconds)} s"


def _restarts(setting: Plain, found: Plain) -> str:
    kills = len(setting["routes"]) * setting["rounds"]
    words = f"{kills} kills of the coordinator between taking a message and answering it"
    return words + (f", {setting['learner_kills']} of the learner" if setting["learner_kills"] else "")


def _disk_faults(setting: Plain, found: Plain) -> str:
    kinds: dict[str, list[str]] = {}
    for what, seconds in setting["faults"]:
        kinds.setdefault(what, []).append(f"{seconds:g}")
    return "; ".join(f"{what} for {_listed(seconds)} s" for what, seconds in kinds.items())


def _clock_jumps(setting: Plain, found: Plain) -> str:
    jumps = _listed([f"{each:+g}" for each in setting["jumps_s"] if each])
    return f"clocks of {_listed(setting['names'])} set to {jumps} s, in turn"


_ROWS: dict[str, Callable[[Plain, Plain], list[str]]] = {
    "worker_kills": _live(_worker_kills),
    "coordinator_kills": _coordinator_kills,
    "partitions": _live(_partitions),
    "bad_segments": _bad_segments,
    "bad_traffic": _bad_traffic,
    **dict.fromkeys(("pauses_dqn", "pauses_ppo", "pauses_dqn_parallel"), _live(_pauses)),
    **dict.fromkeys(
        ("lost_answers_dqn", "lost_answers_ppo"),
        _live(lambda setting, found: f"{sum(found['lost'].values()):,} answers lost, of every route"),
    ),
    **dict.fromkeys(("restarts_dqn", "restarts_ppo"), _live(_restarts)),
    **dict.fromkeys(("disk_faults_dqn", "disk_faults_dqn_parallel"), _live(_disk_faults)),
    **dict.fromkeys(("clock_jumps_dqn", "clock_jumps_ppo"), _live(_clock_jumps)),
}


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _two(spread: dict[str, float]) -> str:
    return f"{spread['median']:.2f}, {spread['worst']:.2f}"


if __name__ == "__main__":
    write()
