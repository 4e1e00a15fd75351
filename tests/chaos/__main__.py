"""Run the chaos scenarios: `python -m tests.chaos [--short] [--only NAME ...]`; reports go to docs/reports."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.chaos.kills import run_kills
from tests.chaos.report import REPORTS, Report

LONG: dict[str, Callable[[], Report]] = {
    "worker_kills": lambda: run_kills(minutes=10, collector_kills=60, learner_kills=10, seed=0),
}
SHORT: dict[str, Callable[[], Report]] = {
    "worker_kills": lambda: run_kills(minutes=0.3, collector_kills=3, learner_kills=1, seed=0),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a minute in place of half an hour; writes no reports")
    parser.add_argument("--only", nargs="+", choices=sorted(LONG), default=sorted(LONG))
    arguments = parser.parse_args()
    scenarios = SHORT if arguments.short else LONG
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.only:
            if name not in scenarios:
                continue
            report = scenarios[name]()
            report.write(Path(folder) if arguments.short else REPORTS)
            print(report.table(), flush=True)
            print(f"  figures: {report.figures}", flush=True)
            missed += [] if report.is_ok else [name]
    print("missed: " + ", ".join(missed) if missed else "all bars met")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
