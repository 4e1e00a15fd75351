"""Make what docs/seed.md says of measurements: inference and whole runs."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.ray_page import NOT_YET, ROOT, Found, compared, fill, load
from benchmarks.table import BENCHMARKS

PAGE = ROOT / "docs" / "seed.md"
# In the order of the page.
INFERENCE = {
    "seed_inference_cnn_16x1": "CNN, 16 actors of 1 env, a process each",
    "seed_inference_cnn_threads": "CNN, 16 actors of 1 env, threads of 2 processes",
    "seed_inference_gpu_16": "CNN, 16 actors of 1 env, a process each, the server on a GPU",
    "seed_inference_gpu_64": "CNN, 64 actors of 1 env, threads of 16 processes, the server on a GPU",
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


def parts() -> dict[str, str]:
    """Return what stands between the marks of the page, by name."""
    results = {name: load(name) for name in BENCHMARKS if name.startswith("seed_")}
    return {"seed_inference": inference_table(results), "seed_parallel": parallel_table(results)}


def write() -> None:
    """Write the measured parts of the page."""
    PAGE.write_text(fill(PAGE.read_text(), parts()))
