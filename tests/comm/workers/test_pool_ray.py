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

    def make(number: int) -> WorkerPool:
        pool = WorkerPool(
            ray_host, lambda index: partial(Victim, index), kind="victim", number=number,
            resources=Resources(num_cpus=0.5), log=log, policy=FailurePolicy(10, _START_S),
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
