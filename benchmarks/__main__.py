"""Run contenders in turn, A B A B ..., and write medians and ratios."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
VENVS = Path(os.environ.get("BENCH_VENVS", Path.home() / ".cache" / "ding_bench"))


class Contender(NamedTuple):
    """Say how one contender runs; `venv` None is this interpreter."""

    script: str
    venv: str | None = None
    args: tuple[str, ...] = ()


# benchmark -> (metric that ratios are made of, contenders: ours first)
BENCHMARKS: dict[str, tuple[str, dict[str, Contender]]] = {
    "end_to_end": (
        "env_steps_cpu",
        {
            "ours": Contender("dqn_ours"),
            "ours_autograd": Contender("dqn_ours", args=("--backend", "autograd")),
            "sb3": Contender("dqn_sb3", "peers"),
        },
    ),
    "collect": (
        "env_steps_wall",
        {
            "ours": Contender("collect_ours"),
            "ours_gym_vector": Contender("collect_ours", args=("--manager", "gym_vector")),
            "sb3": Contender("collect_sb3", "peers"),
        },
    ),
}


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help="benchmarks to run; all by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-peers", action="store_true", help="measure the package alone")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one run of one contender")
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in BENCHMARKS]
    if args.list or unknown:
        print("\n".join([*(f"unknown: {name}" for name in unknown), *BENCHMARKS]))
        sys.exit(bool(unknown))
    for name in args.names or BENCHMARKS:
        run_benchmark(name, rounds=args.rounds, peers=not args.no_peers, timeout_s=args.timeout)


def run_benchmark(name: str, *, rounds: int, peers: bool, timeout_s: float) -> None:
    """Run one benchmark, print its table and write `results/<name>.jsonl`."""
    metric, contenders = BENCHMARKS[name]
    chosen = {key: one for key, one in contenders.items() if one.venv is None or (peers and _python(one).exists())}
    missing = [key for key in contenders if key not in chosen]
    values: dict[tuple[str, str, str], list[float]] = {}
    for _ in range(rounds):
        for key, contender in chosen.items():
            for row in _run(contender, timeout_s):
                values.setdefault((key, row["metric"], row["unit"]), []).append(row["value"])
    rows = [
        dict(name=key, metric=each, value=statistics.median(got), unit=unit, n=len(got), lo=min(got), hi=max(got))
        for (key, each, unit), got in values.items()
    ]
    rows += [
        _ratio(values, mine, peer, metric)
        for mine in chosen
        for peer in chosen
        if mine.startswith("ours") and not peer.startswith("ours")
    ]
    for row in rows:
        print(f"{name:12} {row['name']:22} {row['metric']:16} {row['value']:>12,} {row['unit']:12} "
              f"[{row['lo']:,} .. {row['hi']:,}]")  # fmt: skip
    if missing:
        print(f"{name:12} left out: {', '.join(missing)} (bash benchmarks/setup.sh makes their environment)")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, _machine()]))


def _ratio(values: dict[tuple[str, str, str], list[float]], mine: str, peer: str, metric: str) -> dict:
    """Return the median of the rounds' ratios."""
    pairs = zip(values[_key(values, mine, metric)], values[_key(values, peer, metric)], strict=True)
    ratios = [round(ours / theirs, 3) for ours, theirs in pairs]
    return dict(
        name=f"{mine} / {peer}",
        metric=metric,
        value=statistics.median(ratios),
        unit="ratio",
        n=len(ratios),
        lo=min(ratios),
        hi=max(ratios),
    )


def _key(values: dict[tuple[str, str, str], list[float]], name: str, metric: str) -> tuple[str, str, str]:
    return next(key for key in values if key[:2] == (name, metric))


def _python(contender: Contender) -> Path:
    return Path(sys.executable) if contender.venv is None else VENVS / contender.venv / "bin" / "python"


def _run(contender: Contender, timeout_s: float) -> list[dict]:
    command = [str(_python(contender)), "-m", f"benchmarks.contenders.{contender.script}", *contender.args]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"name"')]
    if done.returncode or not rows:
        raise RuntimeError(f"{contender.script} failed:\n{done.stderr[-2000:]}")
    return rows


def _machine() -> dict:
    import gymnasium
    import numpy
    import torch

    return dict(
        name="machine",
        date=time.strftime("%Y-%m-%d"),
        python=platform.python_version(),
        torch=torch.__version__,
        numpy=numpy.__version__,
        gymnasium=gymnasium.__version__,
        cpus=os.cpu_count(),
        processor=platform.machine(),
    )


if __name__ == "__main__":
    main()
