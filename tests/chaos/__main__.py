"""Run the chaos scenarios: `python -m tests.chaos [--short] [--only NAME ...]`; reports go to docs/reports."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.chaos.bad_segments import run_bad_segments
from tests.chaos.live_faults import (
    run_clock_jumps,
    run_disk_faults,
    run_kills,
    run_lost_answers,
    run_partitions,
    run_pauses,
    run_restarts,
)
from tests.chaos.report import REPORTS, Report
from tests.chaos.scripted_workers import run_coordinator_kills, run_traffic
from tests.chaos.seed_faults import run_seed_kills, run_seed_slow_learner

LONG: dict[str, Callable[[], Report]] = {
    "worker_kills": lambda: run_kills(collector_kills=60, learner_kills=10, seed=0),
    "coordinator_kills": lambda: run_coordinator_kills(kills=20, messages_per_s=100, seed=0),
    "partitions": lambda: run_partitions(cuts=_CUTS),
    "bad_segments": lambda: run_bad_segments(segments=10_000, share=0.05, seed=0),
    "bad_traffic": lambda: run_traffic(workers=8, segments=100, seed=0),
    "pauses_dqn": lambda: run_pauses(policy="dqn", in_a_row=3),
    "pauses_ppo": lambda: run_pauses(policy="ppo", in_a_row=3),
    "pauses_dqn_parallel": lambda: run_pauses(policy="dqn", mode="parallel"),
    "lost_answers_dqn": lambda: run_lost_answers(policy="dqn", seconds=60, chance=0.1, seed=0),
    "lost_answers_ppo": lambda: run_lost_answers(policy="ppo", seconds=60, chance=0.1, seed=0),
    "restarts_dqn": lambda: run_restarts(policy="dqn", rounds=3, learner_kills=0, seed=0),
    "restarts_ppo": lambda: run_restarts(policy="ppo", rounds=1, learner_kills=10, seed=0),
    "disk_faults_dqn": lambda: run_disk_faults(policy="dqn"),
    "disk_faults_dqn_parallel": lambda: run_disk_faults(policy="dqn", mode="parallel"),
    "clock_jumps_dqn": lambda: run_clock_jumps(policy="dqn"),
    "clock_jumps_ppo": lambda: run_clock_jumps(policy="ppo"),
    "seed_kills": lambda: run_seed_kills(minutes=2, server_every_s=10, actor_kills=6, seed=0),
    "seed_slow_learner": lambda: run_seed_slow_learner(seconds=60, seed=0),
}
# Without partitions, which take minutes.
SHORT: dict[str, Callable[[], Report]] = {
    "worker_kills": lambda: run_kills(collector_kills=3, learner_kills=1, seed=0),
    "coordinator_kills": lambda: run_coordinator_kills(kills=1, messages_per_s=100, seed=0),
    "bad_segments": lambda: run_bad_segments(segments=500, share=0.05, seed=0),
    "bad_traffic": lambda: run_traffic(workers=4, segments=50, seed=0),
    "pauses_dqn": lambda: run_pauses(policy="dqn", roles=("learner", "coordinator"), parts=(2.4,)),
    "pauses_ppo": lambda: run_pauses(policy="ppo", roles=("learner", "collector"), parts=(1.5,)),
    "lost_answers_dqn": lambda: run_lost_answers(policy="dqn", seconds=5, chance=0.2, seed=0),
    "restarts_dqn": lambda: run_restarts(policy="dqn", routes=_SHORT_ROUTES, learner_kills=0, seed=0),
    "restarts_ppo": lambda: run_restarts(policy="ppo", routes=(), learner_kills=2, seed=0),
    "disk_faults_dqn": lambda: run_disk_faults(policy="dqn", faults=(("state disk full", 1.0), ("state locked", 5.0))),
    "clock_jumps_dqn": lambda: run_clock_jumps(policy="dqn", names=("learner", "coordinator"), jumps_s=(600.0,)),
    "seed_kills": lambda: run_seed_kills(minutes=0.3, server_every_s=6, actor_kills=1, seed=0),
    "seed_slow_learner": lambda: run_seed_slow_learner(seconds=15, seed=0),
}
_SHORT_ROUTES = ("POST buffers/*/sample", "POST policies/*")
_CUTS = (("collector0", 1), ("collector1", 20), ("learner", 20), ("collector0", 120))
NEED_ROOT = ("partitions", "disk_faults_dqn", "disk_faults_dqn_parallel")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="some minutes in place of an hour; writes no reports")
    parser.add_argument("--only", nargs="+", choices=sorted(LONG), default=list(LONG))
    arguments = parser.parse_args()
    logging.getLogger("ding_like").setLevel(logging.ERROR)  # what goes wrong by plan is counted, not told
    scenarios = SHORT if arguments.short else LONG
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.only:
            if name not in scenarios:
                continue
            if arguments.short and name in NEED_ROOT and os.geteuid() != 0:
                print(f"{name} is left out: it mounts a disk, which needs root", flush=True)
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
