"""A pool replaces processes that are killed and stopped, on a real Ray."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from ding_like.comm.workers.failures import FailureLog, FailurePolicy
from ding_like.comm.workers.host import Host, Resources, WorkerHandle
from ding_like.comm.workers.pool import WorkerPool
from ding_like.errors import TrainingError
from tests.comm.workers.ray_victim import Victim
from tests.support import wait_until

pytestmark = pytest.mark.ray
_START_S = 90.0  # of processes that all load what they need, on a busy machine


@pytest.fixture
def log() -> FailureLog:
    return FailureLog()


@pytest.fixture
def make_pool(ray_host: Host, log: FailureLog) -> Iterator[Callable[..., WorkerPool]]:
    made: list[WorkerPool] = []

    def make(
        number: int, *, standby: int = 1, restarts: int = 10, broken: Callable[[int], str] = lambda index: ""
    ) -> WorkerPool:
        pool = WorkerPool(
            ray_host, lambda index: partial(Victim, index, broken(index)), kind="victim", number=number,
            resources=Resources(num_cpus=0.5), log=log, standby=standby, policy=FailurePolicy(restarts, _START_S),
        )  # fmt: skip
        made.append(pool)
        return pool

    yield make
    for pool in made:
        pool.stop()


def names(pool: WorkerPool) -> list[str]:
    return [worker.name for worker in pool.workers]


def pid(pool: WorkerPool, worker: WorkerHandle) -> int:
    found: int = pool.info(worker)
    return found


def outcome(host: Host, call: Any) -> Any:
    assert host.wait([call], timeout_s=_START_S)
    return call.result()


def test_a_killed_process_is_replaced_by_the_standby_without_a_start(
    ray_host: Host, make_pool: Callable[..., WorkerPool], log: FailureLog
) -> None:
    pool = make_pool(2)
    assert pool.wait_ready(timeout_s=_START_S)
    victim = pool.workers[1]
    call = victim.call("sleep", 60.0)
    os.kill(pid(pool, victim), signal.SIGKILL)
    assert ray_host.wait([call], timeout_s=_START_S)

    found = pool.lost(victim, how="process died", rows_lost=8)

    assert found is not None and names(pool) == ["victim1", "victim3"]
    assert outcome(ray_host, found.call("ready")) == pid(pool, found) != pid(pool, victim)
    (row,) = log.rows
    assert (row.worker, row.rows_lost, row.replaced_by) == ("victim2", 8, "victim3")


@pytest.mark.slow
def test_the_death_of_idle_and_waiting_processes_is_known_and_made_good(
    make_pool: Callable[..., WorkerPool], log: FailureLog
) -> None:
    pool = make_pool(1)
    assert pool.wait_ready(timeout_s=_START_S)
    for worker in (pool.workers[0], pool.standbys[0]):
        os.kill(pid(pool, worker), signal.SIGKILL)
    wait_until(lambda: len(log.rows) == 2)

    assert pool.wait_ready(timeout_s=_START_S)
    assert {row.worker for row in log.rows} == {"victim1", "victim2"}
    assert not {"victim1", "victim2"} & {*names(pool), *(worker.name for worker in pool.standbys)}


@pytest.mark.slow
def test_a_stopped_process_is_killed_and_replaced(make_pool: Callable[..., WorkerPool]) -> None:
    pool = make_pool(1)
    assert pool.wait_ready(timeout_s=_START_S)
    victim = pool.workers[0]
    process = pid(pool, victim)
    os.kill(process, signal.SIGSTOP)

    found = pool.lost(victim, how="no answer for 1 s")

    assert found is not None and found.name == "victim2"
    wait_until(lambda: not is_there(process), "the end of the process")


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_what_make_raises_on_ray_reaches_the_caller_with_its_type(make_pool: Callable[..., WorkerPool]) -> None:
    with pytest.raises(OSError, match="no display for 2"):
        make_pool(2, standby=0, broken=lambda index: "raises" if index == 2 else "")


@pytest.mark.slow
def test_processes_that_all_die_at_the_start_end_the_run(make_pool: Callable[..., WorkerPool], log: FailureLog) -> None:
    with pytest.raises(TrainingError, match=r"while it started.*restarts_per_10min=1"):
        make_pool(1, standby=0, restarts=1, broken=lambda index: "dies")

    assert [row.how for row in log.rows] == ["process died while it started"] * 2


@pytest.mark.slow
def test_stop_leaves_no_process(make_pool: Callable[..., WorkerPool]) -> None:
    pool = make_pool(2, standby=0)
    processes = [pid(pool, worker) for worker in pool.workers]
    pool.workers[0].call("sleep", 60.0)  # is not waited for

    pool.stop(timeout_s=4.0)

    wait_until(lambda: not any(map(is_there, processes)), "the end of all processes")
