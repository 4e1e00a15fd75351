"""Run the chaos scenarios: `python -m tests.chaos [--short] [--only NAME ...]`; reports go to docs/reports."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.chaos.bad_segments import run_bad_segments
from tests.chaos.coordinator_kills import run_coordinator_kills
from tests.chaos.kills import run_kills
from tests.chaos.partitions import run_partitions
from tests.chaos.report import REPORTS, Report
from tests.chaos.traffic import run_traffic

LONG: dict[str, Callable[[], Report]] = {
    "worker_kills": lambda: run_kills(minutes=10, collector_kills=60, learner_kills=10, seed=0),
    "coordinator_kills": lambda: run_coordinator_kills(kills=20, messages_per_s=100, seed=0),
    "partitions": lambda: run_partitions(cuts=(("one", 1), ("two", 20), ("learner", 20), ("one", 120))),
    "bad_segments": lambda: run_bad_segments(segments=10_000, share=0.05, seed=0),
    "bad_traffic": lambda: run_traffic(workers=8, segments=100, seed=0),
}
# Without partitions, which need root.
SHORT: dict[str, Callable[[], Report]] = {
    "worker_kills": lambda: run_kills(minutes=0.3, collector_kills=3, learner_kills=1, seed=0),
    "coordinator_kills": lambda: run_coordinator_kills(kills=1, messages_per_s=100, seed=0),
    "bad_segments": lambda: run_bad_segments(segments=500, share=0.05, seed=0),
    "bad_traffic": lambda: run_traffic(workers=4, segments=50, seed=0),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a minute in place of half an hour; writes no reports")
    parser.add_argument("--only", nargs="+", choices=sorted(LONG), default=list(LONG))
    arguments = parser.parse_args()
    logging.getLogger("ding_like").setLevel(logging.ERROR)  # what goes wrong by plan is counted, not told
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
