"""A pool keeps its workers at work: over a scripted host, where nothing is left to chance, and over threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from ding_like.comm.workers.failures import FailureLog, FailurePolicy
from ding_like.comm.workers.host import Resources, WorkerLostError
from ding_like.comm.workers.pool import WorkerPool
from ding_like.comm.workers.threads import ThreadHost
from ding_like.errors import CommError, ConfigError, TrainingError
from tests.comm.workers.scripted_host import ScriptedHost

_FAR_S = 600.0  # longer than a test may take


@pytest.fixture
def host() -> ScriptedHost:
    return ScriptedHost()


class Pools:
    """Factory of pools over a host that stops them in the end."""

    def __init__(self, host: ScriptedHost) -> None:
        self._host = host
        self._made: list[WorkerPool] = []
        self.log = FailureLog(clock=host.clock)

    def __call__(self, number: int = 2, *, restarts: int = 3, start_s: float = 60.0, **named: Any) -> WorkerPool:
        policy = FailurePolicy(restarts, start_s, when_spent=named.pop("when_spent", "stop"))
        pool = WorkerPool(
            self._host, lambda index: object, kind="collector", number=number, resources=Resources(),
            log=self.log, policy=policy, clock=self._host.clock, **named,
        )  # fmt: skip
        self._made.append(pool)
        assert pool.wait_ready(timeout_s=60.0 if not self._host.silent else 0.0) or self._host.silent
        return pool

    def stop(self) -> None:
        for pool in self._made:
            pool.stop(timeout_s=1.0)


@pytest.fixture
def pools(host: ScriptedHost) -> Iterator[Pools]:
    made = Pools(host)
    yield made
    host.advance(1000.0)  # waits for what never comes are over
    made.stop()


def names(pool: WorkerPool) -> list[str]:
    return [worker.name for worker in pool.workers]


# --- replacement


def test_workers_have_the_first_indexes_and_those_that_stand_by_the_next(pools: Pools) -> None:
    pool = pools(3, standby=2)

    assert names(pool) == ["collector1", "collector2", "collector3"]
    assert sorted(worker.name for worker in pool.standbys) == ["collector4", "collector5"]


def test_a_standby_has_the_place_of_a_lost_worker_at_once(pools: Pools, host: ScriptedHost) -> None:
    pool = pools(3)
    lost = pool.workers[1]
    host.silent.add("collector5")  # the one that is started behind never gets ready
    host.die(lost.name)

    found = pool.lost(lost, how="process died")

    assert found is not None and found.name == "collector4"
    assert names(pool) == ["collector1", "collector4", "collector3"]


def test_a_hung_worker_is_killed_before_it_is_replaced(pools: Pools, host: ScriptedHost) -> None:
    killed: list[list[str]] = []
    pool = pools(1, prepare=lambda worker: killed.append(list(host.killed)))

    pool.lost(pool.workers[0], how="no answer for 120 s")

    assert killed == [[], ["collector1"]]


def test_the_death_of_an_idle_worker_is_known_without_a_call(pools: Pools, host: ScriptedHost) -> None:
    pool = pools(2)

    host.die("collector1")
    host.await_start("collector4")

    assert pool.wait_ready(timeout_s=60.0)
    assert names(pool) == ["collector3", "collector2"]
    (row,) = pools.log.rows
    assert (row.worker, row.role, row.how, row.detail) == (
        "collector1",
        "working",
        "process died",
        "collector1 is gone",
    )


def test_a_loss_that_is_known_is_counted_once_and_gives_who_came_after(pools: Pools, host: ScriptedHost) -> None:
    pool = pools(2)
    lost = pool.workers[0]
    host.die(lost.name)
    host.await_start("collector4")
    pool.wait_ready(timeout_s=60.0)

    found = pool.lost(lost, how="process died", rows_lost=64, last="step 7")

    assert found is not None and found.name == "collector3"
    (row,) = pools.log.rows
    assert (row.rows_lost, row.last, row.replaced_by) == (64, "step 7", "collector3")


def test_a_worker_that_stands_by_and_dies_is_replaced(pools: Pools, host: ScriptedHost) -> None:
    pool = pools(1)

    host.die("collector2")
    host.await_start("collector3")

    assert pool.wait_ready(timeout_s=60.0)
    assert names(pool) == ["collector1"]
    assert [worker.name for worker in pool.standbys] == ["collector3"]
    assert [(row.role, row.replaced_by) for row in pools.log.rows] == [("standby", None)]


def test_a_worker_that_dies_while_it_starts_is_started_again(pools: Pools, host: ScriptedHost) -> None:
    host.dying = {"collector1", "collector3"}.__contains__

    pool = pools(2, standby=0)

    assert names(pool) == ["collector4", "collector2"]
    assert {row.how for row in pools.log.rows} == {"process died while it started"}


def test_a_standby_that_dies_as_it_takes_over_is_passed_over(pools: Pools, host: ScriptedHost) -> None:
    def prepare(worker: Any) -> None:
        if worker.name == "collector2":
            host.die(worker.name)
            raise WorkerLostError("gone")

    pool = pools(1, standby=2, prepare=prepare)

    found = pool.lost(pool.workers[0], how="process died")

    assert found is not None and found.name == "collector3"
    assert sorted((row.worker, row.role) for row in pools.log.rows) == [
        ("collector1", "working"), ("collector2", "standby"),
    ]  # fmt: skip


def test_a_place_without_a_standby_is_filled_by_the_one_that_starts(pools: Pools, host: ScriptedHost) -> None:
    pool = pools(2, standby=0)
    host.silent.add("collector3")

    with ThreadPoolExecutor(1) as thread:
        finding = thread.submit(pool.lost, pool.workers[0], how="process died")
        host.await_start("collector3")
        host.advance(2.5)
        host.answer("collector3", "ready")
        found = finding.result(timeout=60.0)

    assert found is not None and names(pool) == ["collector3", "collector2"]
    (row,) = pools.log.rows
    assert (row.replaced_by, row.replaced_ms) == ("collector3", 2500.0)


def test_lost_does_not_wait_if_told_so(pools: Pools, host: ScriptedHost) -> None:
    pool = pools(2, standby=0)
    host.silent.add("collector3")
    lost = pool.workers[0]

    assert pool.lost(lost, how="process died", wait_s=0.0) is None
    assert names(pool) == ["collector2"] and pool.place_of(lost) == 0

    host.answer("collector3", "ready")
    assert pool.wait_ready(timeout_s=60.0)
    assert names(pool) == ["collector3", "collector2"]


def test_a_round_may_wait_for_the_places_and_not_for_those_that_stand_by(pools: Pools, host: ScriptedHost) -> None:
    pool = pools(1, standby=1)
    host.silent.add("collector3")

    pool.lost(pool.workers[0], how="process died")

    assert pool.wait_ready(timeout_s=60.0, standbys=False) and names(pool) == ["collector2"]
    assert not pool.wait_ready(timeout_s=0.0)


def test_lost_waits_no_longer_than_a_start_may_take(pools: Pools, host: ScriptedHost) -> None:
    pool = pools(1, standby=0, start_s=0.05)
    host.silent.add("collector2")

    with pytest.raises(TrainingError, match="collector1 was lost .*start_timeout_s"):
        pool.lost(pool.workers[0], how="process died")


def test_a_replacement_that_is_not_ready_in_time_is_killed_and_another_one_started(
    pools: Pools, host: ScriptedHost
) -> None:
    pool = pools(1, standby=0)
    host.silent.add("collector2")

    with ThreadPoolExecutor(1) as thread:
        finding = thread.submit(pool.lost, pool.workers[0], how="process died")
        host.await_start("collector2")
        host.advance(60.0)
        found = finding.result(timeout=60.0)

    assert found is not None and found.name == "collector3"
    assert "collector2" in host.killed
    assert pools.log.rows[1].how == "not ready 60 s after its start"


def test_many_threads_that_report_one_loss_get_the_same_worker(pools: Pools) -> None:
    pool = pools(2)
    lost = pool.workers[0]

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: pool.lost(lost, how="process died"), range(8)))

    assert {worker.name for worker in found if worker} == {"collector3"}
    assert len(pools.log.rows) == 1


def test_a_worker_of_another_pool_is_refused(pools: Pools) -> None:
    pool = pools(1)

    class Stranger:
        name = "stranger1"

    with pytest.raises(CommError, match="stranger1 is no worker of this pool"):
        pool.lost(Stranger(), how="process died")  # type: ignore[arg-type]


# --- the budget


def test_a_spent_budget_stops_the_run_and_says_who_how_and_what_to_change(pools: Pools) -> None:
    pool = pools(2, restarts=2)
    for _ in range(2):
        pool.lost(pool.workers[0], how="process died")
        pool.wait_ready(timeout_s=60.0)
    last = pool.workers[0].name

    with pytest.raises(TrainingError) as error:
        pool.lost(pool.workers[0], how="no answer for 5 s", last="env 3, step 81, action 2")

    for part in (last, "no answer for 5 s", "env 3, step 81, action 2", "restarts_per_10min=2", "when_spent='shrink'"):
        assert part in str(error.value)


def test_the_budget_is_for_ten_minutes(pools: Pools, host: ScriptedHost) -> None:
    pool = pools(1, restarts=1)
    for _ in range(4):
        pool.lost(pool.workers[0], how="process died")
        pool.wait_ready(timeout_s=60.0)
        host.advance(600.0)

    pool.check()
    assert len(pools.log.rows) == 4
    pool.lost(pool.workers[0], how="process died")
    pool.wait_ready(timeout_s=60.0)
    host.advance(599.9)
    with pytest.raises(TrainingError):
        pool.lost(pool.workers[0], how="process died")


def test_workers_that_all_die_at_once_are_not_started_for_ever(pools: Pools, host: ScriptedHost) -> None:
    pool = pools(1, restarts=5)
    host.dying = lambda name: True  # from now on

    host.die("collector2")  # it stood by, so nobody calls `lost`
    host.await_kill("collector7")
    with pytest.raises(TrainingError, match=r"while it started.*restarts_per_10min=5"):
        pool.check()

    assert len(host.workers) == 2 + 5
    assert names(pool) == ["collector1"]


def test_a_worker_that_cannot_be_made_again_stops_the_run_with_the_reason(pools: Pools, host: ScriptedHost) -> None:
    pool = pools(1, restarts=1, standby=0)
    host.failing["collector2"] = OSError("no space for the env")

    with pytest.raises(TrainingError, match=r"collector2 \(starting\) was lost: could not start \(OSError: no space"):
        pool.lost(pool.workers[0], how="process died")


def test_a_pool_may_shrink_when_its_budget_is_spent(pools: Pools) -> None:
    pool = pools(3, restarts=0, standby=0, when_spent="shrink")
    lost = pool.workers[1]

    assert pool.lost(lost, how="process died") is None

    assert names(pool) == ["collector1", "collector3"]
    assert pool.place_of(lost) is None
    pool.check()


def test_a_pool_does_not_shrink_below_the_least(pools: Pools) -> None:
    pool = pools(3, restarts=0, standby=0, when_spent="shrink", least=2)
    pool.lost(pool.workers[0], how="process died")

    with pytest.raises(TrainingError, match="at least 2 must work"):
        pool.lost(pool.workers[0], how="process died")


# --- what goes wrong in threads


def test_an_error_of_prepare_reaches_the_caller(pools: Pools, host: ScriptedHost) -> None:
    def prepare(worker: Any) -> None:
        if worker.name != "collector1":
            raise KeyError("weights")

    pool = pools(1, prepare=prepare)

    with pytest.raises(KeyError, match="weights"):
        pool.lost(pool.workers[0], how="process died")
    with pytest.raises(KeyError, match="weights"):
        pool.check()


def test_a_lost_host_reaches_the_caller(pools: Pools, host: ScriptedHost) -> None:
    pool = pools(2)

    host.fail(CommError("the cluster is gone"))

    with pytest.raises(CommError, match="the cluster is gone"):
        pool.lost(pool.workers[0], how="process died", wait_s=60.0)


# --- the start


def test_what_make_raises_at_the_start_is_raised_and_nothing_is_left(pools: Pools, host: ScriptedHost) -> None:
    host.failing["collector2"] = ConfigError("no such env")

    with pytest.raises(ConfigError, match="no such env"):
        pools(3)

    assert set(host.killed) == {"collector1", "collector2", "collector3"}
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("watch")]


def test_a_start_that_takes_too_long_is_given_up_with_what_to_do(pools: Pools, host: ScriptedHost) -> None:
    host.silent.add("collector2")
    with ThreadPoolExecutor(1) as thread:
        starting = thread.submit(pools, 2)
        host.await_start("collector2")
        host.advance(60.0)
        with pytest.raises(TrainingError, match=r"collector2 was not ready.*num_cpus=1 .*start_timeout_s"):
            starting.result(timeout=60.0)

    assert set(host.killed) >= {"collector1", "collector2"}


def test_negative_numbers_are_refused(pools: Pools) -> None:
    with pytest.raises(ConfigError, match="set none below 0"):
        pools(1, standby=-1)


# --- more and fewer


def test_workers_are_added_at_places_behind_with_indexes_of_their_own(pools: Pools) -> None:
    pool = pools(1)

    added = pool.add(2)

    assert [worker.name for worker in added] == ["collector3", "collector4"]
    assert names(pool) == ["collector1", "collector3", "collector4"]
    assert [pool.place_of(worker) for worker in added] == [1, 2]


def test_workers_that_cannot_be_added_leave_the_pool_as_it_was(pools: Pools, host: ScriptedHost) -> None:
    pool = pools(1)
    host.failing["collector4"] = OSError("no memory")

    with pytest.raises(OSError, match="no memory"):
        pool.add(2)

    assert names(pool) == ["collector1"]
    assert {"collector3", "collector4"} <= set(host.killed)
    pool.check()


def test_removed_workers_stop_and_are_not_replaced(pools: Pools, host: ScriptedHost) -> None:
    pool = pools(3)

    pool.remove(["collector2"])

    assert names(pool) == ["collector1", "collector3"]
    assert host.stopped == ["collector2"] and host.killed == ["collector2"]
    assert not pools.log.rows


def test_workers_that_are_none_or_must_stay_are_not_removed(pools: Pools) -> None:
    pool = pools(2)

    with pytest.raises(ConfigError, match="no worker is named collector7"):
        pool.remove(["collector7"])
    with pytest.raises(ConfigError, match="must stay"):
        pool.remove(["collector1", "collector2"])

    assert len(pool.workers) == 2


# --- the end


def test_stop_asks_all_workers_and_then_kills_them(pools: Pools, host: ScriptedHost) -> None:
    pool = pools(2)

    pool.stop()
    pool.stop()

    assert sorted(host.stopped) == sorted(host.killed) == ["collector1", "collector2", "collector3"]
    assert pool.workers == [] and pool.standbys == []


def test_a_stopped_pool_replaces_nobody(pools: Pools, host: ScriptedHost) -> None:
    pool = pools(2)
    workers = pool.workers
    pool.stop()

    assert pool.lost(workers[0], how="process died") is None
    assert len(host.workers) == 3 and not pools.log.rows


# --- over threads


class Plain:
    def ready(self) -> int:
        return threading.get_ident()

    def stop(self) -> None:
        pass


def test_stop_waits_neither_for_a_worker_that_starts_nor_for_one_that_does_not_stop() -> None:
    may_go = threading.Event()

    class Stuck(Plain):
        def __init__(self, index: int) -> None:
            if index > 1:
                may_go.wait(_FAR_S)

        def stop(self) -> None:
            may_go.wait(_FAR_S)

    host = ThreadHost()
    pool = WorkerPool(
        host, lambda index: lambda: Stuck(index), kind="w", number=1, resources=Resources(), log=FailureLog()
    )
    worker = pool.workers[0]

    pool.stop(timeout_s=0.2)

    is_lost = host.wait([worker.ended], timeout_s=0.0)
    may_go.set()
    host.close()
    assert is_lost


def test_random_deaths_from_many_threads_leave_the_pool_whole() -> None:
    host, log = ThreadHost(), FailureLog()
    pool = WorkerPool(
        host, lambda index: Plain, kind="w", number=4, resources=Resources(), log=log, standby=2,
        policy=FailurePolicy(restarts_per_10min=1000),
    )  # fmt: skip
    rngs = np.random.default_rng(0).spawn(4)

    victims = []

    def harm(rng: np.random.Generator) -> None:
        for _ in range(10):
            workers = pool.workers
            if workers:
                victim = workers[rng.integers(len(workers))]
                victims.append(victim)
                host.kill(victim)
                if rng.random() < 0.5:
                    pool.lost(victim, how="process died")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(harm, rngs))
    for victim in victims:  # those that the pool has not noticed yet
        pool.lost(victim, how="process died")
    is_whole = pool.wait_ready(timeout_s=30.0)
    workers, rows = pool.workers, log.rows
    pool.stop()
    host.close()

    assert is_whole and len({worker.name for worker in workers}) == 4
    assert len({row.worker for row in rows}) == len(rows)
    assert not {row.worker for row in rows} & {worker.name for worker in workers}
    assert all(row.replaced_by for row in rows if row.role == "working")
