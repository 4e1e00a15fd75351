"""How a scheme collects: rounds, stops, losses, and each row exactly once."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from ding_like.comm.channels import Version
from ding_like.errors import CommError, SchemaError, TrainingError
from ding_like.pipeline.ray.collection import AsynchronousCollection, SynchronousCollection
from ding_like.pipeline.roles.collector_thread import CollectorThread
from tests.pipeline.ray.scripted import Scripted


def collect(scripted: Scripted, collection: Any, turns: int = 1) -> None:
    for _ in range(turns):
        collection.collect(scripted.rows.order(timeout_s=0.0))
        while scripted.rows.next(timeout_s=0.0) is not None:
            scripted.update += 1


# --- rounds


def test_a_round_is_one_segment_in_order_of_place_whoever_comes_first():
    scripted = Scripted(3, n_sample=9)
    scripted.workers[0].seconds_per_row = 0.5  # the first one is the last to come

    collect(scripted, SynchronousCollection(scripted.remote()))

    assert scripted.store.pushed == [[1000, 1001, 1002, 2000, 2001, 2002, 3000, 3001, 3002]]
    assert scripted.update == 1 and scripted.rows.env_step == 9 == scripted.report.envstep


def test_rows_that_cannot_be_shared_equally_are_collected_all_the_same():
    scripted = Scripted(3, n_sample=8)

    collect(scripted, SynchronousCollection(scripted.remote()))

    assert [len(worker.calls) and worker.calls[0].order.rows for worker in scripted.workers] == [3, 3, 2]
    assert len(scripted.store.rows) == 8


def test_every_round_begins_once_all_have_the_newest_weights_and_says_the_env_step():
    scripted = Scripted(2)

    collect(scripted, SynchronousCollection(scripted.remote()), turns=3)

    assert [update for update, _ in scripted.published] == [0, 1, 2]
    assert all(wait_s is not None for _, wait_s in scripted.published), "a round waits until its weights have come"
    orders = [call.order for call in scripted.workers[1].calls]
    assert [order.env_step for order in orders] == [0, 8, 16]
    assert [order.newest.update for order in orders] == [0, 1, 2]


def test_env_steps_that_made_no_row_count_too():
    scripted = Scripted(2)
    scripted.workers[0].dropped_steps = 5

    collect(scripted, SynchronousCollection(scripted.remote()))

    assert scripted.rows.env_step == 13 == scripted.report.envstep


def test_random_rows_allow_no_updates_and_are_collected_at_env_step_0():
    scripted = Scripted(2)

    assert sum(SynchronousCollection(scripted.remote()).begin(20)) == 20

    assert len(scripted.store.rows) == 20 and scripted.rows.next(timeout_s=0.0) is None
    assert [call.order.env_step for worker in scripted.workers for call in worker.calls] == [0, 0]
    assert scripted.report.envstep == 20


def test_no_worker_is_asked_for_fewer_episodes_than_it_can_play():
    scripted = Scripted(2)
    collection = SynchronousCollection(scripted.remote(random_share=4, least_share=4))

    assert sum(collection.begin(10)) >= 10
    collection.collect(scripted.rows.order(timeout_s=0.0)._replace(rows=6))

    asked = [[call.order.rows for call in worker.calls] for worker in scripted.workers]
    assert asked == [[4, 4, 4], [4, 4, 4]], "a lot of random ones until there are enough rows, then a round"


# --- early stop


def test_once_enough_have_finished_the_others_stop_and_hand_over_what_they_have():
    scripted = Scripted(4, n_sample=400)
    scripted.workers[3].seconds_per_row = 0.1  # ten times as slow as the others

    began_s = scripted.clock.now
    collect(scripted, SynchronousCollection(scripted.remote(fraction_workers=0.75)))

    assert scripted.workers[3].told == [1]
    assert [scripted.store.rows.count(1000 * index) for index in (1, 2, 3, 4)] == [1, 1, 1, 1]
    assert len(scripted.store.rows) == 310, "three whole shares, and 10 rows of the slow one"
    assert scripted.clock.now - began_s < 1.2, "a round of four equal ones takes a second"
    assert scripted.update == 0, "310 of 400 rows allow no whole update yet"
    collect(scripted, SynchronousCollection(scripted.remote(fraction_workers=0.75)))
    assert scripted.update == 1


def test_each_round_has_a_number_of_its_own_so_that_a_late_signal_stops_no_later_one():
    scripted = Scripted(2)
    scripted.workers[1].seconds_per_row = 0.1
    collection = SynchronousCollection(scripted.remote(fraction_workers=0.5))

    collect(scripted, collection, turns=3)

    assert [call.round_id for call in scripted.workers[1].calls] == [1, 2, 3]
    assert scripted.workers[1].told == [1, 2, 3]


# --- losses


@pytest.mark.parametrize(
    ("fault", "how", "rows_lost"),
    [
        (dict(dies_after_s=0.02), "process died", 4),
        (dict(hangs=True), "no answer for 7 s", 4),
        (dict(error=RuntimeError("the env broke")), "raised an error", 4),
        (dict(is_deaf=True), "did not take the weights", 0),
    ],
)
def test_the_share_of_a_lost_worker_goes_to_the_one_that_takes_its_place(fault, how, rows_lost):
    scripted = Scripted(2, standbys=1, step_timeout_s=7.0)
    vars(scripted.workers[0]).update(fault)

    collect(scripted, SynchronousCollection(scripted.remote()))

    assert scripted.pool.losses == [("collector1", how, rows_lost)]
    assert scripted.store.pushed == [[3000, 3001, 3002, 3003, 2000, 2001, 2002, 2003]], "at the place of the lost one"


def test_a_round_goes_on_with_those_present_where_nobody_takes_over():
    scripted = Scripted(2)
    scripted.workers[0].dies_after_s = 0.02

    collect(scripted, SynchronousCollection(scripted.remote()), turns=2)

    assert scripted.store.pushed == [[2000, 2001, 2002, 2003], list(range(2004, 2012))]
    assert scripted.rows.env_step == 12


def test_what_every_worker_would_raise_is_raised():
    scripted = Scripted(2, standbys=1)
    scripted.workers[0].error = SchemaError("column 'obs' has another shape")

    with pytest.raises(SchemaError, match="another shape"):
        collect(scripted, SynchronousCollection(scripted.remote()))

    assert scripted.pool.losses == []


def test_a_share_that_was_collected_with_old_weights_is_collected_again():
    scripted = Scripted(2)
    scripted.update = 5
    joins_late = iter([True])

    def publish(wait_s: float | None) -> list[Any]:
        lacking = scripted._publish(wait_s)
        if next(joins_late, False):
            scripted.workers[1].version = Version(1, 4)  # a standby that was prepared before
        return lacking

    remote = replace(scripted.remote(oldest=scripted.newest), publish=publish)
    collect(scripted, SynchronousCollection(remote))

    assert scripted.store.pushed == [[1000, 1001, 1002, 1003, 2004, 2005, 2006, 2007]] and not scripted.pool.losses
    assert scripted.report.dropped_rows == 4 and scripted.rows.env_step == 12, "their env steps were taken"


def test_without_any_worker_left_it_is_an_error():
    scripted = Scripted(1)
    scripted.workers[0].dies_after_s = 0.02

    with pytest.raises(TrainingError, match="no worker is left"):
        collect(scripted, SynchronousCollection(scripted.remote()))


def test_a_lost_host_is_a_comm_error():
    scripted = Scripted(2)
    scripted.host.error = CommError("the cluster is lost")

    with pytest.raises(CommError, match="the cluster is lost"):
        collect(scripted, SynchronousCollection(scripted.remote()))


def test_a_run_that_is_to_end_waits_for_slow_workers_a_few_seconds_only():
    scripted = Scripted(2)
    scripted.workers[1].hangs = True
    scripted.is_leaving = True

    began_s = scripted.clock.now
    collect(scripted, SynchronousCollection(scripted.remote()))

    assert scripted.store.pushed == [[1000, 1001, 1002, 1003]] and scripted.workers[1].told == [1]
    assert scripted.clock.now - began_s < 10


# --- each at its own pace: the strategy's thread gives the calls, so the scripted clock is its alone


def asynchronous(scripted: Scripted, *, segment_rows: int = 4, **changes: Any) -> AsynchronousCollection:
    return AsynchronousCollection(scripted.remote(**changes), segment_rows=segment_rows, max_queue_size=1)


def test_the_first_ready_is_put_first_and_every_row_once():
    scripted = Scripted(2)
    scripted.workers[0].seconds_per_row = 0.05
    collection = asynchronous(scripted)

    collect(scripted, collection, turns=12)
    collection.close()

    rows = scripted.store.rows
    assert len(rows) == len(set(rows)) == 48
    assert sum(row < 2000 for row in rows) < 24 / 2, "a fast worker does not wait for a slow one"
    assert scripted.update == 48 // 8 and scripted.rows.env_step == 48


def test_workers_that_are_lost_hold_nobody_up():
    scripted = Scripted(3, standbys=1, step_timeout_s=5.0)
    scripted.workers[0].dies_after_s = 0.01
    scripted.workers[1].hangs = True
    collection = asynchronous(scripted)

    collect(scripted, collection, turns=400)
    collection.close()

    assert [how for _, how, _ in scripted.pool.losses] == ["process died", "no answer for 5 s"]
    assert {row // 1000 for row in scripted.store.rows} == {3, 4}
    assert len(scripted.store.rows) == len(set(scripted.store.rows)) == 1600


def test_rows_of_weights_that_are_too_old_are_dropped_and_counted():
    scripted = Scripted(1)
    scripted.are_deaf = True
    collection = asynchronous(scripted, max_policy_lag=3)
    for update in (0, 3, 4, 50):
        scripted.update = update
        collection.collect(scripted.rows.order(timeout_s=0.0))
    collection.close()

    assert scripted.report.dropped_rows == 8 and scripted.store.rows == list(range(1000, 1008))
    assert scripted.rows.env_step == 16, "their env steps were taken"


def test_what_goes_wrong_in_the_thread_reaches_the_caller():
    scripted = Scripted(1)
    scripted.workers[0].error = SchemaError("column 'obs' has another shape")
    collection = asynchronous(scripted)

    with pytest.raises(SchemaError, match="another shape"):
        collect(scripted, collection)
    collection.close()


def test_an_asynchronous_run_that_is_to_end_does_not_wait():
    scripted = Scripted(1, step_timeout_s=1e12)
    scripted.workers[0].seconds_per_row = 1e12
    scripted.is_leaving = True
    collection = asynchronous(scripted)

    collection.collect(scripted.rows.order(timeout_s=0.0))
    collection.close()

    assert scripted.store.pushed == []


# --- what is said of them


def test_lag_age_rates_and_returns_are_measured():
    scripted = Scripted(2)
    collection = SynchronousCollection(scripted.remote())

    collect(scripted, collection, turns=5)

    said = scripted.report.describe()
    assert said["collectors"] == "2" and said["policy lag"] == "0 updates" and said["round"] == "40 ms"
    assert said["collector1"] == "100 env steps/s", "4 rows in 40 ms"
    assert scripted.report.mean_return == 15 and scripted.report.mean_length == 5
    assert collection.setting == {"eps": 0.5}


# --- the thread by itself


def test_a_collector_thread_holds_back_once_its_queue_is_full():
    made, full = [], threading.Event()

    def make() -> Any:
        made.append(len(made))
        if len(made) == 3:  # one was taken, and two wait
            full.set()
        return made[-1]

    thread = CollectorThread(make, col_communication="asynchronous", max_queue_size=2)
    first = thread.step(timeout_s=60.0)
    assert full.wait(60.0)
    found = [first, *(thread.step(timeout_s=60.0) for _ in range(4))]

    assert thread.stop() and found == [0, 1, 2, 3, 4]
    assert len(made) <= 5 + 2


def test_a_synchronous_collector_thread_collects_in_the_callers_thread_and_broadcasts_before():
    order = []

    def make() -> Any:
        order.append(threading.current_thread() is threading.main_thread())

    thread = CollectorThread(make, broadcast=lambda: order.append("weights"), broadcast_interval=2)
    for _ in range(3):
        thread.step()

    assert order == ["weights", True, True, "weights", True] and not thread.is_alive()
