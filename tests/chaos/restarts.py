"""Kill a run's coordinator between taking a message and answering it, or its learner, and start them again."""

from __future__ import annotations

import functools
import random
import time

from tests.chaos.fault_course import course
from tests.chaos.live_run import LiveRun
from tests.chaos.proxy import HeldAnswer
from tests.chaos.report import Report

# That a run sends again and again; for 'POST tasks/claim' a collector is killed first.
ROUTES = (
    "POST buffers/*/sample", "POST policies/*", "POST tasks/*/data", "POST tasks/claim", "POST buffers/*/update",
    "POST tasks/*/info", "POST workers/*/heartbeat",
)  # fmt: skip
_TAKEN_S = 20.0


def run_restarts(
    *, policy: str, routes: tuple[str, ...] = ROUTES, learner_kills: int, seed: int, rounds: int = 1
) -> Report:
    """Kill, start again, and look whether updates granted, received and learned come out equal."""
    report = Report(
        f"restarts_{policy}", policy=policy, routes=list(routes), learner_kills=learner_kills, rounds=rounds
    )
    rng = random.Random(seed)
    plan = [*routes] * rounds + ["learner"] * learner_kills
    rng.shuffle(plan)
    with course(report, policy, lost_lives=learner_kills) as faults:
        run = faults.run
        run.start_coordinator()
        with HeldAnswer(run.port) as proxy:
            run.url = f"http://127.0.0.1:{proxy.port}"
            faults.start(run.start_workers)
            for what in plan:
                if what == "learner":
                    inflict = functools.partial(_kill_learner, run, rng.uniform(0.0, 1.0))
                else:
                    inflict = functools.partial(_kill_between, run, proxy, what, report)
                faults.strike(f"{what} killed", inflict, settle_s=3.0)
            faults.end()
    return report


def _kill_learner(run: LiveRun, after_s: float) -> None:
    time.sleep(after_s)
    run.kill("learner")
    run.start_worker("learner")


def _kill_between(run: LiveRun, proxy: HeldAnswer, route: str, report: Report) -> None:
    """Kill the coordinator when it has taken a message of a route, before the worker has the answer."""
    proxy.hold(route)
    if route == "POST tasks/claim":
        run.kill("collector0")
        run.start_worker("collector0")
    is_taken = proxy.wait_until_taken(_TAKEN_S)
    run.kill("coordinator")
    proxy.lose()
    report.at_least(f"coordinator killed after it took {route}", int(is_taken), 1)
    run.start_coordinator()
