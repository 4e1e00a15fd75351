"""Send the same work through a bad network and a good one: the coordinator's index must come out equal."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ding_like.comm.http_server import CoordinatorServer
from ding_like.comm.keys import Keys, make_keys
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.client import HttpCoordinator
from ding_like.comm.rest.messages import ROWS_PER_SEGMENT, RefusedError
from ding_like.pipeline.parallel.coordinator import LockedService
from tests.chaos.proxy import FAULTS, FaultyProxy
from tests.chaos.report import Report
from tests.pipeline.parallel.service_parts import PACKAGE, make_core

CHANCES = {
    "duplicate": 0.2, "delay": 0.1, "reorder": 0.1, "drop": 0.05, "lose_answer": 0.05, "reset": 0.03,
    "half_close": 0.02, "one_way": 0.02,
}  # fmt: skip
_ROWS = 8

IndexRow = tuple[str, int, int]  # worker, number of its segment, row


def run_traffic(*, workers: int, segments: int, seed: int) -> Report:
    """Compare a run through the proxy with one without."""
    report = Report("bad_traffic", workers=workers, segments_each=segments, chances=CHANCES, seed=seed)
    clean, _, _ = _index_of({}, workers, segments, seed)
    faulty, counts, wall_s = _index_of(CHANCES, workers, segments, seed)
    report.figures = {"rows": len(faulty), "faults": counts, "wall_s": round(wall_s, 1)}
    report.at_least("rows of the clean run", len(clean), workers * segments * _ROWS)
    report.at_most("rows that differ from the clean run", len(set(clean) ^ set(faulty)), 0)
    report.at_most("rows that come twice", len(faulty) - len(set(faulty)), 0)
    for fault in FAULTS:
        report.at_least(f"requests that met '{fault}'", counts.get(fault, 0), 1)
    return report


def _index_of(
    chances: Mapping[str, float], workers: int, segments: int, seed: int
) -> tuple[list[IndexRow], dict[str, int], float]:
    """Return (rows of the index in order, how often each fault happened, seconds)."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        core: Any = make_core(folder, size=100_000)
        core._wall_clock = time.time  # of which signatures are made
        keys = make_keys(folder / "keys.json")
        server = CoordinatorServer(LockedService(core), keys)
        server.start()
        try:
            with FaultyProxy(int(server.url.rpartition(":")[2]), chances, seed=seed) as proxy:
                url = f"http://127.0.0.1:{proxy.port}"
                _publish(url, keys)
                threads = [
                    threading.Thread(target=_collect, args=(url, keys, f"scripted{number}", segments), daemon=True)
                    for number in range(workers)
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(600)
                    assert not thread.is_alive(), "a worker hangs"
            rows = _rows(core)
        finally:
            server.close()
            core.close()
    return rows, dict(proxy.counts), time.monotonic() - started


def _rows(core: Any) -> list[IndexRow]:
    found, book = [], core.book
    assert book.count, "rows get their ids when they are asked for"
    for segment in book.new_segments(0, 2**60):
        worker, _, number = segment.name.rpartition(".")
        ids = book._unique_ids[segment.first_row : segment.first_row + segment.rows] % ROWS_PER_SEGMENT
        found += [(worker, int(number), int(row)) for row in ids]
    return sorted(found)


def _publish(url: str, keys: Keys) -> None:
    """Publish weights as the learner does: without them collectors get no credit."""
    client = HttpCoordinator(url, role="learner", key=keys["learner"], retry_s=60.0)
    client.hello()
    worker = client.register(m.Register("learner", "host", 1, PACKAGE, "scripted")).worker_id
    task = client.claim(worker, m.Claim(wait_s=1.0)).task
    assert task is not None
    client.publish(worker, task.policy_id, m.Publish(task.task_id, task.attempt, 0, "x", 1))
    client.close()


def _collect(url: str, keys: Keys, incarnation: str, segments: int) -> None:
    """Be a collector that sends so many segments, whatever becomes of its tasks between."""
    client = HttpCoordinator(url, role="collector", key=keys["collector"], retry_s=60.0)
    client.hello()
    number, worker, task = 0, "", None
    while number < segments:
        try:
            if not worker:
                worker = client.register(m.Register("collector", "host", 1, PACKAGE, incarnation)).worker_id
            if task is None:
                task = client.claim(worker, m.Claim(wait_s=1.0)).task
                continue
            if task.kind == "eval":
                result = {"returns": [0.0, 0.0], "lengths": [1, 1], "version": 0, "duration_s": 0.0}
                client.finish_task(worker, task.task_id, m.FinishTask(task.attempt, result))
                task = None
                continue
            info = m.SegmentInfo(f"{worker}.{number:08d}", _ROWS, "x", 1, 0, _ROWS)
            client.send_data(worker, task.task_id, m.SendData(task.attempt, (info,)))
            number += 1
        except RefusedError as error:
            if error.code not in ("unknown", "stale_attempt", "finished"):
                raise
            task, worker = None, "" if error.code == "unknown" else worker
    client.close()
