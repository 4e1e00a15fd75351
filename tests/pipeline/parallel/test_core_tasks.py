"""Workers and tasks of the coordinator: claims, failures, evaluations, the end, workers that are lost."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.messages import RefusedError
from ding_like.comm.rest.worker import TaskHandle, TaskLeftError, WorkerAgent
from ding_like.pipeline.parallel.coordinator import LockedService
from ding_like.pipeline.parallel.core import CoordinatorCore
from tests.pipeline.parallel.service_parts import PACKAGE, announced, begin, claim, evaluated, join, make_core
from tests.support import Clock, wait_until


def publish(core: CoordinatorCore, learner: str, learn: m.Task, version: int) -> None:
    core.publish(learner, "policy", m.Publish(learn.task_id, learn.attempt, version, f"v{version}", 1))


def to_evaluate(folder: Path, **cfg: Any) -> tuple[CoordinatorCore, str, m.Task, str, m.Task]:
    """Return a core whose version 100 is being evaluated by its one collector."""
    core = make_core(folder, **cfg)
    learner, learn, collector, task = begin(core)
    publish(core, learner, learn, 100)
    core.finish_task(collector, task.task_id, m.FinishTask(task.attempt, {}))
    evaluation = claim(core, collector)
    assert evaluation.kind == "eval"
    return core, learner, learn, collector, evaluation


def fail(core: CoordinatorCore, worker: str, task: m.Task) -> m.EndReply:
    return core.fail_task(worker, task.task_id, m.FailTask(task.attempt, "it broke"))


# --- env steps


def test_more_env_steps_than_rows_can_take_are_refused(core: CoordinatorCore) -> None:
    _, _, collector, task = begin(core)

    infos = (replace(announced(collector, 0), env_steps=2**30), announced(collector, 1))
    reply = core.send_data(collector, task.task_id, m.SendData(task.attempt, infos))

    assert [each.code for each in reply.rejected] == ["schema"] and len(reply.accepted) == 1
    assert core.env_step == 8


# --- evaluations


def test_an_evaluation_that_cannot_have_been_played_is_a_failed_attempt(tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [
        {"returns": []},
        {"returns": ["a", "b"]},
        {"returns": [9.0]},
        {"returns": [9.0, 9.0, 9.0]},
        {"returns": [1.7e308, 1.7e308]},
        {"returns": [float("nan"), 9.0]},
        {"returns": [10**400, 9.0]},
        {"returns": [True, 9.0]},
        {"returns": "99"},
        {"lengths": [1]},
        {"lengths": [-1, 1]},
        {"lengths": None},
        {"duration_s": None},
        {"duration_s": -1.0},
        {"duration_s": float("inf")},
        {"duration_s": 100.0},
        {"version": 99},
        {"version": 10**300},
    ]
    core, _, _, collector, evaluation = to_evaluate(tmp_path, max_failures=100)
    for change in changes:
        result = {**evaluated(evaluation, 9.0, 9.0).result, **change}
        with pytest.raises(RefusedError) as caught:
            core.finish_task(collector, evaluation.task_id, m.FinishTask(evaluation.attempt, result))
            pytest.fail(f"{change} is taken")
        assert caught.value.code == "schema" and len(caught.value.message) < 300, change
        again = claim(core, collector)
        assert (again.task_id, again.attempt) == (evaluation.task_id, evaluation.attempt + 1), change
        evaluation = again
    assert not core.is_over and core.num_open("eval") == 1

    core.finish_task(collector, evaluation.task_id, evaluated(evaluation, 9.0, 9.0))

    assert core.num_open("eval") == 0
    core.close()


def test_an_evaluation_may_take_as_long_as_it_was_leased_even_over_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    core, _, _, collector, evaluation = to_evaluate(tmp_path, clock=clock)
    clock.now += 8.0
    core.close()
    clock.now = 5.0  # another boot
    core = make_core(tmp_path, clock=clock)
    done = evaluated(evaluation, 9.0, 9.0)

    core.finish_task(collector, evaluation.task_id, replace(done, result={**done.result, "duration_s": 8.0}))

    assert core.num_open("eval") == 0
    core.close()


def test_a_learners_result_without_numbers_is_a_failed_attempt(tmp_path: Path) -> None:
    core = make_core(tmp_path, max_failures=100)
    learner, learn, _, _ = begin(core)

    for name in ("eval_value", "train_iter", "judge_s", "eval_lengths"):
        with pytest.raises(RefusedError, match=name):
            core.finish_task(learner, learn.task_id, m.FinishTask(learn.attempt, {name: "many"}))
        learn = claim(core, learner)

    assert not core.is_over and learn.attempt == 5
    core.close()


# --- failures


def test_a_collector_that_fails_at_everything_does_not_end_the_run_of_others(tmp_path: Path) -> None:
    core = make_core(tmp_path, max_failures=3)
    _, _, good, _ = begin(core)
    bad = join(core, "collector", 1)
    core.tick()

    for _ in range(9):
        fail(core, bad, claim(core, bad))

    assert not core.is_over and good in core.workers
    core.close()


def test_a_lone_worker_ends_the_run_after_max_failures(tmp_path: Path) -> None:
    core = make_core(tmp_path, max_failures=3)
    _, _, collector, task = begin(core)

    ends = [fail(core, collector, task).shutdown]
    ends += [fail(core, collector, claim(core, collector)).shutdown for _ in range(2)]

    assert ends == [False, False, True] and "failed 3 times" in str(core.failure)
    core.close()


def test_one_that_is_started_again_is_the_same(tmp_path: Path) -> None:
    core = make_core(tmp_path, max_failures=3)
    _, _, collector, task = begin(core)
    fail(core, collector, task)
    for number in (5, 6):
        core.leave(collector, m.Leave("it failed"))
        collector = join(core, "collector", number)
        fail(core, collector, claim(core, collector))

    assert core.is_over
    core.close()


def test_an_evaluation_that_failed_goes_to_another_collector_which_is_asked_for_its_task(tmp_path: Path) -> None:
    core = make_core(tmp_path, max_failures=3)
    learner, learn, bad, task = begin(core)
    good = join(core, "collector", 1)
    core.tick()
    busy = claim(core, good)
    publish(core, learner, learn, 100)
    core.finish_task(bad, task.task_id, m.FinishTask(task.attempt, {}))
    evaluation = claim(core, bad)
    assert evaluation.kind == "eval"

    fail(core, bad, evaluation)

    again = core.claim(bad, m.Claim()).task
    assert again is None or again.kind == "collect", "it is left to the other"
    assert core.task_info(good, busy.task_id, m.TaskInfo(busy.attempt, {})).finish
    core.finish_task(good, busy.task_id, m.FinishTask(busy.attempt, {}))
    assert claim(core, good).task_id == evaluation.task_id
    core.close()


# --- the end


def judged(value: float) -> dict[str, Any]:
    return {
        "eval_value": value,
        "eval_value_raw": [value],
        "train_iter": 130,
        "last_iter": 100,
        "judge_s": 0.1,
        "train_s": 1.0,
    }


def test_an_end_that_the_judge_does_not_confirm_is_none(tmp_path: Path) -> None:
    core, learner, learn, collector, evaluation = to_evaluate(tmp_path)
    core.finish_task(collector, evaluation.task_id, evaluated(evaluation, 1e9, 1e9))
    assert core.sample(learner, "buffer", m.Sample(learn.task_id, learn.attempt, 2, 1, 100, 0)).finish

    end = core.finish_task(learner, learn.task_id, m.FinishTask(learn.attempt, judged(9.0)))

    assert not end.shutdown and not core.is_over
    again = claim(core, learner)
    assert (again.task_id, again.attempt) == (learn.task_id, learn.attempt + 1)
    assert not core.sample(learner, "buffer", m.Sample(again.task_id, again.attempt, 2, 1, 130, 0)).finish
    assert claim(core, collector).kind == "collect"
    commander = core._commander
    assert commander.best_return == 9.0 and commander.best_policy["version"] == 100, "worth what the judge found"
    assert [each["judged"] for each in core.take_evaluations()[1]] == [9.0]
    core.publish(learner, "policy", m.Publish(again.task_id, again.attempt, 199, "z", 1))
    assert core.num_open("eval") == 0
    core.publish(learner, "policy", m.Publish(again.task_id, again.attempt, 200, "z", 1))
    assert core.num_open("eval") == 1, "an evaluation is due again later"
    core.close()


def test_a_stop_that_waits_for_the_judge_survives_a_restart(tmp_path: Path) -> None:
    core, learner, learn, collector, evaluation = to_evaluate(tmp_path)
    core.finish_task(collector, evaluation.task_id, evaluated(evaluation, 1e9, 1e9))
    core.close()
    core = make_core(tmp_path)

    assert {(1, 0), (1, 100)} <= core.pinned(), "the weights of both are kept"
    end = core.finish_task(learner, learn.task_id, m.FinishTask(learn.attempt, judged(-5.0)))

    assert not end.shutdown and core._commander.best_return == 0.0 and core._commander.best_policy["version"] == 0
    core.close()


def test_a_run_at_its_limit_ends_whatever_the_judge_says(tmp_path: Path) -> None:
    core, learner, learn, collector, evaluation = to_evaluate(tmp_path)
    core.finish_task(collector, evaluation.task_id, evaluated(evaluation, 1e9, 1e9))
    core.close()
    core = make_core(tmp_path, max_env_step=0.0)

    assert core.finish_task(learner, learn.task_id, m.FinishTask(learn.attempt, judged(1.0))).shutdown
    core.close()


# --- a learner that publishes nothing


def learn_on(core: CoordinatorCore, clock: Clock, learner: str, learn: m.Task, seconds: int, first: int = 1) -> None:
    for number in range(seconds):
        clock.now += 1.0
        core.update(learner, "buffer", m.Update(learn.task_id, learn.attempt, first + number, {}))
        core.heartbeat("collector-start0", m.Heartbeat("collect"))
        core.tick()


def test_a_learner_that_publishes_nothing_loses_its_task(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    core = make_core(tmp_path, clock=clock)
    learner, learn, _, _ = begin(core)
    learn_on(core, clock, learner, learn, 29)
    assert core.tasks[learn.task_id].status == "leased"

    with pytest.raises(RefusedError) as caught:
        learn_on(core, clock, learner, learn, 5, first=30)

    assert caught.value.code == "stale_attempt"
    assert [record for record in caplog.records if "published no weights" in record.message]
    assert claim(core, learner).attempt == learn.attempt + 1 and not core.is_over
    core.close()


def test_a_learner_that_publishes_or_waits_for_data_or_says_why_keeps_its_task(tmp_path: Path) -> None:
    clock = Clock()
    core = make_core(tmp_path, clock=clock)
    learner, learn, _, _ = begin(core)
    for number in range(10):
        learn_on(core, clock, learner, learn, 20, first=1 + 20 * number)
        publish(core, learner, learn, 20 * number + 20)
    learn_on(core, clock, learner, learn, 3, first=300)
    for _ in range(100):  # it waits for data
        clock.now += 1.0
        core.heartbeat(learner, m.Heartbeat("learn"))
        core.heartbeat("collector-start0", m.Heartbeat("collect"))
        core.tick()
    learn_on(core, clock, learner, learn, 3, first=310)
    core.task_info(learner, learn.task_id, m.TaskInfo(learn.attempt, {"warning": "the disk is full"}))
    learn_on(core, clock, learner, learn, 100, first=400)

    assert core.tasks[learn.task_id].status == "leased"
    core.close()


def test_a_silent_worker_is_removed_from_the_table_and_its_task_is_free(tmp_path: Path) -> None:
    clock = Clock()
    core = make_core(tmp_path, clock=clock)
    learner, _, collector, task = begin(core)
    clock.now += 6.0
    core.heartbeat(learner, m.Heartbeat("learn"))
    clock.now += 5.0

    core.tick()

    assert collector not in core.workers and learner in core.workers
    assert core.tasks[task.task_id].status == "queued"
    assert [key for key, _ in core._store.items("worker")] == [learner]
    core.close()


def register(core: Any, role: str, number: int, pid: int) -> str:
    return str(core.register(m.Register(role, "host", pid, PACKAGE, f"start{number}")).worker_id)


def send(core: Any, worker: str, task: m.Task, number: int) -> m.SendDataReply:
    info = announced(worker, number)
    reply: m.SendDataReply = core.send_data(worker, task.task_id, m.SendData(task.attempt, (info,)))
    return reply


def sample(core: Any, learner: str, learn: m.Task, **changes: Any) -> m.SampleReply:
    own = dict(batch_size=4, num_batches=4, cur_learner_iter=0, have_segments_up_to=0)
    asked = m.Sample(learn.task_id, learn.attempt, **{**own, **changes})
    reply: m.SampleReply = core.sample(learner, learn.buffer_id, asked)
    return reply


def test_a_dead_process_gives_its_task_back_at_once(core: CoordinatorCore) -> None:
    learner, _, collector, task = begin(core)  # all of pid 1
    other = register(core, "collector", 5, pid=77)

    assert core.lost("host", 77, "killed") is False, "it had done nothing"
    assert other not in core.workers
    send(core, collector, task, 0)
    core.leave(learner, m.Leave("away"))
    assert core.lost("host", 1, "killed") is True
    replacement = join(core, "collector", 9)
    again = claim(core, replacement)
    assert (again.task_id, again.attempt) == (task.task_id, task.attempt + 1)
    with pytest.raises(RefusedError) as caught:
        core.task_info(replacement, task.task_id, m.TaskInfo(task.attempt, {}))
    assert caught.value.code == "stale_attempt"


def test_one_that_left_by_itself_is_remembered_to_have_worked(core: CoordinatorCore) -> None:
    _, _, collector, task = begin(core)
    send(core, collector, task, 0)
    core.leave(collector, m.Leave("it failed"))

    assert core.lost("host", 1, "ended") is True and core.lost("elsewhere", 1, "ended") is False


def test_what_a_dead_learner_had_not_saved_is_granted_again(core: CoordinatorCore) -> None:
    learner, learn, collector, task = begin(core)
    for number in range(4):  # 32 rows: 8 updates after the first 16
        send(core, collector, task, number)
    have = sample(core, learner, learn).new_segments[-1].serial
    while core.book.waiting_updates:
        sample(core, learner, learn, have_segments_up_to=have)
    assert core.book.granted_updates == 8
    core.lost("host", 1, "killed")

    second = join(core, "learner", 2)
    again = claim(core, second)
    reply = sample(core, second, again, cur_learner_iter=3, num_batches=256)

    assert again.attempt == learn.attempt + 1
    granted = 0 if reply.batches is None else reply.batches.num_batches
    assert core.book.granted_updates == 3 + granted and core.book.granted_updates + core.book.waiting_updates == 8


def test_a_first_learner_is_granted_nothing_twice(core: CoordinatorCore) -> None:
    learner, learn, collector, task = begin(core)
    for number in range(4):
        send(core, collector, task, number)
    for _ in range(5):
        sample(core, learner, learn)  # it asks as if it knew of no segment

    assert core.book.granted_updates + core.book.waiting_updates == 8


def test_segments_that_cannot_be_read_are_told_once_to_set_aside(core: CoordinatorCore) -> None:
    learner, learn, collector, task = begin(core)
    send(core, collector, task, 0)
    name = f"{collector}.00000000"
    for _ in range(2):
        core.update(learner, learn.buffer_id, m.Update(learn.task_id, learn.attempt, 0, {}, bad_segments=(name,)))

    assert core.book.take_files() == ([], [name]) and core.book.take_files() == ([], [])


def test_a_failure_is_told_without_control_characters(tmp_path: Path) -> None:
    core = make_core(tmp_path, max_failures=1)
    _, _, collector, task = begin(core)

    core.fail_task(collector, task.task_id, m.FailTask(task.attempt, "bad\x1b[31m\nroot: all is well\x00"))

    assert core.failure is not None and core.failure.isprintable() and "root: all is well" in core.failure


def test_few_wait_at_once_and_the_others_are_answered(core: CoordinatorCore) -> None:
    service = LockedService(core, max_waiting=2)
    claim(core, join(core, "learner"))
    idle = join(core, "learner", 1)
    ends: list[object] = []

    def ask() -> None:
        try:
            ends.append(service.claim(idle, m.Claim(wait_s=60.0)).task)
        except RefusedError as error:
            ends.append(error.code)

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(ends) == 3, "an answer to three")
    service.leave(idle, m.Leave("away"))
    for thread in threads:
        thread.join()

    assert ends == [None] * 3 + ["unknown"] * 2


def test_a_wait_is_of_a_minute_at_most(core: CoordinatorCore) -> None:
    worker = join(core, "collector")

    for wait_s in (-1.0, 61.0):
        with pytest.raises(RefusedError, match="wait_s"):
            LockedService(core).claim(worker, m.Claim(wait_s=wait_s))


def test_a_worker_that_leaves_hands_its_task_back(core: CoordinatorCore) -> None:
    agent = WorkerAgent(LockedService(core), "learner", incarnation="leaver")
    agent.register()

    def do(task: m.Task, handle: TaskHandle) -> dict[str, Any]:
        raise TaskLeftError("asked to leave")

    agent.run(do)
    agent.close()

    learn = claim(core, join(core, "learner", 2))
    assert learn.attempt == 2 and not core.is_over
