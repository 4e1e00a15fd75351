"""Learn far slower than actors collect: the driver's memory stays as it is, and the actors wait."""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from tests.chaos.marked_child import has_ended_well, run_child
from tests.chaos.report import Report, spread
from tests.chaos.slow_learner import UPDATE_S, WIDTH

_ROWS = 64  # of a segment, as the config says
_UPDATES = 4  # that a segment allows
_SEGMENT_MB = _ROWS * 2 * 4 * WIDTH / 1e6


def run_seed_slow_learner(*, seconds: float, seed: int, credit: int = 2) -> Report:
    """Train for some seconds, look at the driver's memory meanwhile, and count what actors have taken."""
    report = Report(
        "seed_slow_learner", seconds=seconds, actor_processes=2, credit=credit, update_s=UPDATE_S, segment_rows=_ROWS,
        segment_mb=_SEGMENT_MB, seed=seed,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="ding-chaos-") as place:
        folder = Path(place)
        (folder / "plan.json").write_text(json.dumps({"duration_s": seconds, "seed": seed, "credit": credit}))
        code = run_child("tests.chaos.seed_slow_child", folder, timeout_s=seconds + 120.0)
        if has_ended_well(report, folder, code):
            found = json.loads((folder / "found.json").read_text())
            _judge(report, found, json.loads((folder / "run/result.json").read_text()))
    return report


def _judge(report: Report, found: dict[str, Any], result: dict[str, Any]) -> None:
    setting, samples = report.setting, found["samples"]
    # The buffer is full, and everything was done once, after a third of the time.
    third = len(samples) // 3
    middle, last = ([each["rss_mb"] for each in part] for part in (samples[third : 2 * third], samples[2 * third :]))
    open_segments = setting["credit"] * setting["actor_processes"]
    allowed = _ROWS * (result["train_iter"] / _UPDATES + 1 + open_segments + 1)  # random rows before, rows under way
    report.figures.update(
        updates=result["train_iter"],
        env_step=result["env_step"],
        env_steps_per_s=round(result["env_step"] / found["training_s"], 1),
        rss_mb={"middle third": spread(middle), "last third": spread(last)},
    )
    report.at_least("updates", result["train_iter"], 0.5 * setting["seconds"] / (2 * UPDATE_S))
    report.at_most("segments waiting, at most", max(each["queue_depth"] for each in samples), open_segments)
    growth_mb = statistics.median(last) - statistics.median(middle)
    report.at_most("MB of memory more in the last third than in the middle one, medians", growth_mb, _SEGMENT_MB)
    # What is under way may be there twice: as it came, and as rows.
    peak_mb = max(middle + last) - statistics.median(middle)
    report.at_most("MB of memory above the median, at most", peak_mb, 2 * open_segments * _SEGMENT_MB)
    report.at_most("env steps beyond what the updates and the credit allow", max(0, result["env_step"] - allowed), 0)
    report.at_most("segments refused or doubled", found["counts"]["refused"] + found["counts"]["duplicates"], 0)
