"""Sets of workers, and what all workers share; over threads of this process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from ding_like.comm.workers.threads import ThreadHost
from ding_like.errors import ConfigError
from ding_like.pipeline.ray.worker import Worker
from ding_like.pipeline.ray.worker_set import WorkerSet


class Algorithm:
    def __init__(self) -> None:
        self.lr = 0.1
        self._secret = 1


class Plain(Worker):
    """Worker with an algorithm and without a storage that notes that it was stopped."""

    def __init__(self, index_worker: int, factor: int, stopped: list[int], envs: str | None = "envs") -> None:
        super().__init__(index_worker)
        self.algo = Algorithm()
        self.factor = factor
        self.envs = envs
        self.device = "cpu"
        self._stopped = stopped

    def product(self) -> int:
        return self.index_worker * self.factor

    def stop(self) -> None:
        if self.index_worker not in self._stopped:
            self._stopped.append(self.index_worker)


class Made:
    """Factory of sets that stops them in the end."""

    def __init__(self) -> None:
        self.stopped: list[int] = []
        self._sets: list[WorkerSet] = []

    def __call__(self, **named: Any) -> WorkerSet:
        self._sets.append(WorkerSet(Plain, {"factor": 3, "stopped": self.stopped}, **named))
        return self._sets[-1]

    def stop(self) -> None:
        for each in self._sets:
            each.stop()


@pytest.fixture
def make_set() -> Iterator[Made]:
    made = Made()
    yield made
    made.stop()


def results(workers: WorkerSet, method: str, host: ThreadHost) -> list[Any]:
    calls = [worker.call(method) for worker in workers.remote_workers()]
    pending = list(calls)
    while pending:
        done = host.wait(pending, timeout_s=60.0)
        assert done, "no answer"
        pending = [call for call in pending if call not in done]
    return [call.result() for call in calls]


# --- sets


def test_the_local_worker_has_index_0_and_the_remote_ones_the_next() -> None:
    host = ThreadHost()
    workers = WorkerSet(Plain, {"factor": 3, "stopped": []}, num_workers=3, host=host)

    found = results(workers, "product", host)

    local = workers.local_worker()
    workers.stop()
    host.close()
    assert found == [3, 6, 9]
    assert local.index_worker == 0


def test_params_of_the_local_worker_may_differ(make_set: Made) -> None:
    workers = make_set(num_workers=1, local_params={"envs": None})

    local: Any = workers.local_worker()
    assert local.envs is None and local.factor == 3
    assert workers.worker_params["factor"] == 3 and "envs" not in workers.worker_params


def test_stop_stops_all_workers_and_may_be_called_again(make_set: Made) -> None:
    workers = make_set(num_workers=2, standby=1)
    assert workers.pool.wait_ready(timeout_s=60.0)

    workers.stop()
    workers.stop()

    assert sorted(make_set.stopped) == [0, 1, 2, 3]
    assert workers.num_workers == 0


def test_a_remote_worker_that_cannot_be_made_leaves_nothing(make_set: Made) -> None:
    class Broken(Plain):
        def __init__(self, index_worker: int, **named: Any) -> None:
            if index_worker == 2:
                raise OSError("no display")
            super().__init__(index_worker, **named)

    with pytest.raises(OSError, match="no display"):
        WorkerSet(Broken, {"factor": 1, "stopped": make_set.stopped}, num_workers=2)

    assert 0 in make_set.stopped


def test_resources_that_make_no_sense_are_refused_before_anything_is_made() -> None:
    stopped: list[int] = []

    with pytest.raises(ConfigError, match="there is no 'cpus'"):
        WorkerSet(Plain, {"factor": 1, "stopped": stopped}, num_workers=1, remote_config={"cpus": 1})


# --- what workers are told while they work


class Rated(Plain):
    def rate(self) -> float:
        return self.algo.lr * self.factor


def test_workers_that_take_over_or_are_added_are_told_of_all_changes_in_order() -> None:
    host = ThreadHost()
    workers = WorkerSet(Rated, {"factor": 1, "stopped": []}, num_workers=2, standby=1, host=host)
    assert workers.pool.wait_ready(timeout_s=60.0)
    assert workers.tell("update_algorithm_parameter", "lr", 0.5)
    assert workers.tell("replace_agent_component", "algo", lambda device: Algorithm(), in_turn=True)
    assert workers.tell("update_algorithm_parameter", "lr", 0.3)
    assert workers.tell("replace_agent_component", "factor", lambda device: 10, in_turn=True)

    replacements = []
    for _ in range(2):
        assert workers.pool.wait_ready(timeout_s=60.0)
        found = workers.replace(workers.remote_workers()[0])
        replacements.append(found and found.name)
    workers.add_workers(1)
    rates = results(workers, "rate", host)
    workers.stop()
    host.close()

    assert replacements == ["worker3", "worker4"], "who stood by when they were told, and who was made after"
    assert rates == [3.0, 3.0, 3.0]


# --- workers


@pytest.fixture
def worker() -> Plain:
    return Plain(5, factor=1, stopped=[])


def test_a_parameter_that_there_is_is_set(worker: Plain) -> None:
    assert worker.update_algorithm_parameter("lr", 0.5) is True
    assert worker.algo.lr == 0.5


@pytest.mark.parametrize("name", ["momentum", "_secret"])
def test_a_parameter_that_there_is_not_is_refused_and_warned_of(
    worker: Plain, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "ding_like"):
        assert worker.update_algorithm_parameter(name, 0.5) is False

    assert f"worker 5: there is no '{name}' of Algorithm" in caplog.text
    assert worker.algo._secret == 1 and not hasattr(worker.algo, "momentum")


def test_a_worker_without_a_storage_says_so(worker: Plain, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "ding_like"):
        assert worker.update_storage_parameter("max_size", 10) is False

    assert "there is no such part to set" in caplog.text


def test_a_component_is_replaced_by_what_its_factory_makes(worker: Plain) -> None:
    assert worker.replace_agent_component("envs", lambda device: f"new ones on {device}") is True
    assert worker.envs == "new ones on cpu"


def test_an_unknown_component_is_not_made(worker: Plain) -> None:
    made: list[object] = []

    assert worker.replace_agent_component("actor", made.append) is False
    assert not made and not hasattr(worker, "actor")


def test_a_worker_says_where_it_runs(worker: Plain, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ding_like"):
        worker.print_worker_info()

    assert set(worker.ready()) == {"pid", "node", "version"}
    assert f"worker 5: {dict(worker.ready())}" in caplog.text
