"""Decisions of the coordinator about rows: what is taken in, drawn, weighted, removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.messages import RefusedError
from ding_like.pipeline.parallel.core import CoordinatorCore
from ding_like.pipeline.parallel.core.ledger import CoreConfig, ReplayLedger
from ding_like.pipeline.parallel.core.state import StateStore
from ding_like.pipeline.rows import UpdateRatio
from ding_like.worker import AdvancedReplayBuffer
from tests.pipeline.parallel.service_parts import announced, begin, claim, evaluated, join, make_core
from tests.support import Clock


def send(core: Any, worker: str, task: m.Task, *segments: m.SegmentInfo) -> m.SendDataReply:
    reply: m.SendDataReply = core.send_data(worker, task.task_id, m.SendData(task.attempt, segments))
    return reply


def sample(core: Any, worker: str, task: m.Task, have: int = 0, batches: int = 4) -> m.SampleReply:
    message = m.Sample(task.task_id, task.attempt, 2, batches, 0, have)
    reply: m.SampleReply = core.sample(worker, task.buffer_id, message)
    return reply


def test_a_collector_without_weights_gets_no_credit(core: CoordinatorCore) -> None:
    collector = join(core, "collector")
    task = claim(core, collector)

    assert core.task_info(collector, task.task_id, m.TaskInfo(task.attempt, {})).credit == 0


def test_a_segment_counts_once_however_often_it_is_sent(core: CoordinatorCore) -> None:
    _, _, collector, task = begin(core)

    first = send(core, collector, task, announced(collector, 0))
    again = send(core, collector, task, announced(collector, 0), announced(collector, 1))

    assert first.accepted == (f"{collector}.00000000",)
    assert again.duplicate == first.accepted and len(again.accepted) == 1
    assert core.env_step == 16 and core.book.count == 16


def test_a_segment_that_cannot_be_is_rejected_by_name_and_the_good_ones_are_taken(tmp_path: Path) -> None:
    core = make_core(tmp_path, size=100)
    _, _, collector, task = begin(core)
    good = announced(collector, 0)
    bad = [
        *((replace(good, name=f"{collector}.1", rows=rows), "schema") for rows in (0, -1, 101)),
        (replace(good, name=f"{collector}.1", env_steps=-100), "schema"),
        *(
            (replace(good, name=name), "malformed")
            for name in ("nonumber", "collector-start1.1", f"{collector}.x", ".1")
        ),
    ]

    for number, (each, code) in enumerate(bad, start=2):
        for _ in range(2):  # a rejected one is no duplicate later
            reply = send(core, collector, task, each, announced(collector, number))
            assert [(found.name, found.code) for found in reply.rejected] == [(each.name, code)], each
    core.close()
    core = make_core(tmp_path, size=100)

    assert core.env_step == core.book.count == 8 * len(bad), "the good ones are saved"
    core.close()


def test_batches_are_granted_by_the_ratio_and_rows_are_those_of_the_index(core: CoordinatorCore) -> None:
    learner, learn, collector, task = begin(core)
    for number in range(4):
        send(core, collector, task, announced(collector, number))

    reply = sample(core, learner, learn, batches=100)

    assert reply.batches is not None and reply.batches.num_batches == 8  # (32 - 16) / 8 * 4
    assert [each.serial for each in reply.new_segments] == [1, 2, 3, 4]
    assert [each.first_row for each in reply.new_segments] == [0, 8, 16, 24]
    serial, row = np.divmod(reply.batches.unique_ids, m.ROWS_PER_SEGMENT)
    assert ((serial - 1) * 8 + row == reply.batches.places).all()
    assert sample(core, learner, learn, have=4).batches is None


def test_a_learner_that_asks_rarely_catches_up_and_draws(tmp_path: Path) -> None:
    """Between two of its questions a busy coordinator takes in a thousand segments."""
    core = make_core(tmp_path, size=100_000)
    learner, learn, collector, task = begin(core)
    have, replies = 0, []
    for turn in range(4):
        news = [announced(collector, turn * 1000 + number, rows=1) for number in range(1000)]
        for first in range(0, 1000, 16):
            send(core, collector, task, *news[first : first + 16])
        replies.append(sample(core, learner, learn, have))
        have = replies[-1].new_segments[-1].serial

    assert all(reply.batches is not None for reply in replies)
    core.close()


def test_an_older_attempt_is_refused_everywhere(tmp_path: Path) -> None:
    clock = Clock()
    core = make_core(tmp_path, clock=clock)
    learner, _, collector, task = begin(core)
    other = join(core, "collector", 1)
    clock.now += 6
    core.heartbeat(other, m.Heartbeat("idle"))
    core.heartbeat(learner, m.Heartbeat("learn"))
    clock.now += 6  # the first collector was not heard of for 12 s
    core.tick()

    taken = claim(core, other)
    join(core, "collector")  # it comes back

    assert taken.task_id == task.task_id and taken.attempt == task.attempt + 1
    for ask in (
        lambda: send(core, collector, task, announced(collector, 5)),
        lambda: core.task_info(collector, task.task_id, m.TaskInfo(task.attempt, {})),
        lambda: core.finish_task(collector, task.task_id, m.FinishTask(task.attempt, {})),
        lambda: core.fail_task(collector, task.task_id, m.FailTask(task.attempt, "x")),
    ):
        with pytest.raises(RefusedError) as caught:
            ask()
        assert caught.value.code == "stale_attempt"
    assert core.env_step == 0


def test_weights_only_become_newer(core: CoordinatorCore) -> None:
    learner, learn, _, _ = begin(core)
    core.publish(learner, "policy", m.Publish(learn.task_id, learn.attempt, 7, "x", 1))

    for older in (
        m.Publish(learn.task_id, learn.attempt, 6, "x", 1),
        m.Publish(learn.task_id, learn.attempt, 7, "y", 1),
    ):
        with pytest.raises(RefusedError, match="is at 1-7 already"):
            core.publish(learner, "policy", older)

    assert core.policies["policy"].version == 7
    assert core.publish(learner, "policy", m.Publish(learn.task_id, learn.attempt, 7, "x", 1)) == m.Ok(), "the same"


def test_evaluations_come_at_version_0_and_every_eval_freq(core: CoordinatorCore) -> None:
    learner, learn, collector, task = begin(core)
    core.publish(learner, "policy", m.Publish(learn.task_id, learn.attempt, 99, "x", 1))
    assert core.num_open("eval") == 0

    core.publish(learner, "policy", m.Publish(learn.task_id, learn.attempt, 100, "x", 1))

    assert core.num_open("eval") == 1
    assert core.task_info(collector, task.task_id, m.TaskInfo(task.attempt, {})).finish
    core.finish_task(collector, task.task_id, m.FinishTask(task.attempt, {}))
    evaluation = claim(core, collector)
    assert evaluation.kind == "eval" and evaluation.cfg["number"] == 1


def test_the_run_ends_when_solved_and_judged(core: CoordinatorCore) -> None:
    learner, learn, collector, task = begin(core)
    core.publish(learner, "policy", m.Publish(learn.task_id, learn.attempt, 100, "x", 1))
    core.finish_task(collector, task.task_id, m.FinishTask(task.attempt, {}))
    evaluation = claim(core, collector)

    end = core.finish_task(collector, evaluation.task_id, evaluated(evaluation, 10.0, 12.0))
    assert not end.shutdown and sample(core, learner, learn).finish and core.claim(collector, m.Claim()).task is None
    end = core.finish_task(learner, learn.task_id, m.FinishTask(learn.attempt, {"train_iter": 100}))

    assert end.shutdown and core.is_over and core.failure is None
    assert [command.name for command in core.heartbeat(collector, m.Heartbeat("idle")).commands] == ["stop"]


def test_failures_of_several_workers_with_nothing_done_between_end_the_run(tmp_path: Path) -> None:
    core = make_core(tmp_path, max_failures=3)
    _, _, one, task = begin(core)
    two = join(core, "collector", 1)
    core.tick()
    other = claim(core, two)

    core.fail_task(one, task.task_id, m.FailTask(task.attempt, "broke"))
    send(core, two, other, announced(two, 0))
    core.fail_task(two, other.task_id, m.FailTask(other.attempt, "broke"))
    again = claim(core, one)
    core.fail_task(one, again.task_id, m.FailTask(again.attempt, "broke"))
    assert not core.is_over, "data came between"
    last = claim(core, two)
    core.fail_task(two, last.task_id, m.FailTask(last.attempt, "broke"))

    assert core.is_over and "failed 3 times" in str(core.failure)
    core.close()


def test_another_version_of_the_package_is_refused_with_both(core: CoordinatorCore) -> None:

    with pytest.raises(RefusedError, match=r"ding_like 0\.0\.0, the coordinator .*install the same"):
        core.register(m.Register("collector", "host", 1, "0.0.0", "start"))


def test_a_worker_that_nobody_knows_is_told_to_register(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="register again"):
        make_core(tmp_path).claim("collector-x", m.Claim())


def test_an_evaluation_is_not_forgotten_in_a_restart(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    learner, learn, collector, task = begin(core)
    core.publish(learner, "policy", m.Publish(learn.task_id, learn.attempt, 100, "x", 1))
    core.close()

    core = make_core(tmp_path)
    core.tick()

    assert core.task_info(collector, task.task_id, m.TaskInfo(task.attempt, {})).finish


def test_another_collector_is_asked_when_the_evaluating_one_leaves(core: CoordinatorCore) -> None:
    learner, learn, one, task_one = begin(core)
    two = join(core, "collector", 1)
    core.tick()
    task_two = claim(core, two)
    core.publish(learner, "policy", m.Publish(learn.task_id, learn.attempt, 100, "x", 1))
    core.finish_task(one, task_one.task_id, m.FinishTask(task_one.attempt, {}))
    assert claim(core, one).kind == "eval"
    assert not core.task_info(two, task_two.task_id, m.TaskInfo(task_two.attempt, {})).finish

    core.leave(one, m.Leave("killed"))
    core.tick()

    assert core.task_info(two, task_two.task_id, m.TaskInfo(task_two.attempt, {})).finish


def test_a_task_is_used_for_its_kind_only(core: CoordinatorCore) -> None:
    learner, learn, collector, task = begin(core)

    for ask in (
        lambda: send(core, learner, learn, announced(learner, 0)),
        lambda: sample(core, collector, task),
        lambda: core.update(collector, "buffer", m.Update(task.task_id, task.attempt, 10**6, {})),
        lambda: core.update(learner, "other", m.Update(learn.task_id, learn.attempt, 10**6, {})),
        lambda: core.publish(collector, "policy", m.Publish(task.task_id, task.attempt, 10**6, "x", 1)),
    ):
        with pytest.raises(RefusedError) as caught:
            ask()
        assert caught.value.code == "wrong_role"
    assert core.learn_iter == 0 and core.env_step == 0


def test_a_learner_cannot_have_segments_that_there_are_not(core: CoordinatorCore) -> None:
    learner, learn, collector, task = begin(core)
    send(core, collector, task, announced(collector, 0))

    for have in (-1, 2, 10**9):
        with pytest.raises(RefusedError, match="up to 1 only"):
            sample(core, learner, learn, have=have)


def test_registering_again_renews_the_lease(tmp_path: Path) -> None:
    clock = Clock()
    core = make_core(tmp_path, clock=clock)
    collector = join(core, "collector")
    clock.now += 9
    join(core, "collector")
    clock.now += 2

    core.tick()

    assert collector in core.workers


def test_segments_that_cannot_be_read_are_never_drawn_again(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    learner, learn, collector, task = begin(core)
    for number in range(4):
        core.send_data(collector, task.task_id, m.SendData(task.attempt, (announced(collector, number),)))
    bad = f"{collector}.00000001"

    core.update(learner, "buffer", m.Update(learn.task_id, learn.attempt, 1, {}, bad_segments=(bad, "unknown.1")))

    for _ in range(2):
        reply = core.sample(learner, "buffer", m.Sample(learn.task_id, learn.attempt, 4, 1, 0, 4))
        assert reply.batches is not None
        assert 2 not in (reply.batches.unique_ids >> 20) and core.status()["bad_rows"] == 8
        core.close()
        core = make_core(tmp_path)  # started again
    core.close()


def test_a_run_whose_files_cannot_be_read_ends_with_the_cause(tmp_path: Path) -> None:
    core = make_core(tmp_path, size=2000, segment_rows=600)
    learner, learn, collector, task = begin(core)
    for number in range(2):
        core.send_data(collector, task.task_id, m.SendData(task.attempt, (announced(collector, number, rows=600),)))

    bad = m.Update(learn.task_id, learn.attempt, 1, {}, bad_segments=(f"{collector}.00000000",))
    core.update(learner, "buffer", bad)

    assert core.is_over and "600 of 1,200 rows could not be read" in str(core.failure)
    core.close()


def test_the_weights_whose_evaluation_ended_the_run_are_kept_and_told_to_the_learner(core: CoordinatorCore) -> None:
    learner, learn, collector, task = begin(core)
    core.publish(learner, "policy", m.Publish(learn.task_id, learn.attempt, 100, "y", 1))
    core.finish_task(collector, task.task_id, m.FinishTask(task.attempt, {}))
    judged = claim(core, collector)
    assert judged.kind == "eval" and judged.policy is not None and judged.policy.version == 100
    core.publish(learner, "policy", m.Publish(learn.task_id, learn.attempt, 130, "z", 1))
    assert core.pinned() >= {(1, 100)}

    core.finish_task(collector, judged.task_id, evaluated(judged, 20.0, 20.0))

    told = core.task_info(learner, learn.task_id, m.TaskInfo(learn.attempt, {}))
    assert told.finish and told.policy is not None and told.policy.version == 100 and core.pinned() >= {(1, 100)}


SIZE = 64


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


def weights_by_row(batches: m.Batches) -> dict[int, set[float]]:
    assert batches.weights is not None
    found: dict[int, set[float]] = {}
    for unique_id, weight in zip(batches.unique_ids.tolist(), batches.weights.tolist(), strict=True):
        found.setdefault(unique_id, set()).add(weight)
    return found


def test_rows_in_place_of_unreadable_ones_have_their_own_weights(prioritised: ReplayLedger) -> None:
    index = prioritised
    places = np.arange(SIZE)
    unique_ids = (places // 8 + 1) * m.ROWS_PER_SEGMENT + places % 8
    index.set_priorities(places, unique_ids, np.linspace(0.1, 9.0, SIZE).astype(np.float32))
    index.update(None, [f"w.{number:08d}" for number in range(5)])

    batches = index.join([each for each in (index.draw(SIZE, 0),) if each is not None])

    assert batches is not None
    assert (batches.unique_ids // m.ROWS_PER_SEGMENT > 5).all()
    # Importance weights are 1/p up to a factor: p * w is one number, whichever rows were replaced.
    priorities = np.linspace(0.1, 9.0, SIZE)[batches.places]
    products = priorities * np.asarray(batches.weights)
    assert products.max() / products.min() < 1.001
    assert all(len(weights) == 1 for weights in weights_by_row(batches).values())


def test_a_priority_for_a_row_that_is_gone_is_not_written_to_the_one_in_its_place(prioritised: ReplayLedger) -> None:
    index = prioritised
    places = np.arange(SIZE)
    unique_ids = (places // 8 + 1) * m.ROWS_PER_SEGMENT + places % 8
    index.set_priorities(places, unique_ids, np.full(SIZE, 1.0, np.float32))
    take(index, range(8, 12))  # half of the rows are others now
    new_ids = unique_ids.copy()
    new_ids[:32] += 8 * m.ROWS_PER_SEGMENT
    assert index.set_priorities(places, new_ids, np.full(SIZE, 1.0, np.float32)) == SIZE

    written = index.set_priorities(places, unique_ids, np.where(places < 32, 1e6, 1.0).astype(np.float32))

    assert written == 32, "only rows that are still there"
    batches = index.join([each for each in (index.draw(SIZE, 0),) if each is not None])
    assert batches is not None and batches.weights is not None
    assert np.ptp(batches.weights) < 1e-6 and 0.3 < (batches.places < 32).mean() < 0.7, "all rows are equally likely"
