"""Lose answers of a run's coordinator, of every route, after it took the message."""

from __future__ import annotations

from tests.chaos.fault_course import course
from tests.chaos.proxy import LostAnswers
from tests.chaos.report import Report

# Requests of a run whose files travel through the coordinator. No worker sends 'fail'.
ROUTES = (
    "POST workers", "POST workers/*/heartbeat", "DELETE workers/*", "POST tasks/claim", "POST tasks/*/data",
    "POST tasks/*/info", "POST tasks/*/finish", "POST buffers/*/sample", "POST buffers/*/update", "POST policies/*",
    "PUT segments/*", "PUT weights/*", "GET weights/*",
)  # fmt: skip


def run_lost_answers(*, policy: str, seconds: float, chance: float, seed: int) -> Report:
    """Lose the first answer of each route, and others by chance, from the first request of a run to the last."""
    report = Report(f"lost_answers_{policy}", policy=policy, seconds=seconds, chance=chance, seed=seed)
    streamed = {"path_data": None, "path_policy": None}
    with course(report, policy, system=streamed) as faults:
        run = faults.run
        run.start_coordinator()
        with LostAnswers(run.port, chance, seed=seed) as proxy:
            run.url = f"http://127.0.0.1:{proxy.port}"
            faults.start(run.start_workers)
            faults.rest(seconds)
            faults.end()
        report.figures["lost"] = dict(sorted(proxy.lost.items()))
        for route in ROUTES:
            report.at_least(f"answers lost of {route}", proxy.lost[route], 1)
    return report
