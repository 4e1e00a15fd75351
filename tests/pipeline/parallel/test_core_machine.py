"""Whatever workers do, and wherever the coordinator is killed: nothing acknowledged is lost or doubled."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.messages import Stamp
from ding_like.comm.rest.wire import RefusedError, encode
from ding_like.pipeline.parallel.core import CoordinatorCore
from tests.pipeline.parallel.service_parts import announced, evaluated, join, make_core
from tests.support import Clock

SIZE = 16
WORKERS = (("learner", 0), ("collector", 0), ("collector", 1), ("learner", 1))
# Which of the tasks that were claimed so far acts: mostly the newest, at times one that is over.
AGES = st.sampled_from([1, 1, 1, 1, 2, 3])
SELDOM = st.integers(0, 3).map(lambda number: number == 3)


class Coordinator(RuleBasedStateMachine):
    """Core that is driven beside a model of what was acknowledged."""

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.clock = Clock()
        self.core = self.open()
        self.held: dict[str, list[tuple[str, m.Task]]] = {"collect": [], "eval": [], "learn": []}
        self.owners: dict[str, tuple[str, int]] = {}  # task -> who claimed it last, and its attempt
        self.numbers: dict[str, int] = {}  # segments that a worker has made
        self.accepted: list[str] = []  # in order
        self.rows: list[int] = []  # of the accepted ones
        self.removed: list[str] = []
        self.passed = 0
        self.version = (-1, -1)
        self.numbers_said: dict[str, int] = {}  # of the messages of a worker
        self.last: tuple[str, Stamp, Any] | None = None  # message that was answered last, and its answer
        for role, number in WORKERS:
            self.claim((role, number))

    def open(self) -> CoordinatorCore:
        return make_core(self.folder, size=SIZE, clock=self.clock, max_failures=30)

    def teardown(self) -> None:
        if hasattr(self, "core"):
            self.core.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, held: tuple[str, m.Task], call: Any) -> Any:
        """Return the answer to one who holds, or held, a task; None where it was refused."""
        worker, task = held
        try:
            reply = self.say(worker, call)
        except RefusedError:
            return None
        assert self.owners[task.task_id] == (worker, task.attempt), "an older attempt is refused"
        return reply

    def say(self, worker: str, call: Any) -> Any:
        """Return the answer to a new message of a worker."""
        number = self.numbers_said[worker] = self.numbers_said.get(worker, 0) + 1
        stamp = Stamp("main", number)
        try:
            reply, _ = self.core.once(worker, stamp, call)
        except RefusedError as error:
            self.last = None if error.code == "unknown" else (worker, stamp, error.code)
            raise
        self.last = (worker, stamp, encode(reply))
        return reply

    @rule()
    def repeat(self) -> None:
        """Send the last message again, whose answer got lost."""
        if self.last is None:
            return
        worker, stamp, answer = self.last
        before = self.core._store.dump(), self.core.status()

        def act() -> None:
            raise AssertionError("it was done twice")

        try:
            again = encode(self.core.once(worker, stamp, act)[0])
        except RefusedError as error:
            again = error.code
        assert again == answer, "a repetition gets the same answer"
        assert (self.core._store.dump(), self.core.status()) == before, "a repetition changes nothing"

    def pick(self, kind: str, age: int) -> tuple[str, m.Task] | None:
        held = self.held[kind]
        return held[-age] if len(held) >= age else None

    # --- workers

    @rule(worker=st.sampled_from(WORKERS))
    def claim(self, worker: tuple[str, int]) -> None:
        worker_id = join(self.core, *worker)
        task = self.say(worker_id, lambda: self.core.claim(worker_id, m.Claim())).task
        if task is None:
            return
        known = self.owners.get(task.task_id)
        assert known is None or known[1] < task.attempt or known == (worker_id, task.attempt), "one owner an attempt"
        self.owners[task.task_id] = (worker_id, task.attempt)
        if (worker_id, task) not in self.held[task.kind]:
            self.held[task.kind].append((worker_id, task))

    @rule(worker=st.sampled_from(WORKERS), leaves=SELDOM)
    def leave(self, worker: tuple[str, int], leaves: bool) -> None:
        if leaves:
            worker_id = join(self.core, *worker)
            self.say(worker_id, lambda: self.core.leave(worker_id, m.Leave("test")))

    @rule(kind=st.sampled_from(["collect", "eval"]), age=AGES, fails=st.booleans(), acts=SELDOM)
    def end(self, kind: str, age: int, fails: bool, acts: bool) -> None:
        held = self.pick(kind, age)
        if held is None or not acts:
            return
        worker, task = held
        if fails:
            failed = m.FailTask(task.attempt, "the env broke")
            self.ask(held, lambda: self.core.fail_task(worker, task.task_id, failed))
        else:
            done = evaluated(task) if kind == "eval" else m.FinishTask(task.attempt, {})
            self.ask(held, lambda: self.core.finish_task(worker, task.task_id, done))

    @rule(age=AGES)
    def fail_to_learn(self, age: int) -> None:
        held = self.pick("learn", age)
        if held is not None and age > 1:
            worker, task = held
            failed = m.FailTask(task.attempt, "the loss is NaN")
            self.ask(held, lambda: self.core.fail_task(worker, task.task_id, failed))

    # --- data

    @rule(age=AGES, rows=st.lists(st.integers(1, 10), min_size=1, max_size=4), repeats=st.integers(0, 2))
    def send(self, age: int, rows: list[int], repeats: int) -> None:
        held = self.pick("collect", age)
        if held is None:
            return
        worker, task = held
        first = max(self.numbers.get(worker, 0) - repeats, 0)
        infos = [announced(worker, first + place, rows=count) for place, count in enumerate(rows)]
        step = self.core.env_step
        message = m.SendData(task.attempt, tuple(infos))
        reply = self.ask(held, lambda: self.core.send_data(worker, task.task_id, message))
        if reply is None:
            assert self.core.env_step == step, "a refused message changes nothing"
            return
        taken = [info for info in infos if info.name not in self.accepted]
        assert reply.accepted == tuple(info.name for info in taken), "each is taken once, in order"
        assert len(reply.duplicate) == len(infos) - len(taken) and not reply.rejected
        self.accepted += reply.accepted
        self.rows += [info.rows for info in taken]
        self.numbers[worker] = max(self.numbers.get(worker, 0), first + len(infos))

    @rule(age=AGES, batches=st.integers(1, 5), have=st.sampled_from(["none", "passed", "all"]))
    def sample(self, age: int, batches: int, have: str) -> None:
        held = self.pick("learn", age)
        if held is None:
            return
        worker, task = held
        serial = {"none": 0, "passed": self.passed, "all": len(self.accepted)}[have]
        message = m.Sample(task.task_id, task.attempt, 2, batches, 0, serial)
        reply = self.ask(held, lambda: self.core.sample(worker, "buffer", message))
        if reply is None:
            assert not self.core.book.removable, "a refused message changes nothing"
            return
        self.passed = max(self.passed, serial)
        told = [each.serial for each in reply.new_segments]
        live = [number for number in range(1, len(self.rows) + 1) if self.is_live(number)]
        assert told == [number for number in live if number > serial], "all that lives is told, from the first on"
        if reply.batches is not None:
            drawn, row = reply.batches.unique_ids // m.ROWS_PER_SEGMENT, reply.batches.unique_ids % m.ROWS_PER_SEGMENT
            starts = [0, *itertools.accumulate(self.rows)]
            assert all(starts[number - 1] + at >= sum(self.rows) - SIZE for number, at in zip(drawn, row, strict=True))
            assert [(starts[number - 1] + at) % SIZE for number, at in zip(drawn, row, strict=True)] == list(
                reply.batches.places
            )
        self.look_at_removed()

    def is_live(self, serial: int) -> bool:
        """Tell whether a segment has rows that later ones did not overwrite."""
        return sum(self.rows[serial:]) < SIZE

    def look_at_removed(self) -> None:
        gone = self.core.book.take_files()[0]
        for name in gone:
            serial = self.accepted.index(name) + 1
            assert name not in self.removed and not self.is_live(serial) and serial <= self.passed
            self.removed.append(name)

    @rule(age=AGES, step=st.integers(-1, 60))
    def publish(self, age: int, step: int) -> None:
        held = self.pick("learn", age)
        if held is None:
            return
        worker, task = held
        pair = (task.attempt, max(self.version[1], 0) + step)
        message = m.Publish(task.task_id, *pair, "x", 1)
        if self.ask(held, lambda: self.core.publish(worker, "policy", message)) is not None:
            assert pair >= self.version, "versions only grow"
            self.version = pair

    # --- time and death

    @rule(seconds=st.sampled_from([0.5, 0.5, 4.0, 4.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds
        self.core.tick()

    @rule(dies=SELDOM)
    def crash(self, dies: bool) -> None:
        """Kill the coordinator; a collector whose answer got lost sends again what it had sent."""
        if not dies:
            return
        before = self.core.status()
        self.core.close()
        self.core = self.open()  # it knows the file only
        after = self.core.status()
        for name in ("run_id", "env_step", "granted_updates", "is_over", "policies"):
            assert after[name] == before[name], f"{name} is kept"
        assert after["epoch"] == before["epoch"] + 1
        self.repeat()
        self.send(1, [1, 1], repeats=1)

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        if not hasattr(self, "core") or not self.accepted:
            return
        index = self.core.book
        live = index.new_segments(0, 1000)
        assert [each.name for each in live] == self.accepted[-len(live) :]
        assert index.next_serial == len(self.accepted) + 1 and index.count == min(sum(self.rows), SIZE)
        for one, two in itertools.pairwise(live):
            assert two.serial == one.serial + 1 and two.first_row == (one.first_row + one.rows) % SIZE

    @invariant()
    def the_books_are_kept(self) -> None:
        if not hasattr(self, "core"):
            return
        assert self.core.env_step == sum(self.rows)
        assert self.core.book.granted_updates <= self.core.cfg.ratio.allowed_updates(self.core.env_step)
        leased = [task for task in self.core.tasks.tasks.values() if task.status == "leased"]
        assert len({task.worker_id for task in leased}) == len(leased), "a worker does one task at a time"


TestCoordinator = Coordinator.TestCase
TestCoordinator.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
