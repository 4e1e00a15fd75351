"""A message that comes again gets the answer it had, whatever died between, and does nothing."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.refusal import RefusedError
from ding_like.comm.rest.service import Stamp
from ding_like.comm.rest.wire import encode
from ding_like.pipeline.parallel.core import CoordinatorCore
from ding_like.pipeline.parallel.core.status import status_of
from ding_like.pipeline.parallel.service import LockedService
from tests.pipeline.parallel.service_parts import PACKAGE, announced, begin, claim, join, make_core


def filled(folder: Path) -> tuple[CoordinatorCore, str, m.Task, str, m.Task]:
    """Return a core with 32 rows, which allow 8 updates, and its workers."""
    core = make_core(folder)
    learner, learn, collector, task = begin(core)
    for number in range(4):
        core.send_data(collector, task.task_id, m.SendData(task.attempt, (announced(collector, number),)))
    return core, learner, learn, collector, task


def question(learn: m.Task, *, batches: int = 4, wait_s: float = 0.0) -> m.Sample:
    return m.Sample(learn.task_id, learn.attempt, 2, batches, 0, 4, wait_s)


def answer(core: CoordinatorCore, name: str, worker: str, ids: tuple[str, ...], message: Any, number: int) -> Any:
    return LockedService(core).answer(name, worker, ids, message, Stamp("main", number))


def test_a_coordinator_killed_before_its_answer_came_through_gives_the_same_batches(tmp_path: Path) -> None:
    core, learner, learn, _, _ = filled(tmp_path)
    first = answer(core, "sample", learner, ("buffer",), question(learn), 1)
    core.close()
    core = make_core(tmp_path)

    again = answer(core, "sample", learner, ("buffer",), question(learn), 1)

    assert encode(again) == encode(first) and first.batches.num_batches == 4
    rest = answer(core, "sample", learner, ("buffer",), question(learn, batches=100), 2)
    assert core.granted_updates == first.batches.num_batches + rest.batches.num_batches == 8, "granted is received"
    core.close()


def test_a_publication_whose_answer_got_lost_is_answered_after_a_restart(tmp_path: Path) -> None:
    core, learner, learn, _, _ = filled(tmp_path)
    message = m.Publish(learn.task_id, learn.attempt, 7, "y", 1)
    answer(core, "publish", learner, ("policy",), message, 1)
    core.close()
    core = make_core(tmp_path)

    assert answer(core, "publish", learner, ("policy",), message, 1) == m.Ok()
    assert answer(core, "publish", learner, ("policy",), message, 2) == m.Ok(), "and without the journal too"
    core.close()


def test_a_result_whose_answer_got_lost_is_taken_once(tmp_path: Path) -> None:
    core, _, _, collector, task = filled(tmp_path)
    done = m.FinishTask(task.attempt, {})
    first = answer(core, "finish_task", collector, (task.task_id,), done, 1)
    core.close()
    core = make_core(tmp_path)

    assert answer(core, "finish_task", collector, (task.task_id,), done, 1) == first
    core.close()


def test_a_failure_whose_answer_got_lost_counts_once(tmp_path: Path) -> None:
    core, _, _, collector, task = filled(tmp_path)
    failed = m.FailTask(task.attempt, "E", "broke")
    for _ in range(5):
        assert not answer(core, "fail_task", collector, (task.task_id,), failed, 1).shutdown

    assert core.tasks.tasks[task.task_id].failures == 1 and not core.is_over
    core.close()


def test_a_refusal_is_repeated_though_the_message_would_be_taken_now(tmp_path: Path) -> None:
    core, _, _, collector, task = filled(tmp_path)
    early = m.TaskInfo(task.attempt + 1, {})
    with pytest.raises(RefusedError) as first:
        answer(core, "task_info", collector, (task.task_id,), early, 1)
    core.leave(collector, m.Leave("away"))
    assert claim(core, join(core, "collector")).attempt == task.attempt + 1

    with pytest.raises(RefusedError) as again:
        answer(core, "task_info", collector, (task.task_id,), early, 1)

    assert (again.value.code, again.value.message) == (first.value.code, first.value.message)
    assert first.value.code == "stale_attempt"
    core.close()


def test_numbers_below_the_last_are_refused(tmp_path: Path) -> None:
    core, learner, learn, _, _ = filled(tmp_path)
    answer(core, "sample", learner, ("buffer",), question(learn), 2)

    with pytest.raises(RefusedError) as caught:
        answer(core, "sample", learner, ("buffer",), question(learn), 1)

    assert caught.value.code == "old_message" and core.granted_updates == 4
    core.close()


@pytest.mark.parametrize("number", [0, -1, 10**300])
def test_numbers_that_count_nothing_are_refused(tmp_path: Path, number: int) -> None:
    core, learner, learn, _, _ = filled(tmp_path)

    with pytest.raises(RefusedError) as caught:
        answer(core, "sample", learner, ("buffer",), question(learn), number)

    assert caught.value.code == "malformed"
    core.close()


def test_a_second_copy_that_comes_while_the_first_waits_is_granted_nothing_more(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    learner, learn, collector, task = begin(core)
    service = LockedService(core)
    message = m.Sample(learn.task_id, learn.attempt, 2, 2, 0, 0, 5.0)
    replies: list[m.SampleReply] = []

    def ask() -> None:
        replies.append(service.answer("sample", learner, ("buffer",), message, Stamp("main", 1)))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    infos = tuple(announced(collector, number) for number in range(4))  # enough for 8 updates
    service.send_data(collector, task.task_id, m.SendData(task.attempt, infos))
    for thread in threads:
        thread.join(10)

    assert len(replies) == 4 and len({encode(reply) for reply in replies}) == 1
    assert core.granted_updates == 2
    core.close()


def test_an_empty_answer_is_final_when_the_time_is_over(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    learner, learn, collector, task = begin(core)
    message = m.Sample(learn.task_id, learn.attempt, 2, 2, 0, 0)
    first = answer(core, "sample", learner, ("buffer",), message, 1)
    infos = tuple(announced(collector, number) for number in range(4))
    core.send_data(collector, task.task_id, m.SendData(task.attempt, infos))

    again = answer(core, "sample", learner, ("buffer",), message, 1)

    assert first.batches is None and again == first and core.granted_updates == 0
    core.close()


def test_an_older_message_that_still_waits_when_the_next_comes_is_granted_nothing(tmp_path: Path) -> None:
    core, learner, learn, _, _ = filled(tmp_path)
    asked: list[int] = []

    def ask() -> Any:
        asked.append(1)
        return core.sample(learner, "buffer", question(learn))

    core.once(learner, Stamp("main", 2), ask)

    with pytest.raises(RefusedError, match="older than 2"):
        core.once(learner, Stamp("main", 1), ask)
    assert asked == [1]
    core.close()


def test_a_state_file_that_lost_answered_messages_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    core, learner, learn, _, _ = filled(tmp_path)
    answer(core, "sample", learner, ("buffer",), question(learn), 1)
    core.close()
    core = make_core(tmp_path)

    with caplog.at_level(logging.ERROR):
        for number in (4, 6):  # 2 and 3 were answered: the file does not know
            answer(core, "sample", learner, ("buffer",), question(learn), number)

    assert [record.message for record in caplog.records if "what was answered between is lost" in record.message]
    assert status_of(core)["state_gaps"] == 1
    core.close()


def test_heartbeats_and_refusals_between_are_no_gap(tmp_path: Path) -> None:
    core, learner, learn, _, _ = filled(tmp_path)
    answer(core, "sample", learner, ("buffer",), question(learn), 1)
    answer(core, "heartbeat", learner, (), m.Heartbeat("learn"), 2)
    with pytest.raises(RefusedError, match="no task"):
        answer(core, "task_info", learner, ("nothing-1",), m.TaskInfo(1, {}), 3)
    LockedService(core).answer("heartbeat", learner, (), m.Heartbeat("learn"), Stamp("beats", 7))
    core.close()
    core = make_core(tmp_path)

    answer(core, "sample", learner, ("buffer",), question(learn), 4)

    assert status_of(core)["state_gaps"] == 0
    assert not [key for key, _ in core._store.items("answer") if key.endswith("/beats")], "beats alone are not written"
    core.close()


def test_answers_to_workers_that_left_long_ago_go(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    for number in range(300):
        worker = join(core, "learner", number)
        for channel in range(2):
            core.once(worker, Stamp(f"c{channel}", 1), lambda worker=worker: core.claim(worker, m.Claim()))
        core.leave(worker, m.Leave("away"))

    assert len(core._store.items("answer")) == 2 * 256 == 2 * len(core._store.items("secret"))
    core.close()
    core = make_core(tmp_path)
    for number in range(300, 400):
        core.leave(join(core, "learner", number), m.Leave("away"))
    assert len(core._store.items("secret")) == 256
    core.close()


def test_a_worker_cannot_fill_the_journal_with_channels(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    worker = join(core, "learner")
    for number in range(100):
        core.once(worker, Stamp(f"c{number}", 1), lambda: core.claim(worker, m.Claim()))

    assert len(core._store.items("answer")) == 32
    core.close()


def test_the_secret_of_a_worker_survives_a_restart_and_keeps_its_name(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    mine = m.Register("collector", "host", 1, PACKAGE, "start0", secret="ab" * 16)
    worker = core.register(mine).worker_id
    core.close()
    core = make_core(tmp_path)

    assert core.secret_of(worker) == "ab" * 16 and core.register(mine).worker_id == worker
    with pytest.raises(RefusedError) as caught:
        core.register(m.Register("collector", "elsewhere", 2, PACKAGE, "start0", secret="cd" * 16))
    assert caught.value.code == "name_taken"
    core.close()


def test_a_name_is_not_free_because_its_worker_was_silent(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    mine = m.Register("collector", "host", 1, PACKAGE, "start0", secret="ab" * 16)
    worker = core.register(mine).worker_id
    core.leave(worker, m.Leave("silent"))

    assert core.secret_of(worker) is None
    with pytest.raises(RefusedError) as caught:
        core.register(m.Register("collector", "elsewhere", 2, PACKAGE, "start0", secret="cd" * 16))
    assert caught.value.code == "name_taken"
    assert core.register(mine).worker_id == worker
    core.close()
