"""Measure how the rate of env steps grows with workers whose envs sleep, beside RLlib and SB3's SubprocVecEnv.

Envs that sleep take no processor, so that two are enough to see eight workers. DQN, one env a worker, an update of 128
rows for each 64 env steps. Writes scaling.jsonl and scaling.png into benchmarks/own, or benchmarks/results (--record).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.contenders.scaling_work import STEPS_PER_UPDATE, WARMUP
from benchmarks.contenders.slow_env import ASLEEP_US
from benchmarks.provenance import OWN, RESULTS, provenance
from benchmarks.rounds import Measured, Row, circumstances, measure, row_of
from benchmarks.table import Contender

WORKERS = (1, 4, 8)
KINDS = ("ours", "ours_ray", "sb3_subproc", "rllib")
_MEASURED_S = 6.0  # of env steps of each worker
_TIMEOUT_S = 300.0
_OURS = ("--no-evaluation", "--lanes", "1", "--steps-per-update", str(STEPS_PER_UPDATE))
_HOW = {
    "ours": ("parallel_ours", None, ("--mode", "parallel", *_OURS)),
    "ours_ray": ("parallel_ours", None, ("--mode", "ray", *_OURS)),
    "sb3_subproc": ("scaling_sb3", "peers", ()),
    "rllib": ("scaling_rllib", "rllib", ()),
}


def _contender(kind: str, us: int, workers: int) -> Contender:
    script, venv, more = _HOW[kind]
    env = f"Asleep{us}us-v0" if venv is None else f"benchmarks.contenders.slow_env:Asleep{us}us-v0"
    steps = WARMUP + int(_MEASURED_S * workers * 1e6 / us)
    return Contender(script, (*more, "--env", env, "--workers", str(workers), "--steps", str(steps)), venv)


# By "kind microseconds workers".
CONTENDERS = {
    f"{kind} {us} {workers}": _contender(kind, us, workers) for us in ASLEEP_US for workers in WORKERS for kind in KINDS
}


def main() -> None:
    """Measure, print a table, write the rows and draw the picture."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="times that each contender runs, in turn (%(default)s)")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="run the peers too")
    parser.add_argument("--record", action="store_true", help="write into benchmarks/results, which pages of docs show")
    args = parser.parse_args()
    code = provenance(allow_dirty=not args.record)
    contenders = {key: one for key, one in CONTENDERS.items() if one.is_ours or (args.peers and one.python.exists())}
    measured = measure(contenders, rounds=args.rounds, timeout_s=_TIMEOUT_S)
    for name, error in measured.errors.items():
        print(f"benchmarks.scaling: {name} failed: {error}", file=sys.stderr)
    rows = summarise(measured)
    folder = RESULTS if args.record else OWN
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row) for row in [*rows, circumstances(measured, code)]]
    (folder / "scaling.jsonl").write_text("\n".join(lines) + "\n")
    draw(rows, folder / "scaling.png")
    for row in rows:
        print(f"{row['name']:24} {row['metric']:16} {row['value']:>9,} {row['unit']}  of linear {row['of_linear']}")
    sys.exit(bool(measured.errors))


def summarise(measured: Measured) -> list[Row]:
    """Return a row for each contender, with its share of linear growth, None where one worker was not measured.

    Linear is the rate of one worker of the same kind times the number of workers.
    """
    found = {one.name: row_of(one) for one in measured.series if one.metric == "env_steps_wall"}
    rows = []
    for name, row in found.items():
        kind, us, workers = name.split()
        one = found.get(f"{kind} {us} 1")
        of_linear = None if one is None else round(row["value"] / (one["value"] * int(workers)), 3)
        about = {"name": f"{kind}_x{workers}", "metric": f"asleep_{us}us", "workers": int(workers)}
        rows.append({**row, **about, "of_linear": of_linear})
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
        for name in KINDS:
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
