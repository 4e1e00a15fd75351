"""Measure how the rate of env steps grows with workers whose envs sleep, beside RLlib and SB3's SubprocVecEnv.

Envs that sleep take no processor, so that two are enough to see eight workers. DQN, one env a worker, an update of 128
rows for each 64 env steps. Writes scaling.jsonl and scaling.png into benchmarks/own, or benchmarks/results (--record).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.contenders.slow_env import ASLEEP_US
from benchmarks.provenance import OWN, RESULTS, provenance
from benchmarks.rounds import THIS_RUN, ContenderError, Measured, Row, circumstances, run_once
from benchmarks.table import Contender

WORKERS = (1, 4, 8)
_MEASURED_S = 4.0  # of env steps of each worker
_WARMUP = 256
_TIMEOUT_S = 300.0
_OURS = ("--no-evaluation", "--lanes", "1", "--steps-per-update", "64")
CONTENDERS = {
    "ours": ("parallel_ours", None, ("--mode", "parallel", *_OURS)),
    "ours_ray": ("parallel_ours", None, ("--mode", "ray", *_OURS)),
    "sb3_subproc": ("scaling_sb3", "peers", ()),
    "rllib": ("scaling_rllib", "rllib", ()),
}
_MODULE = "benchmarks.contenders.slow_env:"


def main() -> None:
    """Measure, print a table, write the rows and draw the picture."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="times that each contender runs, in turn (%(default)s)")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="run the peers too")
    parser.add_argument("--record", action="store_true", help="write into benchmarks/results, which pages of docs show")
    args = parser.parse_args()
    code = provenance(allow_dirty=not args.record)
    found: dict[tuple[int, str, int], list[float]] = {}
    measured = Measured([], {}, {})
    for number in range(args.rounds):
        for us in ASLEEP_US:
            for workers in WORKERS:
                for name, (script, venv, more) in CONTENDERS.items():
                    if venv is None or args.peers:
                        rate = _rate(Contender(script, more, venv), us, workers, number, measured, name)
                        found.setdefault((us, name, workers), []).append(rate)
    rows = summarise(found)
    folder = RESULTS if args.record else OWN
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row) for row in [*rows, circumstances(measured, code)]]
    (folder / "scaling.jsonl").write_text("\n".join(lines) + "\n")
    draw(rows, folder / "scaling.png")
    for row in rows:
        print(f"{row['name']:24} {row['metric']:16} {row['value']:>9,} {row['unit']}  of linear {row['of_linear']}")


def _rate(one: Contender, us: int, workers: int, number: int, measured: Measured, name: str) -> float:
    """Return the env steps a second of one run. Exits where it fails."""
    env = f"Asleep{us}us-v0"
    steps = _WARMUP + int(_MEASURED_S * workers * 1e6 / us)
    extra = [
        "--env",
        env if name.startswith("ours") else _MODULE + env,
        "--workers",
        str(workers),
        "--steps",
        str(steps),
    ]
    try:
        rows = run_once(one, timeout_s=_TIMEOUT_S, extra=extra, number=number)
    except (ContenderError, subprocess.TimeoutExpired) as error:
        sys.exit(f"benchmarks.scaling: {name}, {workers} workers, {env}: {error}")
    measured.versions[name] = next(row["versions"] for row in rows if "versions" in row)
    rate = next(float(row["value"]) for row in rows if row.get("metric") == "env_steps_wall")
    print(f"{name} {env} {workers} workers: {rate:,.0f} env steps/s", flush=True)
    return rate


def summarise(found: dict[tuple[int, str, int], list[float]]) -> list[Row]:
    """Return a row for each (microseconds asleep, contender, workers), with its share of linear growth.

    Linear is the rate of one worker of the same contender times the number of workers.
    """
    rows: list[Row] = []
    for (us, name, workers), rates in found.items():
        rate, one = statistics.median(rates), statistics.median(found[us, name, 1])
        spread = {"n": len(rates), "lo": min(rates), "hi": max(rates), "from": THIS_RUN}
        of_linear = round(rate / (one * workers), 3)
        row = {"name": f"{name}_x{workers}", "metric": f"asleep_{us}us", "value": rate, "unit": "steps/s"}
        rows.append({**row, **spread, "of_linear": of_linear, "workers": workers})
    return rows


def draw(rows: list[Row], path: Path) -> None:
    """Draw rates over workers, a panel for each time asleep."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    figure, panels = pyplot.subplots(1, len(metrics), figsize=(4.2 * len(metrics), 3.8), squeeze=False)
    for panel, metric in zip(panels[0], metrics, strict=True):
        us = int(metric.removeprefix("asleep_").removesuffix("us"))
        for name in CONTENDERS:
            line = [row for row in rows if row["metric"] == metric and row["name"].rpartition("_x")[0] == name]
            panel.plot([row["workers"] for row in line], [row["value"] for row in line], marker="o", label=name)
        panel.plot(WORKERS, [workers * 1e6 / us for workers in WORKERS], "k:", label="envs alone")
        panel.set(title=f"env steps of {us / 1000:g} ms asleep", xlabel="workers", xticks=WORKERS, ylim=(0, None))
    panels[0][0].set_ylabel("env steps a second")
    panels[0][0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
