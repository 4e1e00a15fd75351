"""Kill servers and actors of a run with central inference, or slow its learner down; count what is lost."""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.chaos.counting_env import WIDTH
from tests.chaos.counting_policy import UPDATE_S
from tests.chaos.live_run import ROOT
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
        plan = {"duration_s": seconds, "seed": seed, "overrides": [f"system.seed.credit={credit}"]}
        (folder / "plan.json").write_text(json.dumps(plan))
        code = run_child("tests.chaos.seed_child", folder, timeout_s=seconds + 120.0)
        if has_ended_well(report, folder, code):
            found = json.loads((folder / "found.json").read_text())
            _judge_memory(report, found, json.loads((folder / "run/result.json").read_text()))
    return report


def _judge_memory(report: Report, found: dict[str, Any], result: dict[str, Any]) -> None:
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


MARK = "DING_CHAOS_RUN"


def run_child(module: str, folder: Path, *, timeout_s: float) -> int:
    """Run a module on a folder, which is the mark; return its exit status, -1 if it did not end in time."""
    with open(folder / "said.txt", "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(folder)],
            cwd=folder,
            env={**os.environ, MARK: str(folder), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return -1
        finally:
            process.kill()
            process.wait(20.0)


def end_what_is_left(folder: Path) -> list[int]:
    """Kill the processes of a run that are there ten seconds after its end, and return their ids."""
    deadline = time.monotonic() + 10.0
    while (left := _left(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return left


def has_ended_well(report: Report, folder: Path, code: int) -> bool:
    """Note whether a child ended by itself, and left nothing behind."""
    left = end_what_is_left(folder)
    has_ended = code == 0 and (folder / "run/result.json").is_file() and (folder / "found.json").is_file()
    report.at_least("runs that ended by themselves, with a result", int(has_ended), 1)
    report.at_most("processes left behind", len(left), 0)
    if not has_ended:
        print((folder / "said.txt").read_text(errors="replace")[-6000:], file=sys.stderr)
    return has_ended


def _left(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and f"{MARK}={folder}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]
