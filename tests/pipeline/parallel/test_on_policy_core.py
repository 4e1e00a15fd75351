"""On-policy, each row is learned from once, by the weights that collected it, and no worker waits for ever."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.messages import RefusedError
from ding_like.pipeline.parallel.core import CoordinatorCore
from ding_like.pipeline.rows import OnPolicyRatio
from tests.pipeline.parallel.service_parts import claim, evaluated, join, make_core
from tests.support import Clock

BATCH, SEGMENT = 24, 8


def open_core(folder: Path, clock: Clock) -> CoordinatorCore:
    return make_core(
        folder, size=4 * BATCH, clock=clock, ratio=OnPolicyRatio(BATCH), eval_freq=10**9, segment_rows=SEGMENT
    )


class Simulation:
    """Collectors and a learner that act on a core in random order; it records what every row was made of."""

    def __init__(self, folder: Path, seed: int, collectors: int) -> None:
        self.folder, self.clock, self.rng = folder, Clock(), random.Random(seed)
        self.core = open_core(folder, self.clock)
        self.learner = join(self.core, "learner")
        self.learn = claim(self.core, self.learner)
        self.version = -1
        self.have = 0
        self.publish()
        self.tasks: dict[str, m.Task] = {}
        self.sent: dict[str, int] = {}  # number of segments by worker
        self.loaded: dict[str, tuple[int, int]] = {}
        self.credit: dict[str, int] = {}
        self.rows: dict[int, tuple[int, int]] = {}  # serial -> (version, rows)
        self.used: list[int] = []  # serials of the rows of all batches
        self.batches = 0
        for _ in range(collectors):
            self.add_collector()

    def add_collector(self) -> None:
        worker = join(self.core, "collector", len(self.sent))
        task = claim(self.core, worker)
        if task.kind == "eval":
            self.core.finish_task(worker, task.task_id, evaluated(task))
            task = claim(self.core, worker)
        self.tasks[worker], self.sent[worker], self.credit[worker] = task, 0, 0

    def publish(self) -> None:
        self.version += 1
        self.core.publish(
            self.learner, "policy", m.Publish(self.learn.task_id, self.learn.attempt, self.version, "x", 1)
        )

    def ask(self, worker: str) -> None:
        task = self.tasks[worker]
        self.take_order(worker, self.core.task_info(worker, task.task_id, m.TaskInfo(task.attempt, {})))

    def take_order(self, worker: str, order: m.TaskInfoReply | m.SendDataReply) -> None:
        assert order.policy is not None
        self.credit[worker] = order.credit
        self.loaded[worker] = (order.policy.attempt, order.policy.version)

    def send(self, worker: str) -> None:
        task, rows = self.tasks[worker], self.credit[worker]
        name = f"{worker}.{self.sent[worker]:08d}"
        self.sent[worker] += 1
        serial = self.core.book.next_serial
        attempt, version = self.loaded[worker]
        info = m.SegmentInfo(name, rows, "0" * 64, 9, version, rows, policy_attempt=attempt)
        reply = self.core.send_data(worker, task.task_id, m.SendData(task.attempt, (info,)))
        assert reply.accepted == (name,)
        if self.core.book.next_serial > serial:
            assert self.loaded[worker] == (self.learn.attempt, self.version), "only rows of the newest weights"
            self.rows[serial] = (self.version, rows)
        self.take_order(worker, reply)

    def learn_once(self) -> bool:
        message = m.Sample(self.learn.task_id, self.learn.attempt, BATCH, 4, 0, self.have)
        reply = self.core.sample(self.learner, "buffer", message)
        if reply.new_segments:
            self.have = reply.new_segments[-1].serial
        if reply.batches is None:
            return False
        serials = (reply.batches.unique_ids >> 20).tolist()
        assert reply.batches.num_batches == 1 and len(serials) == BATCH
        assert {self.rows[serial][0] for serial in serials} == {self.version}
        self.used += serials
        self.batches += 1
        self.publish()
        return True

    def lose_collector(self) -> None:
        worker = self.rng.choice(list(self.tasks))
        self.core.leave(worker, m.Leave("killed"))
        del self.tasks[worker]
        self.add_collector()

    def restart(self) -> None:
        self.core.close()
        self.core = open_core(self.folder, self.clock)

    def step(self, *, with_faults: bool) -> None:
        draw = self.rng.random()
        if draw < 0.15:
            self.learn_once()
        elif with_faults and draw < 0.17:
            self.lose_collector()
        elif with_faults and draw < 0.19:
            self.restart()
        else:
            worker = self.rng.choice(list(self.tasks))
            if self.credit[worker]:
                self.send(worker)
            else:
                self.ask(worker)


@pytest.mark.parametrize(("collectors", "with_faults"), [(3, False), (2, True)])
def test_rows_are_used_once_in_order_and_nobody_waits_for_ever(
    tmp_path: Path, collectors: int, with_faults: bool
) -> None:
    run = Simulation(tmp_path, seed=collectors, collectors=collectors)

    for _ in range(1000):
        run.step(with_faults=with_faults)

    assert run.batches >= 20, "it goes on and on"
    assert run.used == sorted(run.used)
    for serial, (_, rows) in run.rows.items():
        assert run.used.count(serial) in (0, rows)
    if not with_faults:
        assert run.core.book.stale_rows == 0, "no more is collected than one batch takes"
    run.core.close()


def test_rows_of_older_weights_are_counted_and_not_learned_from(tmp_path: Path) -> None:
    run = Simulation(tmp_path, seed=0, collectors=1)
    worker = next(iter(run.tasks))
    run.ask(worker)
    assert run.credit[worker] == SEGMENT
    run.publish()

    run.send(worker)

    assert run.core.status()["stale_rows"] == SEGMENT and run.core.env_step == SEGMENT
    assert run.core.book.take_files()[0] == [f"{worker}.00000000"]
    run.core.close()


def test_another_number_of_rows_than_a_batch_is_refused(tmp_path: Path) -> None:
    run = Simulation(tmp_path, seed=0, collectors=1)
    worker = next(iter(run.tasks))
    for _ in range(3):
        run.ask(worker)
        run.send(worker)
    serial = run.core.book.next_serial - 1

    with pytest.raises(RefusedError, match="24 rows, not 23"):
        run.core.sample(run.learner, "buffer", m.Sample(run.learn.task_id, 1, BATCH - 1, 1, 0, serial))
    run.core.close()


def send_batch(run: Simulation) -> str:
    """Have a whole batch collected with the newest weights; return who did."""
    worker = next(iter(run.tasks))
    for _ in range(BATCH // SEGMENT):
        run.ask(worker)
        run.send(worker)
    assert run.core.book.count == BATCH
    return worker


def test_a_new_attempt_learns_nothing_of_the_dead_ones_weights(tmp_path: Path) -> None:
    run = Simulation(tmp_path, seed=0, collectors=1)
    worker = send_batch(run)
    run.core.lost("host", 1, "killed")  # the learner: it registered first
    run.learner = join(run.core, "learner", 2)
    run.restart()

    run.learn = claim(run.core, run.learner)

    assert run.learn.attempt == 2 and run.core.book.count == 0
    assert run.core.book.stale_rows == BATCH
    reply = run.core.sample(run.learner, "buffer", m.Sample(run.learn.task_id, 2, BATCH, 1, 0, 0))
    assert reply.batches is None
    run.ask(worker)
    assert run.credit[worker] == 0, "this attempt has not published weights yet"
    run.credit[worker] = SEGMENT
    run.send(worker)  # what was on its way
    assert run.core.book.stale_rows == BATCH + SEGMENT
    run.restart()
    assert run.core.book.count == 0 and run.core.book.stale_rows == BATCH + SEGMENT
    run.publish()
    run.have = run.core.book.next_serial - 1
    send_batch(run)
    assert run.learn_once()
    run.core.close()


def test_rows_of_the_same_version_of_another_attempt_are_stale(tmp_path: Path) -> None:
    run = Simulation(tmp_path, seed=0, collectors=1)
    worker = next(iter(run.tasks))
    run.ask(worker)
    run.core.lost("host", 1, "killed")
    run.learner = join(run.core, "learner", 2)
    run.learn = claim(run.core, run.learner)
    run.version -= 1
    run.publish()  # 2-0, as 1-0 was
    run.credit[worker] = SEGMENT

    run.send(worker)

    assert run.core.book.count == 0 and run.core.book.stale_rows == SEGMENT
    run.core.close()
