"""Kill servers and actors of a run with central inference; count what is lost, and who comes back."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

from tests.chaos.marked_child import has_ended_well, run_child
from tests.chaos.report import Report, spread

_KINDS = ("server", "actor_process")


def run_seed_kills(
    *, minutes: float, server_every_s: float, actor_kills: int, seed: int, settle_s: float = 25.0
) -> Report:
    """Train for some minutes while one of two servers is killed every so often, actors at random moments.

    Afterwards the run goes on for `settle_s`, in which those that were killed last come back on a busy machine too.
    """
    report = Report(
        "seed_kills", minutes=minutes, servers=2, actor_processes=2, server_killed_every_s=server_every_s,
        server_kills=int(60.0 * minutes / server_every_s), actor_kills=actor_kills,
        settle_s=settle_s, seed=seed,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="ding-chaos-") as place:
        folder = Path(place)
        plan = _plan(report.setting)
        (folder / "plan.json").write_text(json.dumps(plan))
        code = run_child("tests.chaos.seed_child", folder, timeout_s=plan["duration_s"] + 120.0)
        _judge(report, folder, code, duration_s=plan["duration_s"])
    return report


def _plan(setting: dict[str, Any]) -> dict[str, Any]:
    """Return what the child is to do: a server at every beat, the others at a random moment of a slice each."""
    rng, seconds = random.Random(setting["seed"]), 60.0 * setting["minutes"]
    strikes = [(setting["server_killed_every_s"] * (n + 1), "server") for n in range(setting["server_kills"])]
    slice_s = seconds / max(setting["actor_kills"], 1)
    strikes += [(slice_s * (n + rng.uniform(0.1, 0.9)), "actor_process") for n in range(setting["actor_kills"])]
    overrides = {
        "actor_processes": setting["actor_processes"],
        "inference_servers": setting["servers"],
        "failure.restarts_per_10min": 4 * len(strikes),
    }
    return {
        "strikes": sorted(strikes),
        "seed": setting["seed"],
        "duration_s": seconds + setting["settle_s"],
        "overrides": [f"system.seed.{name}={value}" for name, value in overrides.items()],
    }


def _judge(report: Report, folder: Path, code: int, *, duration_s: float) -> None:
    if not has_ended_well(report, folder, code):
        return
    found = json.loads((folder / "found.json").read_text())
    result = json.loads((folder / "run/result.json").read_text())
    rows = [json.loads(line) for line in (folder / "run/failures.jsonl").read_text().splitlines()]
    report.at_most("seconds that the run took more or less than it was to", abs(found["training_s"] - duration_s), 1)
    _judge_rows(report, found, result)
    _judge_replacements(report, found, rows)


def _judge_rows(report: Report, found: dict[str, Any], result: dict[str, Any]) -> None:
    rows, updates = found["rows"], found["updates"]
    report.figures.update(
        segments=found["segments"], rows=rows["handed_over"], rows_waiting_at_the_end=rows["waiting"],
        updates=updates["applied"], env_step=result["env_step"], training_s=found["training_s"], came=found["counts"],
    )  # fmt: skip
    report.at_least("rows acknowledged", rows["handed_over"], 1000)
    # Rows are acknowledged once they are stored: unlike elsewhere, none may be under way when the run has ended.
    report.at_most("rows acknowledged and not in the buffer", rows["lost"] + rows["waiting"], 0)
    report.at_most("rows doubled, or stored and never sent", rows["doubled"] + rows["unknown"], 0)
    report.at_most("rows torn or mixed", found["torn"], 0)
    report.at_most("segments out of order", found["out_of_order"], 0)
    report.at_most("segments refused, messages garbled", found["counts"]["refused"] + found["counts"]["garbled"], 0)
    report.at_most("env steps miscounted", abs(found["env_steps"] - result["env_step"]), 0)
    report.at_least("updates", updates["applied"], 100)
    report.at_most("batches drawn and not applied, or applied twice", updates["lost"] + updates["repeated"], 0)


def _judge_replacements(report: Report, found: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    by_kind = {kind: [row for row in rows if row["kind"] == kind] for kind in _KINDS}
    wanted = {kind: sum(strike["kind"] == kind for strike in found["struck"]) for kind in _KINDS}
    for kind, setting in zip(_KINDS, ("server_kills", "actor_kills"), strict=True):
        report.at_least(f"kills of kind {kind}", wanted[kind], report.setting[setting])
        report.at_least(f"losses of kind {kind} in failures.jsonl", len(by_kind[kind]), wanted[kind])
        replaced = [row["replaced_ms"] for row in by_kind[kind] if row["replaced_ms"] is not None]
        report.at_least(f"replacements of kind {kind}", len(replaced), len(by_kind[kind]))
        report.figures[f"{kind}_replaced_ms"] = spread(replaced)
    others = [row for row in rows if row["kind"] not in _KINDS]
    report.at_most("actor threads that failed beside", len(others), 0)
    report.at_least("actors that brought rows after the last strike", found["actors_at_the_end"], 2)
    report.figures.update(
        rows_lost_with_workers=sum(row["rows_lost"] for row in rows),
        longest_without_rows_s=found["longest_without_rows_s"],
        rows_again_after_s={kind: spread(found["rows_again_after_s"].get(kind, [])) for kind in _KINDS},
        how=sorted({row["how"] for row in rows}),
    )
