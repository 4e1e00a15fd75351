"""Measure the package, and peers beside it where their environment exists; replay buffers have a command of their own.

Without --only, `python -m benchmarks.buffer` is part of the run. What it finds goes to benchmarks/own/, out of git;
--record puts it among the recordings, benchmarks/results/, that pages of docs show.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from importlib.util import find_spec
from pathlib import Path

from benchmarks import buffer
from benchmarks.buffer_cases import CASES
from benchmarks.provenance import OWN, RESULTS, DirtyTreeError, Provenance, provenance
from benchmarks.rounds import Row, circumstances, measure, profile, summarise
from benchmarks.table import BENCHMARKS, Benchmark

_VERDICTS = {True: "met", False: "MISSED", None: "not judged: a short run"}


def main(argv: list[str] | None = None) -> None:
    """Parse the command line and run; the exit status is 1 if a contender failed."""
    args = _parse(argv)
    if args.list:
        for name, benchmark in BENCHMARKS.items():
            print(f"{name:16} {' '.join(benchmark.contenders)}")
        return
    names = args.only or [name for name, benchmark in BENCHMARKS.items() if benchmark.has_ours]
    extra = [] if args.steps is None else ["--steps", str(args.steps)]
    if args.profile:
        for name in names:
            _show_profile(name, timeout_s=args.timeout, extra=extra)
        return
    try:
        code = provenance(allow_dirty=args.allow_dirty or not args.record)
    except DirtyTreeError as error:
        sys.exit(f"benchmarks: {error}")
    failed = [name for name in names if not _run(name, args, extra, code)]
    if not args.only and not buffer.run(list(CASES), rounds=args.rounds, peers=args.peers, out=args.out, code=code):
        failed.append("buffer")
    sys.exit(bool(failed))


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--list", action="store_true", help="list benchmarks and their contenders")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="run these benchmarks only; 'weights_*' is several")
    parser.add_argument("--rounds", type=int, default=5, help="times that each contender runs, in turn (%(default)s)")
    parser.add_argument(
        "--peers", action=argparse.BooleanOptionalAction, default=True, help="run the peers too, in the same rounds"
    )
    parser.add_argument("--steps", type=int, help="env steps, or updates, of a run (default: each contender's own)")
    parser.add_argument("--profile", action="store_true", help="show where our time goes instead")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one run of one contender")
    parser.add_argument("--out", type=Path, help="folder for <benchmark>.jsonl (default: benchmarks/own)")
    parser.add_argument("--record", action="store_true", help="write into benchmarks/results, which pages of docs show")
    parser.add_argument(
        "--allow-dirty", action="store_true", help="record what a tree gave that differs from its commit, and say so"
    )
    args = parser.parse_args(argv)
    if args.record and args.out is not None:
        parser.error("--record writes into benchmarks/results; leave --out out, or give it alone")
    args.out = RESULTS if args.record else args.out or OWN
    for pattern in args.only or ():
        if not fnmatch.filter(BENCHMARKS, pattern):
            parser.error(f"no benchmark is named {pattern}; there are {', '.join(BENCHMARKS)}")
    args.only = args.only and [name for name in BENCHMARKS if any(fnmatch.fnmatchcase(name, one) for one in args.only)]
    return args


def _run(name: str, args: argparse.Namespace, extra: list[str], code: Provenance) -> bool:
    """Run one benchmark, print its table and write its file; return whether all contenders did their work."""
    benchmark = BENCHMARKS[name]
    if benchmark.needs is not None and find_spec(benchmark.needs) is None:
        print(f"{name}: left out, it needs {benchmark.needs}")
        return True
    gpu = _gpu() if benchmark.needs_gpu else None
    if benchmark.needs_gpu and gpu is None:
        print(f"{name}: left out, it needs a GPU")
        return True
    wanted = {key: one for key, one in benchmark.contenders.items() if one.is_ours or args.peers}
    chosen = {key: one for key, one in wanted.items() if one.python.exists()}
    measured = measure(chosen, rounds=args.rounds, timeout_s=args.timeout, extra=extra)
    rows = summarise(benchmark, measured, is_short=args.steps is not None)
    _show(name, rows)
    for key in wanted.keys() - chosen.keys():
        print(f"{name}: left out {key}: bash benchmarks/setup.sh makes its environment")
    for key, error in measured.errors.items():
        print(f"{name}: {key} failed: {error}", file=sys.stderr)
    args.out.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row) for row in [*rows, circumstances(measured, code, gpu=gpu)]]
    path = args.out / f"{name}.jsonl"
    path.write_text("\n".join(lines) + "\n")
    print(f"{name}: wrote {path}")
    return not measured.errors


def _gpu() -> str | None:
    """Return the name of this machine's first GPU."""
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else None


def _show(name: str, rows: list[Row]) -> None:
    for row in rows:
        spread = f"[{row['lo']:,} .. {row['hi']:,}] " if "lo" in row else ""
        limit = f"{row.get('bar_is', '')} {row['bar']:g}".strip() if "bar" in row else ""
        bar = f", bar {limit} {_VERDICTS[row['is_met']]}" if "bar" in row else ""
        print(
            f"{name:14} {row['name']:40} {row['metric']:15} {row['value']:>11,} {row['unit']:12} {spread}{row['from']}"
            f"{bar}"
        )


def _show_profile(name: str, *, timeout_s: float, extra: list[str]) -> None:
    benchmark: Benchmark = BENCHMARKS[name]
    for key, contender in benchmark.contenders.items():
        if contender.is_ours:
            print(f"{name}: {key}\n{profile(contender, timeout_s=timeout_s, extra=extra)}")


if __name__ == "__main__":
    main()
