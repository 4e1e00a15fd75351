"""Decisions of the coordinator about rows: what is taken in, drawn, weighted, removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.messages import RefusedError
from ding_like.pipeline.parallel.core.ledger import CoreConfig, ReplayLedger
from ding_like.pipeline.parallel.core.state import StateStore
from ding_like.pipeline.rows import UpdateRatio
from ding_like.types import Array
from ding_like.worker import AdvancedReplayBuffer
from tests.pipeline.parallel.service_parts import Rig, announced, claim, join, make_core

MakeRig = Callable[..., Rig]


def test_a_collector_without_weights_gets_no_credit(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    collector = join(core, "collector")
    task = claim(core, collector)

    assert core.task_info(collector, task.task_id, m.TaskInfo(task.attempt, {})).credit == 0
    core.close()


def test_a_segment_counts_once_however_often_it_is_sent(rig: Rig) -> None:
    first, again = rig.send(0), rig.send(0, 1)

    assert first.accepted == (f"{rig.collector}.00000000",)
    assert again.duplicate == first.accepted and len(again.accepted) == 1
    assert rig.core.env_step == 16 and rig.core.book.count == 16


def test_a_segment_that_cannot_be_is_rejected_by_name_and_the_good_ones_are_taken(make_rig: MakeRig) -> None:
    rig = make_rig(size=100)
    good = announced(rig.collector, 0)
    named = replace(good, name=f"{rig.collector}.1")
    bad = [(replace(named, rows=rows), "schema") for rows in (0, -1, 101)]
    bad += [(replace(named, env_steps=steps), "schema") for steps in (-100, 2**30)]
    names = ("nonumber", "collector-start1.1", f"{rig.collector}.x", ".1")
    bad += [(replace(good, name=name), "malformed") for name in names]

    for number, (each, code) in enumerate(bad, start=2):
        for _ in range(2):  # a rejected one is no duplicate later
            reply = rig.send(each, number)
            assert [(found.name, found.code) for found in reply.rejected] == [(each.name, code)], each
    rig.restart()

    assert rig.core.env_step == rig.core.book.count == 8 * len(bad), "the good ones are saved"


def test_batches_are_granted_by_the_ratio_and_rows_are_those_of_the_index(rig: Rig) -> None:
    rig.send(0, 1, 2, 3)

    reply = rig.sample(num_batches=100)

    assert reply.batches is not None and reply.batches.num_batches == 8  # (32 - 16) / 8 * 4
    assert [each.serial for each in reply.new_segments] == [1, 2, 3, 4]
    assert [each.first_row for each in reply.new_segments] == [0, 8, 16, 24]
    serial, row = np.divmod(reply.batches.unique_ids, m.ROWS_PER_SEGMENT)
    assert ((serial - 1) * 8 + row == reply.batches.places).all()
    assert rig.sample(have_segments_up_to=4).batches is None


def test_a_learner_that_asks_rarely_catches_up_and_draws(make_rig: MakeRig) -> None:
    """Between two of its questions a busy coordinator takes in a thousand segments."""
    rig = make_rig(size=100_000)
    have, replies = 0, []
    for turn in range(4):
        news = [announced(rig.collector, turn * 1000 + number, rows=1) for number in range(1000)]
        for first in range(0, 1000, 16):
            rig.send(*news[first : first + 16])
        replies.append(rig.sample(have_segments_up_to=have))
        have = replies[-1].new_segments[-1].serial

    assert all(reply.batches is not None for reply in replies)


def test_weights_only_become_newer(rig: Rig) -> None:
    rig.publish(7)

    for version, sha256 in ((6, "x"), (7, "y")):
        with pytest.raises(RefusedError, match="is at 1-7 already"):
            rig.publish(version, sha256)

    assert rig.core.policies["policy"].version == 7
    assert rig.publish(7) == m.Ok(), "the same"


def test_a_learner_cannot_have_segments_that_there_are_not(rig: Rig) -> None:
    rig.send(0)

    for have in (-1, 2, 10**9):
        with pytest.raises(RefusedError, match="up to 1 only"):
            rig.sample(have_segments_up_to=have)


def test_segments_that_cannot_be_read_are_told_once_to_set_aside_and_never_drawn_again(rig: Rig) -> None:
    rig.send(0, 1, 2, 3)
    bad = f"{rig.collector}.00000001"

    for _ in range(2):
        rig.update(1, bad_segments=(bad, "unknown.1"))

    assert rig.core.book.take_files() == ([], [bad]) and rig.core.book.take_files() == ([], [])
    for _ in range(2):
        reply = rig.sample(batch_size=4, num_batches=1, have_segments_up_to=4)
        assert reply.batches is not None
        assert 2 not in (reply.batches.unique_ids >> 20) and rig.core.status()["bad_rows"] == 8
        rig.restart()


def test_a_run_whose_files_cannot_be_read_ends_with_the_cause(make_rig: MakeRig) -> None:
    rig = make_rig(size=2000, segment_rows=600)
    rig.send(*(announced(rig.collector, number, rows=600) for number in range(2)))

    rig.update(1, bad_segments=(f"{rig.collector}.00000000",))

    assert rig.core.is_over and "600 of 1,200 rows could not be read" in str(rig.core.failure)


def test_what_a_dead_learner_had_not_saved_is_granted_again(rig: Rig) -> None:
    rig.send(0, 1, 2, 3)  # 32 rows: 8 updates after the first 16
    have = rig.sample(batch_size=4).new_segments[-1].serial
    while rig.core.book.waiting_updates:
        rig.sample(batch_size=4, have_segments_up_to=have)
    assert rig.core.book.granted_updates == 8
    rig.core.lost("host", 1, "killed")

    second = rig.join("learner", 2)
    again = rig.claim(second)
    reply = rig.sample(second, again, batch_size=4, cur_learner_iter=3, num_batches=256)

    assert again.attempt == rig.learn.attempt + 1
    granted = 0 if reply.batches is None else reply.batches.num_batches
    assert rig.core.book.granted_updates == 3 + granted
    assert rig.core.book.granted_updates + rig.core.book.waiting_updates == 8


def test_a_first_learner_is_granted_nothing_twice(rig: Rig) -> None:
    rig.send(0, 1, 2, 3)
    for _ in range(5):
        rig.sample(batch_size=4)  # it asks as if it knew of no segment

    assert rig.core.book.granted_updates + rig.core.book.waiting_updates == 8


# --- priorities

SIZE = 64
PLACES = np.arange(SIZE)
IDS = (PLACES // 8 + 1) * m.ROWS_PER_SEGMENT + PLACES % 8


@pytest.fixture
def prioritised(tmp_path: Path) -> Iterator[ReplayLedger]:
    """Give a ledger of a full prioritised buffer of 8 segments, with its store."""
    cfg = {"replay_buffer_size": SIZE, "alpha": 1.0, "beta": 1.0}
    buffer = AdvancedReplayBuffer(cfg, exp_name=str(tmp_path), instance_name="buffer", rng=np.random.default_rng(0))
    store = StateStore(tmp_path / "state.sqlite")
    ratio = UpdateRatio(warmup_steps=0, steps=1, updates=1, max_lead=SIZE)
    ledger = ReplayLedger(CoreConfig(ratio, SIZE, 8), store=store, buffer=buffer)
    take(ledger, range(8))
    yield ledger
    ledger.close()
    store.close()


def take(ledger: ReplayLedger, numbers: Iterable[int]) -> None:
    for number in numbers:
        assert ledger.take("w", announced("w", number), None)


def draw_all(ledger: ReplayLedger) -> tuple[m.Batches, Array]:
    """Return a batch of as many rows as there are, and its importance weights."""
    batches = ledger.join([each for each in (ledger.draw(SIZE, 0),) if each is not None])
    assert batches is not None and batches.weights is not None
    return batches, np.asarray(batches.weights)


def test_rows_in_place_of_unreadable_ones_have_their_own_weights(prioritised: ReplayLedger) -> None:
    prioritised.set_priorities(PLACES, IDS, np.linspace(0.1, 9.0, SIZE).astype(np.float32))
    prioritised.update(None, [f"w.{number:08d}" for number in range(5)])

    batches, weights = draw_all(prioritised)

    assert (batches.unique_ids // m.ROWS_PER_SEGMENT > 5).all()
    # Importance weights are 1/p up to a factor: p * w is one number, whichever rows were replaced.
    products = np.linspace(0.1, 9.0, SIZE)[batches.places] * weights
    assert products.max() / products.min() < 1.001
    of_rows = set(zip(batches.unique_ids.tolist(), weights.tolist(), strict=True))
    assert len(of_rows) == len(np.unique(batches.unique_ids)), "a row has one weight"


def test_a_priority_for_a_row_that_is_gone_is_not_written_to_the_one_in_its_place(prioritised: ReplayLedger) -> None:
    prioritised.set_priorities(PLACES, IDS, np.full(SIZE, 1.0, np.float32))
    take(prioritised, range(8, 12))  # half of the rows are others now
    new_ids = np.where(PLACES < 32, IDS + 8 * m.ROWS_PER_SEGMENT, IDS)
    assert prioritised.set_priorities(PLACES, new_ids, np.full(SIZE, 1.0, np.float32)) == SIZE

    written = prioritised.set_priorities(PLACES, IDS, np.where(PLACES < 32, 1e6, 1.0).astype(np.float32))

    assert written == 32, "only rows that are still there"
    batches, weights = draw_all(prioritised)
    assert np.ptp(weights) < 1e-6 and 0.3 < (batches.places < 32).mean() < 0.7, "all rows are equally likely"
