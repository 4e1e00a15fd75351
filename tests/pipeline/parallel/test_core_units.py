"""Workers that take turns with a core: no one waits for ever, and rows, env steps and episodes are not mixed up.

Rows may be sequences, orders may be of whole episodes. On-policy, each row is learned from once, by the weights that
collected it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.messages import RefusedError
from ding_like.pipeline.parallel.core import CoordinatorCore
from ding_like.pipeline.rows import OnPolicyRatio, UpdateRatio, least_lead
from tests.pipeline.parallel.service_parts import claim, evaluated, join, make_core
from tests.support import Clock

MakePlay = Callable[..., "Play"]


class Play:
    """Collectors and a learner that take turns with a core; `segment(order)` gives (rows, env steps) of a segment."""

    def __init__(
        self, folder: Path, ratio: Any, *, segment: Any = None, collectors: int = 2, seed: int = 0, **cfg: Any
    ) -> None:
        self.folder, self.ratio, self.cfg = folder, ratio, {"segment_rows": 4, "size": 4096, **cfg}
        self.segment = segment or (lambda order: (order, order))
        self.is_on_policy = isinstance(ratio, OnPolicyRatio)
        self.rng, self.clock = random.Random(seed), Clock()
        self.core = self.make_core()
        self.learner = join(self.core, "learner")
        self.learn = claim(self.core, self.learner)
        self.version, self.have, self.sent, self.rows, self.batches = -1, 0, 0, 0, 0
        self.drawn: list[m.Batches] = []
        self.taken: dict[int, tuple[int, int]] = {}  # serial -> (version, rows)
        self.publish()
        # Of each collector.
        self.tasks: dict[str, m.Task] = {}
        self.orders: dict[str, int] = {}
        self.loaded: dict[str, m.PolicyVersion] = {}
        self.numbers: dict[str, int] = {}
        for _ in range(collectors):
            self.add_collector()

    def make_core(self) -> CoordinatorCore:
        return make_core(self.folder, clock=self.clock, ratio=self.ratio, eval_freq=10**9, **self.cfg)

    def restart(self) -> None:
        self.core.close()
        self.core = self.make_core()

    def add_collector(self) -> None:
        worker = join(self.core, "collector", len(self.numbers))
        task = claim(self.core, worker)
        if task.kind == "eval":
            self.core.finish_task(worker, task.task_id, evaluated(task))
            task = claim(self.core, worker)
        assert self.core.policies
        self.tasks[worker], self.orders[worker], self.numbers[worker] = task, 0, 0
        self.loaded[worker] = self.core.policies["policy"]

    def lose_collector(self) -> None:
        worker = self.rng.choice(list(self.tasks))
        self.core.leave(worker, m.Leave("killed"))
        del self.tasks[worker]
        self.add_collector()

    def lose_learner(self) -> None:
        self.core.lost("host", 1, "killed")  # it registered first
        self.learner = join(self.core, "learner", 2)

    def publish(self) -> None:
        self.version += 1
        message = m.Publish(self.learn.task_id, self.learn.attempt, self.version, "x", 1)
        self.core.publish(self.learner, "policy", message)

    def ask(self, worker: str) -> bool:
        """Return whether a worker that had no order has one now."""
        if self.orders[worker]:
            return False
        self.clock.now += 0.1
        task = self.tasks[worker]
        self.take_order(worker, self.core.task_info(worker, task.task_id, m.TaskInfo(task.attempt, {})))
        return self.orders[worker] > 0

    def take_order(self, worker: str, reply: m.TaskInfoReply | m.SendDataReply) -> None:
        assert reply.policy is not None
        self.orders[worker], self.loaded[worker] = reply.credit, reply.policy

    def send(self, worker: str) -> bool:
        """Return whether a worker that had an order has sent a segment for it."""
        if not self.orders[worker]:
            return False
        rows, env_steps = self.segment(self.orders[worker])
        self.numbers[worker] += 1
        self.sent += 1
        self.rows += rows
        name, task, weights = f"{worker}.{self.numbers[worker]:08d}", self.tasks[worker], self.loaded[worker]
        info = m.SegmentInfo(name, rows, "0" * 64, 9, weights.version, env_steps, policy_attempt=weights.attempt)
        serial = self.core.book.next_serial
        reply = self.core.send_data(worker, task.task_id, m.SendData(task.attempt, (info,)))
        assert reply.accepted == (name,)
        if self.core.book.next_serial > serial:
            newest = (self.learn.attempt, self.version)
            assert not self.is_on_policy or (weights.attempt, weights.version) == newest, "only of the newest weights"
            self.taken[serial] = (weights.version, rows)
        self.take_order(worker, reply)
        return True

    def learn_on(self, batch_size: int) -> bool:
        """Return whether there was a batch to learn from."""
        message = m.Sample(self.learn.task_id, self.learn.attempt, batch_size, 16, self.batches, self.have)
        reply = self.core.sample(self.learner, "buffer", message)
        if reply.new_segments:
            self.have = reply.new_segments[-1].serial
        if reply.batches is None:
            return bool(reply.new_segments)
        self.batches += reply.batches.num_batches
        self.drawn.append(reply.batches)
        if self.is_on_policy:
            assert reply.batches.num_batches == 1
            assert {self.taken[serial][0] for serial in serials_of(reply.batches)} == {self.version}
            self.publish()
        return True

    def run(self, turns: int, *, batch_size: int, restarts: bool = False, with_losses: bool = False) -> None:
        """Take turns in random order; one in which no worker can act is a deadlock, and an error.

        With `restarts` the workers' orders are lost, too; with `with_losses` the coordinator is started again while
        they have them, and collectors are lost.
        """
        for turn in range(turns):
            if restarts and turn % 37 == 36:
                self.restart()
                self.orders = dict.fromkeys(self.tasks, 0)
            if with_losses and turn % 10 == 9:
                self.rng.choice([self.restart, self.lose_collector])()
            acts = [lambda: self.learn_on(batch_size)]
            acts += [lambda w=worker: self.ask(w) for worker in self.tasks]  # type: ignore[misc]
            acts += [lambda w=worker: self.send(w) for worker in self.tasks]  # type: ignore[misc]
            self.rng.shuffle(acts)
            done = [act() for act in acts]
            assert any(done), f"everybody waits at env step {self.core.env_step}, {self.batches} updates"


def serials_of(batches: m.Batches) -> list[int]:
    return [int(each) for each in batches.unique_ids // m.ROWS_PER_SEGMENT]


@pytest.fixture
def make_play(tmp_path: Path) -> Iterator[MakePlay]:
    """Give what makes a play in the test's folder; its core is closed."""
    made: list[Play] = []

    def make(ratio: Any, **settings: Any) -> Play:
        made.append(Play(tmp_path, ratio, **settings))
        return made[-1]

    yield make
    for play in made:
        play.core.close()


STEPS, UPDATES, BATCH, SEGMENT = 8, 3, 16, 4


@pytest.mark.parametrize(("per_row", "warmup"), [(1, 80), (10, 0)])
def test_updates_follow_env_steps_where_rows_are_sequences(make_play: MakePlay, per_row: int, warmup: int) -> None:
    lead = least_lead(
        warmup_steps=warmup,
        steps=STEPS * per_row,
        updates=UPDATES,
        segment_steps=SEGMENT * per_row,
        batch_steps=BATCH * per_row,
    )
    ratio = UpdateRatio(warmup, STEPS * per_row, UPDATES, lead)
    units: dict[str, Any] = dict(segment_rows=SEGMENT, steps_per_row=per_row, first_batch_rows=BATCH)
    play = make_play(ratio, segment=lambda rows: (rows, rows * per_row), **units)

    play.run(150, batch_size=BATCH, restarts=True)

    assert play.core.env_step == play.rows * per_row > 20 * STEPS
    allowed = ratio.allowed_updates(play.core.env_step)
    assert allowed - play.batches <= ratio.max_lead * UPDATES // (STEPS * per_row) + 2 * UPDATES
    assert play.core.book.count == play.rows, "a buffer's capacity is of rows"


def test_collectors_stay_within_the_lead_in_env_steps(make_play: MakePlay) -> None:
    ratio = UpdateRatio(0, STEPS * 10, UPDATES, 400)
    play = make_play(ratio, segment=lambda rows: (rows, rows * 10), segment_rows=SEGMENT, steps_per_row=10)

    for _ in range(100):  # no learner is at work
        for worker in play.tasks:
            play.send(worker)
            play.ask(worker)

    assert 400 - SEGMENT * 10 < play.core.env_step <= 400


@pytest.mark.parametrize(("share", "warmup"), [(2, 0), (3, 200)])
def test_updates_follow_episodes_where_these_are_collected(make_play: MakePlay, warmup: int, share: int) -> None:
    rng = random.Random(1)

    def segment(order: int) -> tuple[int, int]:
        assert order == 1, "an order of one row is a segment of whole episodes"
        rows = sum(rng.randint(1, 60) for _ in range(share))
        return rows, rows

    n_episode, updates = 5, 3
    ratio = UpdateRatio(warmup, n_episode, updates, 2 * share + 2)
    play = make_play(ratio, segment=segment, segment_rows=1, first_batch_rows=BATCH, segment_episodes=share)
    for _ in range(3):
        play.run(50, batch_size=BATCH, restarts=True)
    sent_at_warmup = play.core.book.plain()["warmup_segments"]

    episodes = (play.sent - sent_at_warmup) * share
    assert (sent_at_warmup == 0) == (warmup == 0)
    allowed = episodes * updates // n_episode
    assert play.batches > 40 and 0 <= allowed - play.batches <= (2 * 2 * share + n_episode) * updates // n_episode + 1


# --- on-policy


def test_an_on_policy_batch_is_a_number_of_episodes_and_holds_each_row_once(make_play: MakePlay) -> None:
    rng = random.Random(2)

    def segment(order: int) -> tuple[int, int]:
        rows = rng.choice([1, 7, 600])
        return rows, rows + 3

    play = make_play(OnPolicyRatio(1, batch_segments=3), segment=segment, segment_rows=1, segment_episodes=2)

    play.run(90, batch_size=1, restarts=True)

    assert len(play.drawn) == play.version > 12
    seen: set[int] = set()
    for batch in play.drawn:
        assert len(set(serials_of(batch))) == 3, "three segments of two episodes each"
        assert batch.places.tolist() == list(range(len(batch.places))), "each batch begins at the mirror's start"
        assert not seen & set(batch.unique_ids.tolist())
        seen |= set(batch.unique_ids.tolist())
    assert play.core.book.stale_rows < play.rows / 2


def test_a_segment_beyond_the_batch_that_is_waited_for_is_not_learned_from(make_play: MakePlay) -> None:
    episodes: dict[str, Any] = dict(segment_rows=1, segment_episodes=2, collectors=3)
    play = make_play(OnPolicyRatio(1, batch_segments=2), segment=lambda order: (5, 5), **episodes)
    play.orders = dict.fromkeys(play.tasks, 1)  # as if one more had been allowed than there is a place for

    assert [play.send(worker) for worker in play.tasks] == [True] * 3

    assert play.core.book.count == 10 and play.core.book.stale_rows == 5


ONCE, PART = 24, 8  # rows of a batch, and of a segment


def on_policy(make_play: MakePlay, collectors: int = 1) -> Play:
    return make_play(OnPolicyRatio(ONCE), size=4 * ONCE, segment_rows=PART, collectors=collectors, seed=collectors)


@pytest.mark.parametrize(("collectors", "with_losses"), [(3, False), (2, True)])
def test_rows_are_used_once_in_order(make_play: MakePlay, collectors: int, with_losses: bool) -> None:
    play = on_policy(make_play, collectors)

    play.run(200, batch_size=ONCE, with_losses=with_losses)

    assert play.batches >= 20, "it goes on and on"
    used = [serial for batch in play.drawn for serial in serials_of(batch)]
    assert used == sorted(used) and all(len(batch.unique_ids) == ONCE for batch in play.drawn)
    for serial, (_, rows) in play.taken.items():
        assert used.count(serial) in (0, rows)
    if not with_losses:
        assert play.core.book.stale_rows == 0, "no more is collected than one batch takes"


def test_rows_of_older_weights_are_counted_and_not_learned_from(make_play: MakePlay) -> None:
    play = on_policy(make_play)
    (worker,) = play.tasks
    play.ask(worker)
    assert play.orders[worker] == PART
    play.publish()

    play.send(worker)

    assert play.core.status()["stale_rows"] == PART and play.core.env_step == PART
    assert play.core.book.take_files()[0] == [f"{worker}.00000001"]


def send_batch(play: Play) -> str:
    """Have a whole batch collected with the newest weights; return who did."""
    (worker,) = play.tasks
    for _ in range(ONCE // PART):
        play.ask(worker)
        play.send(worker)
    assert play.core.book.count == ONCE
    return worker


def test_another_number_of_rows_than_a_batch_is_refused(make_play: MakePlay) -> None:
    play = on_policy(make_play)
    send_batch(play)

    with pytest.raises(RefusedError, match="24 rows, not 23"):
        play.learn_on(ONCE - 1)


def test_a_new_attempt_learns_nothing_of_the_dead_ones_weights(make_play: MakePlay) -> None:
    play = on_policy(make_play)
    worker = send_batch(play)
    play.lose_learner()
    play.restart()

    play.learn = claim(play.core, play.learner)

    assert play.learn.attempt == 2 and play.core.book.count == 0 and play.core.book.stale_rows == ONCE
    assert not play.learn_on(ONCE)
    play.ask(worker)
    assert play.orders[worker] == 0, "this attempt has not published weights yet"
    play.orders[worker] = PART
    play.send(worker)  # what was on its way
    assert play.core.book.stale_rows == ONCE + PART
    play.restart()
    assert play.core.book.count == 0 and play.core.book.stale_rows == ONCE + PART
    play.publish()
    play.have = play.core.book.next_serial - 1
    send_batch(play)
    assert play.learn_on(ONCE) and play.batches == 1


def test_rows_of_the_same_version_of_another_attempt_are_stale(make_play: MakePlay) -> None:
    play = on_policy(make_play)
    (worker,) = play.tasks
    play.ask(worker)
    play.lose_learner()
    play.learn = claim(play.core, play.learner)
    play.version -= 1
    play.publish()  # 2-0, as 1-0 was
    play.orders[worker] = PART

    play.send(worker)

    assert play.core.book.count == 0 and play.core.book.stale_rows == PART
