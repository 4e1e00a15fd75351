"""Whatever workers do, and wherever the coordinator is killed: nothing acknowledged is lost or doubled."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from ding_like.comm import messages as m
from ding_like.comm.refusal import RefusedError
from tests.pipeline.parallel.service_parts import Clock, announced, join, make_core

SIZE = 24


class Coordinator(RuleBasedStateMachine):
    """Drive a core beside a model of what was acknowledged."""

    tasks = Bundle("tasks")  # (worker, task as it was claimed)

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.clock = Clock()
        self.core = make_core(self.folder, size=SIZE, clock=self.clock)
        self.workers: list[str] = []
        self.numbers: dict[str, int] = {}  # segments that a worker has made
        self.accepted: list[str] = []  # in order
        self.attempts: dict[str, int] = {}
        self.version = (-1, -1)
        self.passed = 0

    def teardown(self) -> None:
        if hasattr(self, "core"):
            self.core.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, call: Any) -> Any:
        """Return an answer, or None where it was refused."""
        try:
            return call()
        except RefusedError:
            return None

    @rule(role=st.sampled_from(["collector", "learner"]), number=st.integers(0, 2))
    def register(self, role: str, number: int) -> None:
        worker = join(self.core, role, number)
        if worker not in self.workers:
            self.workers.append(worker)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if self.workers:
            self.ask(lambda: self.core.leave(data.draw(st.sampled_from(self.workers)), m.Leave("test")))

    @rule(target=tasks, data=st.data())
    def claim(self, data: st.DataObject) -> Any:
        worker = data.draw(st.sampled_from(self.workers)) if self.workers else "nobody"
        reply = self.ask(lambda: self.core.claim(worker, m.Claim()))
        if reply is None or reply.task is None:
            return ("nobody", None)
        task = reply.task
        assert task.attempt >= self.attempts.get(task.task_id, 0), "attempts only grow"
        self.attempts[task.task_id] = task.attempt
        return (worker, task)

    @rule(held=tasks, rows=st.integers(1, 10), repeat=st.booleans())
    def send(self, held: Any, rows: int, repeat: bool) -> None:
        worker, task = held
        if task is None or task.kind != "collect":
            return
        number = self.numbers.get(worker, 0)
        if repeat and number:
            number -= 1
        info = announced(worker, number, rows=rows)
        step = self.core.env_step
        reply = self.ask(lambda: self.core.send_data(worker, task.task_id, m.SendData(task.attempt, (info,))))
        if reply is None:
            assert self.core.env_step == step, "a refused message changes nothing"
            return
        assert len(reply.accepted) + len(reply.duplicate) == 1
        if reply.accepted:
            assert info.name not in self.accepted, "nothing is taken twice"
            self.accepted.append(info.name)
            assert self.core.env_step == step + rows
        else:
            assert info.name in self.accepted, "nothing is called a duplicate that was not taken"
        self.numbers[worker] = max(self.numbers.get(worker, 0), number + 1)

    @rule(held=tasks, batches=st.integers(1, 5), passes=st.booleans())
    def sample(self, held: Any, batches: int, passes: bool) -> None:
        worker, task = held
        if task is None or task.kind != "learn":
            return
        index = self.core.buffers.get("buffer")
        have = self.passed if not passes or index is None else index.next_serial - 1
        removable = len(self.core.removable)
        message = m.Sample(task.task_id, task.attempt, 2, batches, 0, have)
        reply = self.ask(lambda: self.core.sample(worker, "buffer", message))
        if reply is None:
            assert len(self.core.removable) == removable
            return
        self.passed = max(self.passed, have)
        serials = [each.serial for each in reply.new_segments]
        assert serials == list(range(serials[0], serials[0] + len(serials))) if serials else True
        if reply.batches is not None:
            serial = reply.batches.unique_ids // m.ROWS_PER_SEGMENT
            assert serial.max() <= max([have, *serials]), "no row of a segment that was not told"
        for name in self.core.removable:
            assert self.accepted.index(name) < self.passed, "no file goes before the learner has passed it"

    @rule(held=tasks, step=st.integers(-1, 3))
    def publish(self, held: Any, step: int) -> None:
        worker, task = held
        if task is None or task.kind != "learn":
            return
        version = self.version[1] + step
        message = m.Publish(task.task_id, task.attempt, version, "x", 1)
        if self.ask(lambda: self.core.publish(worker, "policy", message)) is not None:
            assert (task.attempt, version) > self.version, "versions only grow"
            self.version = (task.attempt, version)

    @rule(held=tasks)
    def finish(self, held: Any) -> None:
        worker, task = held
        if task is not None and task.kind != "learn":
            result = {"returns": [0.0], "version": 0}
            self.ask(lambda: self.core.finish_task(worker, task.task_id, m.FinishTask(task.attempt, result)))

    @rule(seconds=st.sampled_from([0.5, 4.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds
        self.core.tick()

    @rule()
    def crash(self) -> None:
        # What was not saved is gone: the new one knows the file only.
        self.core.close()
        self.core = make_core(self.folder, size=SIZE, clock=self.clock)

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        if not hasattr(self, "core") or "buffer" not in self.core.buffers:
            return
        index = self.core.buffers["buffer"]
        live = index.new_segments(0, 1000)
        assert index.next_serial == len(self.accepted) + 1
        assert [each.name for each in live] == self.accepted[len(self.accepted) - len(live) :]
        assert index.count <= SIZE
        assert sum(each.rows for each in live) >= index.count
        for one, two in itertools.pairwise(live):
            assert two.first_row == (one.first_row + one.rows) % SIZE

    @invariant()
    def one_owner_a_task_and_updates_by_the_pace(self) -> None:
        if not hasattr(self, "core"):
            return
        leased = [task for task in self.core.tasks.tasks.values() if task.status == "leased"]
        assert len({task.worker_id for task in leased}) == len(leased), "a worker does one task at a time"
        assert self.core.granted_updates <= self.core.cfg.pace.allowed_updates(self.core.env_step)


TestCoordinator = Coordinator.TestCase
TestCoordinator.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
