"""Rows, env steps and episodes are not mixed up: rows may be sequences, orders may be of whole episodes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.comm.rest import messages as m
from ding_like.pipeline.parallel.core import CoordinatorCore
from ding_like.pipeline.rows import OnPolicyRatio, UpdateRatio, least_lead
from tests.pipeline.parallel.service_parts import claim, evaluated, join, make_core
from tests.support import Clock

SIZE = 4096


class Play:
    """Collectors and a learner that take turns with a core; `segment(order)` gives (rows, env steps) of a segment."""

    def __init__(self, folder: Path, ratio: Any, *, segment: Any, collectors: int = 2, **cfg: Any) -> None:
        self.folder, self.ratio, self.segment, self.rng = folder, ratio, segment, random.Random(0)
        self.cfg = cfg
        self.clock = Clock()
        self.core = self.make_core()
        self.learner = join(self.core, "learner")
        self.learn = claim(self.core, self.learner)
        self.version, self.have, self.sent, self.batches = -1, 0, 0, 0
        self.drawn: list[m.Batches] = []
        self.publish()
        self.tasks: dict[str, m.Task] = {}
        for number in range(collectors):
            worker = join(self.core, "collector", number)
            task = claim(self.core, worker)
            if task.kind == "eval":
                self.core.finish_task(worker, task.task_id, evaluated(task))
                task = claim(self.core, worker)
            self.tasks[worker] = task
        self.orders = dict.fromkeys(self.tasks, 0)
        self.numbers = dict.fromkeys(self.tasks, 0)
        self.rows = 0

    def make_core(self) -> CoordinatorCore:
        return make_core(
            self.folder,
            size=SIZE,
            clock=self.clock,
            ratio=self.ratio,
            eval_freq=10**9,
            **{"segment_rows": 4, **self.cfg},
        )

    def restart(self) -> None:
        self.core.close()
        self.core = self.make_core()

    def publish(self) -> None:
        self.version += 1
        message = m.Publish(self.learn.task_id, self.learn.attempt, self.version, "x", 1)
        self.core.publish(self.learner, "policy", message)

    def ask(self, worker: str) -> bool:
        """Return whether a worker that had no order has one now."""
        if self.orders[worker]:
            return False
        task = self.tasks[worker]
        self.clock.now += 0.1
        self.orders[worker] = self.core.task_info(worker, task.task_id, m.TaskInfo(task.attempt, {})).credit
        return self.orders[worker] > 0

    def send(self, worker: str) -> bool:
        """Return whether a worker that had an order has sent a segment for it."""
        if not self.orders[worker]:
            return False
        rows, env_steps = self.segment(self.orders[worker])
        self.numbers[worker] += 1
        self.sent += 1
        self.rows += rows
        name = f"{worker}.{self.numbers[worker]:08d}"
        info = m.SegmentInfo(name, rows, "0" * 64, 9, self.version, env_steps, policy_attempt=1)
        task = self.tasks[worker]
        reply = self.core.send_data(worker, task.task_id, m.SendData(task.attempt, (info,)))
        assert not reply.rejected
        self.orders[worker] = reply.credit
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
        if isinstance(self.ratio, OnPolicyRatio):
            self.publish()
        return True

    def run(self, turns: int, *, batch_size: int, restarts: bool = False) -> None:
        """Take turns in random order; one in which no worker can act is a deadlock, and an error."""
        for turn in range(turns):
            if restarts and turn % 37 == 36:
                self.restart()
                self.orders = dict.fromkeys(self.tasks, 0)
            acts = [lambda: self.learn_on(batch_size)]
            acts += [lambda w=worker: self.ask(w) for worker in self.tasks]  # type: ignore[misc]
            acts += [lambda w=worker: self.send(w) for worker in self.tasks]  # type: ignore[misc]
            self.rng.shuffle(acts)
            done = [act() for act in acts]
            assert any(done), f"everybody waits at env step {self.core.env_step}, {self.batches} updates"


STEPS, UPDATES, BATCH, SEGMENT = 8, 3, 16, 4


def sequence_ratio(per_row: int, *, warmup: int) -> UpdateRatio:
    lead = least_lead(
        warmup_steps=warmup,
        steps=STEPS * per_row,
        updates=UPDATES,
        segment_steps=SEGMENT * per_row,
        batch_steps=BATCH * per_row,
    )
    return UpdateRatio(warmup, STEPS * per_row, UPDATES, lead)


@pytest.mark.parametrize(("per_row", "warmup"), [(1, 80), (10, 0)])
def test_updates_follow_env_steps_where_rows_are_sequences(tmp_path: Path, per_row: int, warmup: int) -> None:
    ratio = sequence_ratio(per_row, warmup=warmup)
    play = Play(
        tmp_path,
        ratio,
        segment=lambda rows: (rows, rows * per_row),
        segment_rows=SEGMENT,
        steps_per_row=per_row,
        first_batch_rows=BATCH,
    )

    play.run(150, batch_size=BATCH, restarts=True)

    assert play.core.env_step == play.rows * per_row > 20 * STEPS
    allowed = ratio.allowed_updates(play.core.env_step)
    assert allowed - play.batches <= ratio.max_lead * UPDATES // (STEPS * per_row) + 2 * UPDATES
    assert play.core.book.count == play.rows, "a buffer's capacity is of rows"
    play.core.close()


def test_collectors_stay_within_the_lead_in_env_steps(tmp_path: Path) -> None:
    ratio = UpdateRatio(0, STEPS * 10, UPDATES, 400)
    play = Play(tmp_path, ratio, segment=lambda rows: (rows, rows * 10), segment_rows=SEGMENT, steps_per_row=10)

    for _ in range(100):  # no learner is at work
        for worker in play.tasks:
            play.send(worker)
            play.ask(worker)

    assert 400 - SEGMENT * 10 < play.core.env_step <= 400
    play.core.close()


@pytest.mark.parametrize(("share", "warmup"), [(2, 0), (3, 200)])
def test_updates_follow_episodes_where_these_are_collected(tmp_path: Path, warmup: int, share: int) -> None:
    rng = random.Random(1)

    def segment(order: int) -> tuple[int, int]:
        assert order == 1, "an order of one row is a segment of whole episodes"
        rows = sum(rng.randint(1, 60) for _ in range(share))
        return rows, rows

    n_episode, updates = 5, 3
    play = Play(
        tmp_path,
        UpdateRatio(warmup, n_episode, updates, 2 * share + 2),
        segment=segment,
        segment_rows=1,
        first_batch_rows=BATCH,
        segment_episodes=share,
    )
    for _ in range(3):
        play.run(50, batch_size=BATCH, restarts=True)
    sent_at_warmup = play.core.book.plain()["warmup_segments"]

    episodes = (play.sent - sent_at_warmup) * share
    assert (sent_at_warmup == 0) == (warmup == 0)
    allowed = episodes * updates // n_episode
    assert play.batches > 40 and 0 <= allowed - play.batches <= (2 * 2 * share + n_episode) * updates // n_episode + 1
    play.core.close()


def test_an_on_policy_batch_is_a_number_of_episodes_and_holds_each_row_once(tmp_path: Path) -> None:
    rng = random.Random(2)

    def segment(order: int) -> tuple[int, int]:
        rows = rng.choice([1, 7, 600])
        return rows, rows + 3

    play = Play(tmp_path, OnPolicyRatio(1, batch_segments=3), segment=segment, segment_rows=1, segment_episodes=2)

    play.run(90, batch_size=1, restarts=True)

    assert len(play.drawn) == play.version > 12
    seen: set[int] = set()
    for batch in play.drawn:
        assert batch.num_batches == 1
        serials = batch.unique_ids // m.ROWS_PER_SEGMENT
        assert len(np.unique(serials)) == 3, "three segments of two episodes each"
        assert batch.places.tolist() == list(range(len(batch.places))), "each batch begins at the mirror's start"
        assert not seen & set(batch.unique_ids.tolist())
        seen |= set(batch.unique_ids.tolist())
    assert play.core.book.stale_rows < play.rows / 2
    play.core.close()


def test_a_segment_beyond_the_batch_that_is_waited_for_is_not_learned_from(tmp_path: Path) -> None:
    play = Play(
        tmp_path,
        OnPolicyRatio(1, batch_segments=2),
        segment=lambda order: (5, 5),
        segment_rows=1,
        segment_episodes=2,
        collectors=3,
    )
    play.orders = dict.fromkeys(play.tasks, 1)  # as if one more had been allowed than there is a place for

    assert [play.send(worker) for worker in play.tasks] == [True] * 3

    assert play.core.book.count == 10 and play.core.book.stale_rows == 5
    play.core.close()
