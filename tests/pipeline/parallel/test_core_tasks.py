"""Workers and tasks of the coordinator: claims, failures, evaluations, the end, workers that are lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.messages import RefusedError
from ding_like.comm.rest.worker import TaskHandle, TaskLeftError, WorkerAgent
from ding_like.pipeline.parallel.coordinator import LockedService
from tests.pipeline.parallel.service_parts import PACKAGE, Rig, claim, make_core
from tests.support import wait_until

MakeRig = Callable[..., Rig]


def code_of(ask: Callable[[], object]) -> str:
    """Return the code with which a message is refused."""
    with pytest.raises(RefusedError) as caught:
        ask()
    return caught.value.code


def test_an_older_attempt_is_refused_everywhere(rig: Rig) -> None:
    other = rig.join("collector", 1)
    rig.clock.now += 6
    rig.core.heartbeat(other, m.Heartbeat("idle"))
    rig.core.heartbeat(rig.learner, m.Heartbeat("learn"))
    rig.clock.now += 6  # the first collector was not heard of for 12 s

    rig.core.tick()

    assert rig.collector not in rig.core.workers and rig.learner in rig.core.workers
    assert rig.core.tasks[rig.task.task_id].status == "queued"
    assert [key for key, _ in rig.core._store.items("worker")] == sorted([other, rig.learner])
    taken = rig.claim(other)
    rig.join("collector")  # it comes back
    assert taken.task_id == rig.task.task_id and taken.attempt == rig.task.attempt + 1
    for ask in (lambda: rig.send(5), rig.info, rig.finish, lambda: rig.fail(rig.collector, rig.task)):
        assert code_of(ask) == "stale_attempt"
    assert rig.core.env_step == 0


def test_a_task_is_used_for_its_kind_only(rig: Rig) -> None:
    core, learner, learn, collector, task = rig.core, rig.learner, rig.learn, rig.collector, rig.task
    for ask in (
        lambda: rig.send(0, by=learner, to=learn),
        lambda: rig.sample(collector, task),
        lambda: core.update(collector, "buffer", m.Update(task.task_id, task.attempt, 10**6, {})),
        lambda: core.update(learner, "other", m.Update(learn.task_id, learn.attempt, 10**6, {})),
        lambda: core.publish(collector, "policy", m.Publish(task.task_id, task.attempt, 10**6, "x", 1)),
    ):
        assert code_of(ask) == "wrong_role"
    assert core.learn_iter == 0 and core.env_step == 0


def test_who_is_not_known_is_told_what_to_do(rig: Rig) -> None:
    with pytest.raises(RefusedError, match=r"ding_like 0\.0\.0, the coordinator .*install the same"):
        rig.core.register(m.Register("collector", "host", 1, "0.0.0", "start"))
    with pytest.raises(RefusedError, match="register again"):
        rig.core.claim("collector-x", m.Claim())


def test_registering_again_renews_the_lease(rig: Rig) -> None:
    rig.clock.now += 9
    rig.join("collector")
    rig.clock.now += 2

    rig.core.tick()

    assert rig.collector in rig.core.workers


def test_a_worker_that_is_lost_is_recorded_with_the_reason_and_one_that_leaves_is_not(rig: Rig) -> None:
    two = rig.join("collector", 1)
    rig.clock.now += 4
    rig.join("collector", 1)
    assert (rig.core.silence_s(rig.core.workers[rig.collector]), rig.core.silence_s(rig.core.workers[two])) == (4, 0)
    rig.clock.now += 7

    rig.core.tick()
    rig.core.leave(two, m.Leave("done"))

    lost = [(worker, why) for worker, _, why in rig.core.losses]
    assert (rig.collector, "not heard of for 10 s") in lost and two not in dict(lost)


# --- evaluations


def test_evaluations_come_at_version_0_and_every_eval_freq_and_survive_a_restart(rig: Rig) -> None:
    rig.publish(99)
    assert rig.core.num_open("eval") == 0

    rig.publish(100)

    assert rig.core.num_open("eval") == 1
    rig.restart()
    rig.core.tick()
    assert rig.info().finish
    rig.finish()
    evaluation = rig.claim(rig.collector)
    assert evaluation.kind == "eval" and evaluation.cfg["number"] == 1


def test_another_collector_is_asked_when_the_evaluating_one_leaves(rig: Rig) -> None:
    two = rig.join("collector", 1)
    rig.core.tick()
    task_two = rig.claim(two)
    rig.begin_evaluation()
    assert not rig.info(two, task_two).finish

    rig.core.leave(rig.collector, m.Leave("killed"))
    rig.core.tick()

    assert rig.info(two, task_two).finish


UNPLAYED: list[dict[str, Any]] = [
    *({"returns": each} for each in ([], ["a", "b"], [9.0], [9.0, 9.0, 9.0], [1.7e308, 1.7e308], "99")),
    *({"returns": [each, 9.0]} for each in (float("nan"), 10**400, True)),
    *({"lengths": each} for each in ([1], [-1, 1], None)),
    *({"duration_s": each} for each in (None, -1.0, float("inf"), 100.0)),
    *({"version": each} for each in (99, 10**300)),
]


def test_an_evaluation_that_cannot_have_been_played_is_a_failed_attempt(make_rig: MakeRig) -> None:
    rig = make_rig(max_failures=100)
    evaluation = rig.begin_evaluation()
    for change in UNPLAYED:
        with pytest.raises(RefusedError) as caught:
            rig.evaluated(evaluation, 9.0, 9.0, **change)
            pytest.fail(f"{change} is taken")
        assert caught.value.code == "schema" and len(caught.value.message) < 300, change
        again = rig.claim(rig.collector)
        assert (again.task_id, again.attempt) == (evaluation.task_id, evaluation.attempt + 1), change
        evaluation = again
    assert not rig.core.is_over and rig.core.num_open("eval") == 1

    rig.evaluated(evaluation, 9.0, 9.0)

    assert rig.core.num_open("eval") == 0


def test_an_evaluation_may_take_as_long_as_it_was_leased_even_over_a_restart(rig: Rig) -> None:
    evaluation = rig.begin_evaluation()
    rig.clock.now += 8.0
    rig.core.close()
    rig.clock.now = 5.0  # another boot
    rig.restart()

    rig.evaluated(evaluation, 9.0, 9.0, duration_s=8.0)

    assert rig.core.num_open("eval") == 0


def test_a_learners_result_without_numbers_is_a_failed_attempt(make_rig: MakeRig) -> None:
    rig = make_rig(max_failures=100)
    learn = rig.learn
    for name in ("eval_value", "train_iter", "judge_s", "eval_lengths"):
        with pytest.raises(RefusedError, match=name):
            rig.finish(rig.learner, learn, **{name: "many"})
        learn = rig.claim(rig.learner)

    assert not rig.core.is_over and learn.attempt == 5


# --- failures


@pytest.fixture
def failing(make_rig: MakeRig) -> Rig:
    """Give a rig whose run ends after three failures."""
    return make_rig(max_failures=3)


def test_a_collector_that_fails_at_everything_does_not_end_the_run_of_others(failing: Rig) -> None:
    bad = failing.join("collector", 1)
    failing.core.tick()

    for _ in range(9):
        failing.fail(bad, failing.claim(bad))

    assert not failing.core.is_over and failing.collector in failing.core.workers


def test_a_lone_worker_ends_the_run_after_max_failures(failing: Rig) -> None:
    ends = [failing.fail(failing.collector, failing.task)]
    ends += [failing.fail(failing.collector, failing.claim(failing.collector)) for _ in range(2)]

    assert ends == [False, False, True] and "failed 3 times" in str(failing.core.failure)


def test_failures_of_several_workers_with_nothing_done_between_end_the_run(failing: Rig) -> None:
    one, two = failing.collector, failing.join("collector", 1)
    failing.core.tick()
    other = failing.claim(two)

    failing.fail(one, failing.task)
    failing.send(0, by=two, to=other)
    failing.fail(two, other)
    failing.fail(one, failing.claim(one))
    assert not failing.core.is_over, "data came between"
    failing.fail(two, failing.claim(two))

    assert failing.core.is_over and "failed 3 times" in str(failing.core.failure)


def test_one_that_is_started_again_is_the_same(failing: Rig) -> None:
    collector = failing.collector
    failing.fail(collector, failing.task)
    for number in (5, 6):
        failing.core.leave(collector, m.Leave("it failed"))
        collector = failing.join("collector", number)
        failing.fail(collector, failing.claim(collector))

    assert failing.core.is_over


def test_an_evaluation_that_failed_goes_to_another_collector_which_is_asked_for_its_task(failing: Rig) -> None:
    good = failing.join("collector", 1)
    failing.core.tick()
    busy = failing.claim(good)
    evaluation = failing.begin_evaluation()

    failing.fail(failing.collector, evaluation)

    again = failing.core.claim(failing.collector, m.Claim()).task
    assert again is None or again.kind == "collect", "it is left to the other"
    assert failing.info(good, busy).finish
    failing.finish(good, busy)
    assert failing.claim(good).task_id == evaluation.task_id


def test_a_failure_is_told_without_control_characters(make_rig: MakeRig) -> None:
    rig = make_rig(max_failures=1)

    rig.fail(rig.collector, rig.task, "bad\x1b[31m\nroot: all is well\x00")

    assert rig.core.failure.isprintable() and "root: all is well" in rig.core.failure


# --- the end


def judge(rig: Rig, value: float) -> bool:
    """Send the learner's result; return whether the run is over."""
    counts = {"train_iter": 130, "last_iter": 100, "judge_s": 0.1, "train_s": 1.0}
    return rig.finish(rig.learner, rig.learn, eval_value=value, eval_value_raw=[value], **counts)


def test_the_run_ends_when_solved_and_judged_with_the_weights_that_solved_it(rig: Rig) -> None:
    evaluation = rig.begin_evaluation()
    assert evaluation.policy is not None and evaluation.policy.version == 100
    rig.publish(130)
    assert rig.core.pinned() >= {(1, 100)}

    assert not rig.evaluated(evaluation, 10.0, 12.0)

    assert rig.sample().finish and rig.core.claim(rig.collector, m.Claim()).task is None
    told = rig.info(rig.learner, rig.learn)
    assert told.finish and told.policy is not None and told.policy.version == 100 and rig.core.pinned() >= {(1, 100)}
    assert rig.finish(rig.learner, rig.learn, train_iter=100) and rig.core.is_over and rig.core.failure is None
    commands = rig.core.heartbeat(rig.collector, m.Heartbeat("idle")).commands
    assert [command.name for command in commands] == ["stop"]


def test_an_end_that_the_judge_does_not_confirm_is_none(rig: Rig) -> None:
    rig.evaluated(rig.begin_evaluation(), 1e9, 1e9)
    assert rig.sample(cur_learner_iter=100).finish

    assert not judge(rig, 9.0) and not rig.core.is_over

    again = rig.claim(rig.learner)
    assert (again.task_id, again.attempt) == (rig.learn.task_id, rig.learn.attempt + 1)
    assert not rig.sample(to=again, cur_learner_iter=130).finish
    assert rig.claim(rig.collector).kind == "collect"
    commander = rig.core._commander
    assert commander.best_return == 9.0 and commander.best_policy["version"] == 100, "worth what the judge found"
    assert [each["judged"] for each in rig.core.take_evaluations()[1]] == [9.0]
    rig.learn = again
    rig.publish(199)
    assert rig.core.num_open("eval") == 0
    rig.publish(200)
    assert rig.core.num_open("eval") == 1, "an evaluation is due again later"


def test_a_stop_that_waits_for_the_judge_survives_a_restart(rig: Rig) -> None:
    rig.evaluated(rig.begin_evaluation(), 1e9, 1e9)
    rig.restart()

    assert {(1, 0), (1, 100)} <= rig.core.pinned(), "the weights of both are kept"
    assert not judge(rig, -5.0)
    assert rig.core._commander.best_return == 0.0 and rig.core._commander.best_policy["version"] == 0


def test_a_run_at_its_limit_ends_whatever_the_judge_says(rig: Rig) -> None:
    rig.evaluated(rig.begin_evaluation(), 1e9, 1e9)
    rig.restart(max_env_step=0.0)

    assert judge(rig, 1.0)


# --- a learner that publishes nothing


def learn_on(rig: Rig, seconds: int, first: int = 1) -> None:
    for number in range(seconds):
        rig.clock.now += 1.0
        rig.update(first + number)
        rig.core.heartbeat(rig.collector, m.Heartbeat("collect"))
        rig.core.tick()


def test_a_learner_that_publishes_nothing_loses_its_task(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    learn_on(rig, 29)
    assert rig.core.tasks[rig.learn.task_id].status == "leased"

    assert code_of(lambda: learn_on(rig, 5, first=30)) == "stale_attempt"
    assert [record for record in caplog.records if "published no weights" in record.message]
    assert rig.claim(rig.learner).attempt == rig.learn.attempt + 1 and not rig.core.is_over


def test_a_learner_that_publishes_or_waits_for_data_or_says_why_keeps_its_task(rig: Rig) -> None:
    for number in range(10):
        learn_on(rig, 20, first=1 + 20 * number)
        rig.publish(20 * number + 20)
    learn_on(rig, 3, first=300)
    for _ in range(100):  # it waits for data
        rig.clock.now += 1.0
        rig.core.heartbeat(rig.learner, m.Heartbeat("learn"))
        rig.core.heartbeat(rig.collector, m.Heartbeat("collect"))
        rig.core.tick()
    learn_on(rig, 3, first=310)
    rig.info(rig.learner, rig.learn, warning="the disk is full")
    learn_on(rig, 100, first=400)

    assert rig.core.tasks[rig.learn.task_id].status == "leased"


# --- workers that are lost, wait, leave


def test_a_dead_process_gives_its_task_back_at_once_and_is_remembered_to_have_worked(rig: Rig) -> None:
    # All others are of process 1.
    other = rig.core.register(m.Register("collector", "host", 77, PACKAGE, "start5")).worker_id

    assert rig.core.lost("host", 77, "killed") is False, "it had done nothing"
    assert other not in rig.core.workers
    rig.send(0)
    rig.core.leave(rig.learner, m.Leave("away"))
    assert rig.core.lost("host", 1, "killed") is True
    replacement = rig.join("collector", 9)
    again = rig.claim(replacement)
    assert (again.task_id, again.attempt) == (rig.task.task_id, rig.task.attempt + 1)
    assert code_of(lambda: rig.info(replacement)) == "stale_attempt"
    rig.send(0, by=replacement, to=again)
    rig.core.leave(replacement, m.Leave("it failed"))
    assert rig.core.lost("host", 1, "ended") is True and rig.core.lost("elsewhere", 1, "ended") is False


def test_few_wait_at_once_and_the_others_are_answered(rig: Rig) -> None:
    service = LockedService(rig.core, max_waiting=2)
    idle = rig.join("learner", 1)
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


def test_a_wait_is_of_a_minute_at_most(rig: Rig) -> None:
    for wait_s in (-1.0, 61.0):
        with pytest.raises(RefusedError, match="wait_s"):
            LockedService(rig.core).claim(rig.collector, m.Claim(wait_s=wait_s))


def test_a_worker_that_leaves_hands_its_task_back(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    agent = WorkerAgent(LockedService(core), "learner", incarnation="leaver")
    agent.register()

    def do(task: m.Task, handle: TaskHandle) -> dict[str, Any]:
        raise TaskLeftError("asked to leave")

    agent.run(do)
    agent.close()

    other = core.register(m.Register("learner", "host", 1, PACKAGE, "other")).worker_id
    assert claim(core, other).attempt == 2 and not core.is_over
    core.close()
