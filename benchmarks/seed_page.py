"""Make what docs/seed.md says of measurements: inference, whole runs, what was learned, long runs, what breaks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.ray_page import LEARNING, NOT_YET, REPORTS, ROOT, Found, compared, fill, load
from benchmarks.table import BENCHMARKS

PAGE = ROOT / "docs" / "seed.md"
# In the order of the page.
INFERENCE = {
    "seed_inference_cnn_16x1": "CNN, 16 actors of 1 env, a process each",
    "seed_inference_cnn_threads": "CNN, 16 actors of 1 env, threads of 2 processes",
    "seed_inference_cnn_2x8": "CNN, 2 actors of 8 envs",
    "seed_inference_mlp_16x1": "MLP 128-128-64, 16 actors of 1 env",
    "seed_inference_mlp_2x8": "MLP 128-128-64, 2 actors of 8 envs",
}
# The server runs what is there, or waits a little for all actors.
CENTRAL = {"ours_central": "", "ours_central_waiting": ", waiting up to 5 ms for all of them"}
PARALLEL = {
    "ours_parallel_8x1": "mode parallel, 8 collectors of 1 env",
    "ours_parallel_2x4": "mode parallel, 2 collectors of 4 envs",
}
# By the names of their records in mode serial.
ALGORITHMS = {
    "cartpole_rainbow": "Rainbow, CartPole",
    "cartpole_dqn": "DQN, CartPole",
    "pendulum_sac": "SAC, Pendulum",
    "cartpole_hidden_r2d2": "R2D2, CartPole with velocities hidden",
}
RUNS = "seed_runs"

Report = Mapping[str, Any]  # Any: what a JSON file holds


def inference_table(results: Mapping[str, Found | None]) -> str:
    """Return central inference beside networks of the actors' own, as a table in Markdown, with the bars."""
    lines = [
        "| observations per CPU-second | central | each its own | central / own | bar "
        "| mean batch | p50, p99 of a call, ms | own |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, what in INFERENCE.items():
        if (found := results[name]) is not None:
            for central, how in CENTRAL.items():
                row = compared(f"{what}{how}", found, (central, "ours_local"), "observations_cpu")
                batch = found[central, "mean_batch"]["value"]
                lines.append(f"{row} {batch:.1f} | {_latency(found, central)} | {_latency(found, 'ours_local')} |")
    return "\n".join(lines) if len(lines) > 2 else NOT_YET


def _latency(found: Found, who: str) -> str:
    return ", ".join(f"{found[who, f'latency_{name}']['value']:.2f}" for name in ("p50", "p99"))


def parallel_table(results: Mapping[str, Found | None]) -> str:
    """Return whole runs in mode seed beside mode parallel, as a table in Markdown."""
    lines = [
        "| CNN, env steps/s | 2 processes x 4 actor threads | it | seed / it | bar | updates per env step, of both |",
        "|---|---|---|---|---|---|",
    ]
    if (found := results["seed_parallel"]) is not None:
        for name, what in PARALLEL.items():
            ratios = [found[who, "updates_per_step"]["value"] for who in ("ours_seed", name)]
            row = compared(what, found, ("ours_seed", name), "env_steps_wall")
            lines.append(f"{row} {ratios[0]:.3f}, {ratios[1]:.3f} |")
    return "\n".join(lines) if len(lines) > 2 else NOT_YET


def learning_table(records: Mapping[str, Report]) -> str:
    """Return what was learned in mode seed beside serial, as a table in Markdown; `records` are by name."""
    lines = [
        "| 2 actor threads | random seeds | fresh episodes, median | worst | env steps, median | serial's | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, what in ALGORITHMS.items():
        if (found := records.get(f"{name}_seed")) is not None:
            steps, serial = found["median_env_step"], records[name]["median_env_step"]
            values = f"{found['median_eval_value']:.1f} | {found['worst_eval_value']:.1f}"
            number = len(found["runs"])
            lines.append(f"| {what} | {number} | {values} | {steps:,} | {serial:,} | {steps / serial:.2f} |")
    return "\n".join(lines) if len(lines) > 2 else NOT_YET


def runs_table(report: Report | None) -> str:
    """Return what a report of `tests.learning.seed_runs` says, as a table in Markdown."""
    if report is None:
        return NOT_YET
    lines = [
        "| | env steps | updates | env steps/s | mean batch | p50, p99, ms | policy lag | fresh episodes, mean |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for run in report["runs"].values():
        p50, p99, lag = (run[key] for key in ("p50_ms", "p99_ms", "policy_lag"))
        lines.append(
            f"| {run['what']} | {run['env_step']:,} | {run['train_iter']:,} | {run['env_steps_per_s']:,.0f} "
            f"| {run['mean_batch']:.1f} | {p50:.1f}, {p99:.1f} | {lag:.1f} | {run['eval_value']:.1f} |"
        )
    return "\n".join(lines)


def failures_table(reports: Sequence[Report]) -> str:
    """Return the checks of reports as one table in Markdown."""
    lines = ["| what was held to a bar | found | bar |", "|---|---|---|"]
    for check in (check for report in reports for check in report["checks"]):
        bar = f"at most {check['at_most']:g}" if "at_most" in check else f"at least {check['at_least']:g}"
        lines.append(f"| {check['what']} | {check['found']:,g} | {bar}: {'met' if check['ok'] else 'missed'} |")
    return "\n".join(lines) if len(lines) > 2 else NOT_YET


def failures() -> list[Path]:
    """Return the reports of what breaks: those of seed's that hold figures to bars."""
    found = sorted([*REPORTS.glob("seed_*.json"), *REPORTS.glob("chaos_seed_*.json")])
    return [path for path in found if "checks" in json.loads(path.read_text())]


def parts() -> dict[str, str]:
    """Return what stands between the marks of the page, by name."""
    results = {name: load(name) for name in BENCHMARKS if name.startswith("seed_")}
    records = {path.stem: json.loads(path.read_text()) for path in LEARNING.glob("*.json")}
    runs = REPORTS / f"{RUNS}.json"
    return {
        "seed_inference": inference_table(results),
        "seed_parallel": parallel_table(results),
        "seed_learning": learning_table(records),
        "seed_runs": runs_table(json.loads(runs.read_text()) if runs.exists() else None),
        "seed_failures": failures_table([json.loads(path.read_text()) for path in failures()]),
    }


def write() -> None:
    """Write the measured parts of the page."""
    PAGE.write_text(fill(PAGE.read_text(), parts()))
