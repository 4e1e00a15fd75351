"""Scripted workers, which send messages and do no work: the coordinator is killed under a hundred of these a second,
and the same work is sent through a bad network and a good one.
"""

from __future__ import annotations

import random
import signal
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ding_like
from ding_like.comm.http_server import CoordinatorServer
from ding_like.comm.keys import Keys, load_keys, make_keys
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.client import HttpCoordinator
from ding_like.comm.rest.messages import ROWS_PER_SEGMENT, RefusedError
from ding_like.errors import CommError
from ding_like.pipeline.parallel.coordinator import LockedService
from tests.chaos.audit import audit, saved_segments
from tests.chaos.live_run import DQN, LiveRun
from tests.chaos.proxy import FAULTS, FaultyProxy
from tests.chaos.report import Report, spread
from tests.pipeline.parallel.service_parts import make_core

_WORKERS = 8
_ROWS = 16
_LOOK_S = 0.02
_OLD_SEGMENTS, _OLD_ROWS = 1000, 1000  # that are in the index before the first kill
_PACKAGE = ding_like.__version__


class Fake(threading.Thread):
    """Collector or learner that sends messages and does no work; `acks` are its acknowledged (time, name, rows)."""

    def __init__(self, url: str, keys: Keys, role: str, number: int, *, every_s: float, rows: int = _ROWS) -> None:
        super().__init__(name=f"fake-{role}{number}", daemon=True)
        self._client = HttpCoordinator(url, role=role, key=keys[role], retry_s=60.0)
        self._role, self._number, self._every_s, self._rows = role, number, every_s, rows
        self._worker = ""
        self._task: m.Task | None = None
        self._sent = 0
        self.most = 10**9  # segments to send
        self.acks: list[tuple[float, str, int]] = []
        self.names: dict[int, str] = {}  # serial -> segment, as the learner received them
        self.faults: list[str] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        try:
            self._client.hello()
            due = time.monotonic()
            while not self.stopped.is_set() and len(self.acks) < self.most:
                try:
                    self._turn()
                except RefusedError as error:
                    if error.code not in ("unknown", "stale_attempt", "finished"):
                        raise
                    self._task = None
                    self._worker = "" if error.code == "unknown" else self._worker
                due = max(due + self._every_s, time.monotonic() - 1.0)
                self.stopped.wait(max(due - time.monotonic(), 0.0))
        except CommError as error:
            self.faults.append(f"{self.name}: {error}")
        finally:
            self._client.close()

    def _turn(self) -> None:
        client = self._client
        if not self._worker:
            asked = m.Register(self._role, "host", 1, _PACKAGE, f"fake{self._number}")
            self._worker = client.register(asked).worker_id
        if self._task is None:
            self._task = client.claim(self._worker, m.Claim(wait_s=1.0)).task
            if self._task is not None and self._task.kind == "learn":
                self._begin_to_learn(self._task)
            return
        if self._task.kind == "eval":
            result = {"returns": [0.0, 0.0], "lengths": [1, 1], "version": 0, "duration_s": 0.0}
            client.finish_task(self._worker, self._task.task_id, m.FinishTask(self._task.attempt, result))
            self._task = None
        elif self._task.kind == "learn":
            self._sample(self._task)
        else:
            self._send(self._task)

    def _send(self, task: m.Task) -> None:
        name = f"{self._worker}.{self._sent:08d}"
        # One env step for all rows: no collector could have taken as many in the time.
        info = m.SegmentInfo(name, self._rows, "x", 1, 0, env_steps=1)
        reply = self._client.send_data(self._worker, task.task_id, m.SendData(task.attempt, (info,)))
        assert name in (*reply.accepted, *reply.duplicate), reply
        self._sent += 1
        self.acks.append((time.monotonic(), name, self._rows))

    def _begin_to_learn(self, task: m.Task) -> None:
        self._client.publish(self._worker, task.policy_id, m.Publish(task.task_id, task.attempt, 0, "x", 1))

    def _sample(self, task: m.Task) -> None:
        have = max(self.names, default=0)
        asked = m.Sample(task.task_id, task.attempt, 64, 8, len(self.acks), have, wait_s=0.5)
        reply = self._client.sample(self._worker, task.buffer_id, asked)
        for segment in reply.new_segments:
            if self.names.setdefault(segment.serial, segment.name) != segment.name:
                self.faults.append(f"segment {segment.serial} was {self.names[segment.serial]}, is {segment.name}")
        if reply.batches is not None:
            ids = reply.batches.unique_ids.reshape(reply.batches.num_batches, -1)
            if any(len(set(batch.tolist())) < len(batch) for batch in ids):
                self.faults.append("a batch has a row twice")
            if not set((ids >> 20).reshape(-1).tolist()) <= set(self.names):
                self.faults.append("a batch has rows of a segment that was not told of")
        self.acks.append((time.monotonic(), "", 0))


def run_coordinator_kills(*, kills: int, messages_per_s: float, seed: int) -> Report:
    """Kill, start again, and wait until every worker was answered."""
    report = Report(
        "coordinator_kills", kills=kills, fake_collectors=_WORKERS, messages_per_s=messages_per_s,
        rows_before=_OLD_SEGMENTS * _OLD_ROWS, seed=seed,
    )  # fmt: skip
    rng = random.Random(seed)
    size = ["policy.other.replay_buffer.replay_buffer_size=3000000"]
    with (
        tempfile.TemporaryDirectory(prefix="ding-chaos-") as name,
        LiveRun(Path(name), DQN, collectors=_WORKERS, system={"coordinator": {}}, overrides=size) as run,
    ):
        first_s = _start(run)
        keys = load_keys(run.folder / "keys.json")
        _fill(run.url, keys)
        every_s = _WORKERS / messages_per_s
        fakes = [Fake(run.url, keys, "learner", 0, every_s=0.1)]
        fakes += [Fake(run.url, keys, "collector", number + 1, every_s=every_s) for number in range(_WORKERS)]
        for fake in fakes:
            fake.start()
        ready, back, started = [], [], time.monotonic()
        try:
            _all_answered_since(fakes, started, 30.0)
            for _ in range(kills):
                time.sleep(rng.uniform(2.0, 6.0))
                run.kill("coordinator")
                killed = time.monotonic()
                ready.append(_start(run))
                back.append(_all_answered_since(fakes, killed, 60.0) - killed)
            sent = sum(len(fake.acks) for fake in fakes[1:])
            report.figures["messages_per_s"] = round(sent / (time.monotonic() - started - sum(back)), 1)
        finally:
            for fake in fakes:
                fake.stopped.set()
            for fake in fakes:
                fake.join(90)
            run.kill("coordinator", signal.SIGINT)
        times = {"first_start_s": round(first_s, 2), "ready": ready, "back": back}
        _judge_kills(report, run.place, fakes, times)
    return report


def _start(run: LiveRun) -> float:
    """Start the coordinator, and return after how many seconds it answered."""
    started = time.monotonic()
    assert run.start_coordinator(), run.last_words("coordinator")[-20:]
    return time.monotonic() - started


def _fill(url: str, keys: Keys) -> None:
    """Put a million rows into the index."""
    learner = Fake(url, keys, "learner", 99, every_s=0.0)
    learner.most = 1
    learner.start()
    filler = Fake(url, keys, "collector", 100, every_s=0.0, rows=_OLD_ROWS)
    filler.most = _OLD_SEGMENTS
    filler.start()
    filler.join(300)
    learner.join(60)
    assert not filler.is_alive() and not filler.faults + learner.faults, (filler.faults, learner.faults)


def _all_answered_since(fakes: list[Fake], moment: float, timeout_s: float) -> float:
    """Wait until each worker was answered after a moment; return when the last was."""
    deadline = time.monotonic() + timeout_s
    while True:
        firsts = [next((at for at, *_ in reversed(fake.acks) if at > moment), None) for fake in fakes]
        if None not in firsts:
            return max(min(at for at, *_ in fake.acks if at > moment) for fake in fakes)
        assert time.monotonic() < deadline, [fake.faults for fake in fakes]
        time.sleep(_LOOK_S)


def _judge_kills(report: Report, folder: Path, fakes: list[Fake], times: dict[str, Any]) -> None:
    state = folder / "run/coordinator.sqlite"
    acked = [{"name": name, "rows": rows} for fake in fakes[1:] for _, name, rows in fake.acks]
    found = audit(state, None, acked)
    told = fakes[0].names
    saved = {each["serial"]: name for name, each in saved_segments(state).items()}
    ready, back = spread(times["ready"]), spread(times["back"])
    report.figures.update(
        segments=found.segments, rows=found.rows, acked_segments=len(acked), first_start_s=times["first_start_s"],
        ready_s=ready, all_back_s=back, faults=[fault for fake in fakes for fault in fake.faults][:5],
    )  # fmt: skip
    report.at_least("coordinator kills", len(times["ready"]), report.setting["kills"])
    report.at_least("messages a second between kills", report.figures["messages_per_s"], 90)
    report.at_most("acknowledged rows lost", found.lost_rows, 0)
    report.at_most("row numbers or serials doubled in the index", found.overlapping, 0)
    report.at_most("segments numbered anew", sum(saved.get(serial) != name for serial, name in told.items()), 0)
    report.at_most("faults that workers saw", sum(len(fake.faults) for fake in fakes), 0)
    report.at_most("start to ready with a million rows, median s", ready["median"], 3)
    report.at_most("start to ready with a million rows, worst s", ready["worst"], 3)
    report.at_most("kill to all workers answered, worst s", back["worst"], 10)


CHANCES = {
    "duplicate": 0.2, "delay": 0.1, "reorder": 0.1, "drop": 0.05, "lose_answer": 0.05, "reset": 0.03,
    "half_close": 0.02, "one_way": 0.02,
}  # fmt: skip
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
                learner = Fake(url, keys, "learner", 0, every_s=0.0)
                collectors = [Fake(url, keys, "collector", number + 1, every_s=0.0) for number in range(workers)]
                for fake in (learner, *collectors):  # without weights, which the learner publishes, none gets credit
                    fake.most = 1 if fake is learner else segments
                    fake.start()
                for fake in (learner, *collectors):
                    fake.join(600)
                    assert not fake.is_alive() and not fake.faults, fake.faults or "a worker hangs"
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
