"""Simulate parallel runs, seed after seed, and say which seed breaks what: `python -m tests.simulation`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation.breaks import BREAKS, broken
from tests.simulation.scheduler import SimulationFailure
from tests.simulation.simulation import FAULTS, OPERATIONS, simulate

_KINDS = ("off_policy", "priority", "on_policy")
_TRACE_LINES = 60


def main() -> int:
    """Return 1 if an invariant did not hold."""
    args = _arguments()
    counts: Counter[str] = Counter()
    operations, failures, started_s = 0, 0, time.perf_counter()
    seed = args.seed
    while operations < args.operations if args.seeds is None else seed < args.seed + args.seeds:
        try:
            with broken(args.broken):
                report = simulate(seed, operations=args.each, faults=args.faults, kind=args.kind)
        except SimulationFailure as failure:
            failures += 1
            operations += failure.simulation.num_operations  # type: ignore[attr-defined]
            counts += failure.simulation.counts  # type: ignore[attr-defined]
            _show(failure, seed, args)
            if failures >= args.failures:
                break
        else:
            operations += report.operations
            counts += report.counts
            if args.verbose:
                print(f"seed {seed}: {report.operations} operations, trace {report.trace_hash:08x}, {report.plan}")
        seed += 1
    seconds = time.perf_counter() - started_s
    print(f"{operations:,} operations of {seed - args.seed} runs in {seconds:.0f} s, {failures} failed")
    for name, number in sorted(counts.items()):
        print(f"  {name:20s}{number:10,}{'' if name in OPERATIONS else '   (not counted as an operation)'}")
    return int(failures > 0)


def _show(failure: SimulationFailure, seed: int, args: argparse.Namespace) -> None:
    simulation = failure.simulation  # type: ignore[attr-defined]
    if not args.brief:
        print("\n".join(list(simulation.world.trace)[-_TRACE_LINES:]))
    text = str(failure)[: 300 if args.brief else 2000]
    print(f"\nseed {seed} fails after {simulation.num_operations:,} operations:\n{text}")
    again = f"python -m tests.simulation --seed {seed} --seeds 1 --each {args.each}"
    if args.faults != FAULTS:
        again += f" --faults {','.join(args.faults)}"
    if args.kind:
        again += f" --kind {args.kind}"
    if args.broken:
        again += f" --break {args.broken}"
    print(f"plan: {simulation.plan}\nplay it again: {again}\n", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--operations", type=int, default=100_000, help="to do in all, over many seeds")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--seeds", type=int, help="how many, in place of --operations")
    parser.add_argument("--each", type=int, default=3000, help="operations of a run before it may end")
    parser.add_argument("--faults", type=lambda text: tuple(filter(None, text.split(","))), default=FAULTS)
    parser.add_argument("--kind", choices=_KINDS)
    parser.add_argument("--break", dest="broken", choices=sorted(BREAKS), help="take a fix out, to see it found")
    parser.add_argument("--failures", type=int, default=1, help="stop after so many")
    parser.add_argument("--brief", action="store_true", help="print no trace")
    parser.add_argument("--verbose", action="store_true", help="print a line for each run")
    args = parser.parse_args()
    unknown = set(args.faults) - set(FAULTS)
    if unknown:
        parser.error(f"no faults: {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}")
    return args


if __name__ == "__main__":
    sys.exit(main())
