"""A worker set calls its workers together or one by one, and leaves failed ones out until they are back."""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ding_like.comm.ray.actors import WorkerDiedError, value_of
from ding_like.comm.workers.failures import FailureLog, FailurePolicy
from ding_like.errors import ConfigError, TrainingError
from ding_like.pipeline.ray.worker_set import RemoteWorker, Worker, WorkerSet
from tests.support import wait_until

MakeSet = Callable[..., WorkerSet]


class Algorithm:
    def __init__(self) -> None:
        self.lr = 0.1
        self._secret = 1


class Plain(Worker):
    """Worker that computes, sleeps, raises and exits on request."""

    def __init__(self, index_worker: int, factor: int = 3) -> None:
        super().__init__(index_worker)
        self.algo, self.factor, self.weights, self.device = Algorithm(), factor, 0, "cpu"
        self._is_told = False

    def product(self, order: Any = None) -> int:
        return self.index_worker * self.factor

    def state(self) -> tuple[int, float]:
        return self.weights, self.algo.lr

    def set_weights(self, weights: int) -> None:
        self.weights = weights

    def wait(self, seconds: float) -> int:
        """Sleep in worker 1 until told to stop; return at once in the others."""
        end_s = time.monotonic() + (seconds if self.index_worker == 1 else 0.0)
        while time.monotonic() < end_s and not self._is_told:
            time.sleep(0.01)
        return self.index_worker

    def stop_waiting(self) -> None:
        self._is_told = True

    def fail(self, how: str) -> int:
        if self.index_worker == 1:
            if how == "exit":
                raise SystemExit(3)
            raise {"config": ConfigError("wrong config"), "env": RuntimeError("broken env")}[how]
        return self.index_worker


@pytest.fixture
def make_set() -> Iterator[MakeSet]:
    made: list[WorkerSet] = []

    def make(num_workers: int, **named: Any) -> WorkerSet:
        made.append(WorkerSet(Plain, {}, num_workers=num_workers, remote_config={"num_cpus": 0.5}, **named))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def kill(worker: RemoteWorker) -> None:
    os.kill(worker.info["pid"], signal.SIGKILL)


def values(workers: WorkerSet, method: str, *args: Any, **kwargs: Any) -> list[Any]:
    return [reply.value for reply in workers.call(method, *args, **kwargs)]


def are_all_back(workers: WorkerSet, number: int) -> Callable[[], bool]:
    return lambda: len(workers.call("product")) == number


# --- without remote workers


def test_without_remote_workers_all_calls_go_to_the_local_one(make_set: MakeSet) -> None:
    workers = make_set(0)

    workers.broadcast("set_weights", 7)
    assert values(workers, "state") == [(7, 0.1)]
    reply = workers.next_ready("product", timeout_s=0.0)
    assert reply is not None and reply.value == 0 and reply.worker is None
    assert (workers.num_workers, workers.remote_workers(), workers.local_worker().index_worker) == (0, [], 0)


def test_attributes_that_there_are_are_set_and_others_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="ding_like")
    worker = Plain(3)

    assert worker.update_algorithm_parameter("lr", 0.5) and worker.algo.lr == 0.5
    assert worker.replace_agent_component("factor", lambda device: 9) and worker.factor == 9
    for said in (
        worker.update_algorithm_parameter("nothing", 1),
        worker.update_algorithm_parameter("_secret", 2),
        worker.update_storage_parameter("max_size", 2),
        worker.replace_agent_component("nothing", lambda device: 1),
    ):
        assert said is False
    assert caplog.text.count("worker 3") == 4 and worker.algo._secret == 1


# --- on Ray


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
class TestOnRay:
    def test_replies_come_in_order(self, make_set: MakeSet) -> None:
        workers = make_set(2)

        assert values(workers, "product") == [3, 6]
        workers.broadcast("set_weights", 5)
        assert values(workers, "state") == [(5, 0.1)] * 2

    def test_a_killed_worker_is_left_out_and_comes_back_with_weights_and_parameters(self, make_set: MakeSet) -> None:
        log = FailureLog()
        workers = make_set(2, log=log)
        workers.broadcast("set_weights", 1)
        assert workers.call_everywhere("update_algorithm_parameter", "lr", 0.5)
        workers.broadcast("set_weights", 2)

        kill(workers.remote_workers()[0])
        assert values(workers, "product") == [6], "the round goes on without it"
        workers.broadcast("set_weights", 3)
        wait_until(are_all_back(workers, 2), "the worker that Ray restarts")

        assert values(workers, "state") == [(3, 0.5)] * 2
        (row,) = log.rows
        assert (row.worker, row.how, row.replaced_by) == ("worker1", "process died", "worker1")

    def test_a_worker_that_ray_restarts_between_two_calls_does_no_work_without_its_weights(
        self, make_set: MakeSet
    ) -> None:
        log = FailureLog()
        workers = make_set(2, log=log)
        workers.broadcast("set_weights", 5)
        assert values(workers, "state") == [(5, 0.1)] * 2
        first = workers.remote_workers()[0]

        def is_restarted() -> bool:
            try:
                return value_of(first.actor.control.remote("state")) is None
            except WorkerDiedError:
                return False

        kill(first)
        wait_until(is_restarted, "the process that Ray restarts")

        assert values(workers, "state") == [(5, 0.1)], "the round goes on without it"
        wait_until(are_all_back(workers, 2), "the worker that is made anew")
        assert values(workers, "state") == [(5, 0.1)] * 2
        (row,) = log.rows
        assert (row.worker, row.how, row.detail) == ("worker1", "process died", "its process died between two calls")

    def test_one_call_each_is_under_way_and_the_first_that_is_done_is_returned(self, make_set: MakeSet) -> None:
        workers = make_set(2)

        found = [workers.next_ready("wait", 1.0, timeout_s=30.0) for _ in range(3)]

        assert [reply.value for reply in found if reply] == [2, 2, 2]
        kill(workers.remote_workers()[0])
        again = {reply.value for _ in range(200) if (reply := workers.next_ready("wait", 0.02, timeout_s=30.0))}
        assert again <= {1, 2} and 2 in again

    def test_the_processes_are_those_that_the_workers_report(self, make_set: MakeSet) -> None:
        workers = make_set(2)
        first, second = workers.remote_workers()
        first.is_healthy, first.failure = False, workers.log.note("worker1", how="process died")

        lost, working = workers.processes()
        first.is_healthy, first.failure = True, None

        assert (lost.name, lost.state, lost.note) == ("worker1", "lost", "process died: it is restarted")
        assert (working.pid, working.host, working.state) == (second.info["pid"], socket.gethostname(), "running")
        assert working.heartbeat_s is not None and working.heartbeat_s >= 0
        kill(second)
        wait_until(are_all_back(workers, 2), "the worker that was killed")
        assert workers.processes()[1].pid == second.info["pid"] != working.pid, "that of the new process"

    @pytest.mark.slow
    def test_once_a_quorum_has_replied_the_others_are_stopped_early(self, make_set: MakeSet) -> None:
        workers, began_s = make_set(2), time.monotonic()

        found = values(workers, "wait", 60.0, quorum=0.5, on_quorum=lambda: workers.control("stop_waiting"))

        assert found == [1, 2] and time.monotonic() - began_s < 50.0

    @pytest.mark.slow
    def test_a_worker_that_hangs_is_restarted(self, make_set: MakeSet) -> None:
        workers = make_set(2, policy=FailurePolicy(step_timeout_s=1.0))

        assert values(workers, "wait", 60.0) == [2]
        wait_until(are_all_back(workers, 2), "the worker that hung")
        assert [row.how for row in workers.log.rows] == ["no answer for 1 s"]

    @pytest.mark.slow
    def test_a_round_that_is_late_goes_on_with_the_least_that_is_enough(self, make_set: MakeSet) -> None:
        workers = make_set(2)

        assert values(workers, "wait", 3.0, timeout_s=0.5, least=1) == [2]
        wait_until(are_all_back(workers, 2), "the end of the late call")
        assert not workers.log.rows

    @pytest.mark.parametrize(("how", "said"), [("env", "RuntimeError: broken env"), ("exit", "called exit(3)")])
    def test_a_worker_that_raises_is_made_anew(self, make_set: MakeSet, how: str, said: str) -> None:
        workers = make_set(2)
        workers.broadcast("set_weights", 4)

        assert values(workers, "fail", how) == [2]
        wait_until(are_all_back(workers, 2), "the worker that raised")
        assert values(workers, "state") == [(4, 0.1)] * 2
        (row,) = workers.log.rows
        assert said in row.detail and "test_worker_set.py" in row.detail

    def test_an_error_that_all_would_raise_is_raised(self, make_set: MakeSet) -> None:
        with pytest.raises(ConfigError, match="wrong config"):
            make_set(1).call("fail", "config")

    @pytest.mark.slow
    def test_a_spent_budget_ends_the_work_or_makes_the_set_smaller(self, make_set: MakeSet) -> None:
        policy = FailurePolicy(restarts_per_10min=0)
        with pytest.raises(TrainingError, match="worker1 .* was lost: process died"):
            workers = make_set(2, policy=policy)
            kill(workers.remote_workers()[0])
            workers.call("product")
        shrinking = make_set(2, policy=FailurePolicy(restarts_per_10min=0, when_spent="shrink"))
        kill(shrinking.remote_workers()[0])

        assert values(shrinking, "product") == [6] and shrinking.num_workers == 1

    def test_a_share_of_a_gpu_that_no_node_has_is_refused_at_once(self) -> None:
        with pytest.raises(ConfigError, match="1 of 1 workers .*GPU each.*: no node has that"):
            WorkerSet(Plain, {}, remote_config={"num_gpus": 99})
