"""Kill and stop the workers of a run on Ray at random moments; count what is lost, and how long replacing takes."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

from tests.chaos.marked_child import has_ended_well, run_child
from tests.chaos.ray_audit import Strike, strikes_of
from tests.chaos.report import Report, spread

_KINDS = ("collector", "gradient")
_STEP_TIMEOUT_S = 5.0


def run_ray_kills(
    *, minutes: float, kills: int, stops: int, seed: int, gradients: str = "sync", collect: str = "async",
    timed: bool = True, local: bool = False,
) -> Report:  # fmt: skip
    """Train for some minutes while workers are killed, and some stopped as if they hung, at random moments.

    `timed` holds how long it takes to the bars too, which a busy machine misses. `local` workers are threads, which
    are lost and cannot be stopped.
    """
    name = f"ray_kills_{gradients}"
    report = Report(
        name, minutes=minutes, collectors=2, gradient_workers=2, kills=kills, stops=stops, collect=collect,
        gradients=gradients, step_timeout_s=_STEP_TIMEOUT_S, seed=seed, local=local,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="ding-chaos-") as place:
        folder = Path(place)
        (folder / "plan.json").write_text(json.dumps(_plan(report.setting)))
        code = run_child("tests.chaos.ray_child", folder, timeout_s=60.0 * minutes + 300.0)
        _judge(report, folder, code, timed=timed)
    return report


def _plan(setting: dict[str, Any]) -> dict[str, Any]:
    """Return what the child is to do; each strike has a random moment of an equal slice of the time."""
    rng = random.Random(setting["seed"])
    whats = ["killed"] * setting["kills"] + ["stopped"] * setting["stops"]
    rng.shuffle(whats)
    slice_s = 60.0 * setting["minutes"] / max(len(whats), 1)
    overrides = {
        "collect.workers": setting["collectors"],
        "collect.comm": setting["collect"],
        "grad.workers": setting["gradient_workers"],
        "grad.comm": setting["gradients"],
        "failure.restarts_per_10min": 3 * (setting["kills"] + setting["stops"]),
        "failure.step_timeout_s": setting["step_timeout_s"],
    }
    return {
        "strikes": [
            (slice_s * (number + rng.uniform(0.1, 0.9)), _KINDS[number % 2], what) for number, what in enumerate(whats)
        ],
        "kinds": _KINDS,
        "settle_s": 2.0 if setting["local"] else 10.0,  # after the last
        "local": setting["local"],
        "overrides": [f"system.ray.{name}={value}" for name, value in overrides.items()],
    }


def _judge(report: Report, folder: Path, code: int, *, timed: bool) -> None:
    if not has_ended_well(report, folder, code):
        return
    found = json.loads((folder / "found.json").read_text())
    result = json.loads((folder / "run/result.json").read_text())
    rows = [json.loads(line) for line in (folder / "run/failures.jsonl").read_text().splitlines()]
    _judge_what_was_lost(report, found, result)
    _judge_replacements(report, strikes_of(found["struck"], found["seen"], rows), rows, timed=timed)


def _judge_what_was_lost(report: Report, found: dict[str, Any], result: dict[str, Any]) -> None:
    rows, updates = found["rows"], found["updates"]
    report.figures.update(
        segments=found["segments"], rows=rows["handed_over"], rows_waiting_at_the_end=rows["waiting"],
        updates=updates["applied"], env_step=result["env_step"],
    )  # fmt: skip
    report.at_least("rows handed over", rows["handed_over"], 1000)
    report.at_most("rows handed over and lost", rows["lost"], 0)
    report.at_most("rows doubled, or from nowhere", rows["doubled"] + rows["unknown"], 0)
    report.at_most("rows torn or mixed", found["torn"], 0)
    beyond = abs(found["env_steps"] - rows["waiting"] - result["env_step"])
    report.at_most("env steps miscounted", beyond, 0)
    report.at_least("updates", updates["applied"], 100)
    report.at_most("batches drawn and lost, whole or in part", updates["lost"], 0)
    report.at_most("batches applied twice, or of no batch", updates["repeated"], 0)
    report.at_most("updates miscounted", abs(updates["applied"] - result["train_iter"]), 0)


def _judge_replacements(report: Report, strikes: list[Strike], rows: list[dict[str, Any]], *, timed: bool) -> None:
    killed, stopped = ([each for each in strikes if each.what == what] for what in ("killed", "stopped"))
    report.at_least("kills", len(killed), report.setting["kills"])
    report.at_least("stops", len(stopped), report.setting["stops"])
    report.at_most("strikes without a row in failures.jsonl", len({s.worker for s in strikes} - _workers(rows)), 0)
    replaced = [each for each in strikes if each.replaced_ms is not None]
    report.at_least("workers replaced", len(replaced), len(strikes))
    figures = {
        "kill_known_ms": _ms([each.known_s - each.at_s for each in killed if each.known_s is not None]),
        "stop_known_ms": _ms([each.known_s - each.at_s for each in stopped if each.known_s is not None]),
        "replaced_ms": spread([each.replaced_ms for each in replaced if each.replaced_ms is not None]),
        "kill_to_work_of_the_next_ms": _ms(
            [each.successor_works_s - each.at_s for each in killed if each.successor_works_s is not None]
        ),
    }
    report.figures.update(
        figures,
        losses=len(rows),
        rows_lost_with_workers=sum(row["rows_lost"] for row in rows),
        strikes=[_described(each) for each in strikes],
    )
    if timed:
        report.at_most("kill to known, p95 ms", figures["kill_known_ms"]["p95"], 50)
        report.at_most("known to replaced, median ms", figures["replaced_ms"]["median"], 100)
        report.at_most("stop to known, worst ms", figures["stop_known_ms"]["worst"], 1000 * (_STEP_TIMEOUT_S + 2))


def _described(strike: Strike) -> dict[str, Any]:
    """Return when a strike was known, replaced and worked for again, in ms from the strike on."""
    since = {"known_ms": strike.known_s, "next_works_ms": strike.successor_works_s}
    found = {name: None if at_s is None else round(1000 * (at_s - strike.at_s), 1) for name, at_s in since.items()}
    return {"worker": strike.worker, "what": strike.what, **found, "replaced_ms": strike.replaced_ms}


def _workers(rows: list[dict[str, Any]]) -> set[str]:
    return {row["worker"] for row in rows}


def _ms(seconds: list[float]) -> dict[str, float]:
    return spread([1000.0 * each for each in seconds])
