"""Measure replay buffers, peers beside them, and hold ours to its bars: lower is better in every row."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.buffer_cases import CASES, ONE_ROUND, Bar, Case
from benchmarks.provenance import OWN, RESULTS, DirtyTreeError, Provenance, provenance
from benchmarks.rounds import THIS_RUN, Measured, Row, circumstances, measure, ratio, summarise
from benchmarks.table import Benchmark

_SHORT_ROWS = 20_000
_SHORT_SECONDS = 0.02


def main(argv: list[str] | None = None) -> None:
    """Parse the command line and run; the exit status is 1 if a contender failed, bars met or not."""
    args = _parse(argv)
    if args.list:
        for name, case in CASES.items():
            print(f"{name:24} {' '.join(case.contenders)}")
        return
    names = args.case or list(CASES)
    is_part = args.short or bool(args.case)
    if args.record and (is_part or args.out is not None):
        sys.exit("benchmarks.buffer: --record is of a full run: leave --short, --case and --out out")
    out = RESULTS if args.record else args.out or (None if is_part else OWN)
    try:
        code = None if out is None else provenance(allow_dirty=args.allow_dirty or not args.record)
    except DirtyTreeError as error:
        sys.exit(f"benchmarks.buffer: {error}")
    is_done = run(
        names, rounds=args.rounds, peers=args.peers, short=args.short, timeout_s=args.timeout, out=out, code=code
    )
    sys.exit(not is_done)


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.buffer", description=__doc__)
    parser.add_argument("--list", action="store_true", help="list cases and their contenders")
    parser.add_argument("--case", nargs="+", metavar="NAME", choices=CASES, help="run these cases only")
    parser.add_argument("--rounds", type=int, default=5, help="times that each contender runs, in turn (%(default)s)")
    parser.add_argument(
        "--short",
        action="store_true",
        help=f"see that everything runs: one round, {_SHORT_ROWS:,} rows at most; the figures mean little",
    )
    parser.add_argument(
        "--peers", action=argparse.BooleanOptionalAction, default=True, help="run the peers too, in the same rounds"
    )
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one run of one contender")
    parser.add_argument(
        "--out", type=Path, help="folder for buffer.jsonl (default: benchmarks/own for a full run, none for a part)"
    )
    parser.add_argument("--record", action="store_true", help="write into benchmarks/results, which pages of docs show")
    parser.add_argument(
        "--allow-dirty", action="store_true", help="record what a tree gave that differs from its commit, and say so"
    )
    return parser.parse_args(argv)


def run(
    names: Sequence[str],
    *,
    rounds: int = 5,
    peers: bool = True,
    short: bool = False,
    timeout_s: float = 300.0,
    out: Path | None = None,
    code: Provenance | None = None,
) -> bool:
    """Run these cases, print a table, write `out`/buffer.jsonl; return whether all contenders did their work."""
    rows: list[Row] = []
    judged: list[Row] = []
    versions: dict[str, Mapping[str, str]] = {}
    faults: list[str] = []
    for name in names:
        case = shortened(CASES[name]) if short else CASES[name]
        chosen = {key: one for key, one in case.contenders.items() if one.is_ours or (peers and one.python.exists())}
        if peers:
            faults += [
                f"{name}: {key} has no environment: run bash benchmarks/setup.sh, or give --no-peers"
                for key in case.contenders.keys() - chosen.keys()
            ]
        measured = measure(chosen, rounds=1 if short or name in ONE_ROUND else rounds, timeout_s=timeout_s)
        faults += [f"{name}: {key} FAILED: {error}" for key, error in measured.errors.items()]
        versions.update({one.script: measured.versions[key] for key, one in chosen.items() if key in measured.versions})
        medians = [{"case": name, **row} for row in summarise(Benchmark((), chosen), measured)]
        verdicts = [{"case": name, **judge(bar, measured, is_short=short)} for bar in case.bars]
        _show_medians(medians)
        rows += [*medians, *verdicts]
        judged += verdicts
    _show_verdicts(judged)
    for fault in faults:
        print(fault, file=sys.stderr)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        lines = [*rows, {**circumstances(Measured([], versions, {}), code), "short": short}]
        (out / "buffer.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return not faults


def shortened(case: Case) -> Case:
    """Return the case with little to do."""
    contenders = {}
    for name, one in case.contenders.items():
        args = list(one.args)
        where = args.index("--rows") + 1
        args[where] = str(min(int(args[where]), _SHORT_ROWS))
        contenders[name] = one._replace(args=(*args, "--seconds", str(_SHORT_SECONDS)))
    return case._replace(contenders=contenders)


def judge(bar: Bar, measured: Measured, *, is_short: bool = False) -> Row:
    """Return the figure that a bar is about, with `bar` and `is_met`.

    A figure that lacks is None, and `missing` says whose. `is_met` is None then, and where a short run proves nothing.
    """
    name = bar.ours if bar.against is None else f"{bar.ours} / {bar.against}"
    values = {one.name: one.values for one in measured.series}
    missing = [one for one in (bar.ours, bar.against) if one is not None and one not in values]
    if missing:
        return {"name": name, "value": None, "from": THIS_RUN, "bar": bar.limit, "is_met": None, "missing": missing}
    if bar.against is None:
        own = Measured([one for one in measured.series if one.name == bar.ours], {}, {})
        (row,) = summarise(Benchmark((), {}), own)
    else:
        metric = next(one.metric for one in measured.series if one.name == bar.ours)
        row = ratio(metric, bar.ours, bar.against, values)
    return {**row, "bar": bar.limit, "is_met": None if is_short else row["value"] <= bar.limit}


def _show_medians(rows: list[Row]) -> None:
    for row in rows:
        spread = f"[{row['lo']:,.3f} .. {row['hi']:,.3f}]"
        print(f"{row['case']:24} {row['name']:16} {row['metric']:22} {row['value']:>12,.3f} {row['unit']:6} {spread}")


def _show_verdicts(rows: list[Row]) -> None:
    print(f"\n{'case':24} {'bar':28} {'at most':>8} {'is':>9}")
    for row in rows:
        figure = "" if row["value"] is None else f"{row['value']:,.3f}"
        print(f"{row['case']:24} {row['name']:28} {row['bar']:>8,g} {figure:>9} {_verdict(row)}")


def _verdict(row: Row) -> str:
    if "missing" in row:
        return f"NOT MEASURED: no {', '.join(row['missing'])}"
    return {None: "short run, not judged", True: "met", False: "MISSED"}[row["is_met"]]


if __name__ == "__main__":
    main()
