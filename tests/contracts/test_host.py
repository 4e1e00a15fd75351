"""Every host of workers keeps the promises of ding_like/comm/workers/host.py."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterator
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from ding_like.comm.workers.host import Call, Host, Resources, WorkerHandle, WorkerLostError
from ding_like.comm.workers.threads import ThreadHost
from ding_like.errors import CommError, SchemaError
from tests.contracts.host_worker import Recorder, make_held, make_nothing, release_all

SOON_S = 60.0  # what is under way is done by then: a new process has to load what it needs
FAR_S = 3600.0  # longer than a test may take: a call that returns has been woken
MOMENT_S = 0.05
SMALL = Resources(num_cpus=0.5)
HOSTS = ["threads", pytest.param("ray", marks=pytest.mark.ray)]


@pytest.fixture(scope="module", params=HOSTS)
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")  # before a test looks what there is
    return str(request.param)


@pytest.fixture
def host(kind: str, request: pytest.FixtureRequest) -> Iterator[Host]:
    if kind == "ray":
        yield request.getfixturevalue("ray_host")
        return
    release_all(again=True)
    host = ThreadHost()
    yield host
    release_all()
    host.close()


def start(host: Host, name: str = "worker", make: Any = Recorder) -> WorkerHandle:
    return host.start(make, name=name, resources=SMALL)


def outcome(host: Host, call: Call) -> Any:
    """Return what a call returns, or raise what it raises, when it is done."""
    assert host.wait([call], timeout_s=SOON_S) == [call]
    return call.result()


def held(host: Host, name: str = "worker") -> tuple[WorkerHandle, Call]:
    """Return a worker that is at work until it is freed, and the call that it is at."""
    worker = start(host, name)
    call = worker.call("hold")
    assert outcome(host, worker.control("until_held"))
    return worker, call


# --- calls


def test_a_worker_does_what_it_is_called_for(host: Host) -> None:
    worker = start(host)

    assert outcome(host, worker.call("note", each="one")) == 1
    assert outcome(host, worker.call("note", "two")) == 2
    assert outcome(host, worker.call("noted")) == ["one", "two"]
    assert worker.name == "worker"


def test_calls_are_done_in_order(host: Host) -> None:
    worker = start(host)
    for number in range(50):
        worker.call("note", number)

    assert outcome(host, worker.call("noted")) == list(range(50))


def test_calls_are_done_in_the_thread_that_made_the_worker_and_control_calls_are_not(host: Host) -> None:
    worker = start(host)

    assert outcome(host, worker.call("is_thread_of_making"))
    assert not outcome(host, worker.control("is_thread_of_making"))


def test_a_call_knows_its_worker(host: Host) -> None:
    worker = start(host)

    assert worker.call("noted").worker is worker and worker.ended.worker is worker


def test_a_result_can_be_had_twice_and_not_before_it_is_there(host: Host) -> None:
    worker, call = held(host)
    with pytest.raises(CommError, match=r"worker.*under way"):
        call.result()
    worker.control("free")

    assert outcome(host, call) is True and call.result() is True


def test_large_arrays_come_back_whole(host: Host) -> None:
    found = outcome(host, start(host).call("ramp", 500_000))

    np.testing.assert_array_equal(found, np.arange(500_000, dtype=np.float64))


@pytest.mark.parametrize(
    "error", [ValueError("a bad value"), SchemaError("column 'action' is missing"), SystemExit("enough")]
)
def test_what_a_method_raises_keeps_type_and_message(host: Host, error: BaseException) -> None:
    worker = start(host)

    with pytest.raises(type(error)) as raised:
        outcome(host, worker.call("raise_it", error))

    assert type(raised.value) is type(error) and raised.value.args == error.args
    assert outcome(host, worker.call("noted")) == [], "the worker goes on"


def test_what_a_method_raises_says_where_it_was_raised(host: Host) -> None:
    with pytest.raises(ValueError) as raised:
        outcome(host, start(host).call("raise_it", ValueError("a bad value")))

    assert "host_worker.py" in "".join(traceback.format_exception(raised.type, raised.value, raised.tb))


def test_an_error_that_cannot_be_sent_is_told_in_words(host: Host) -> None:
    with pytest.raises(Exception, match="shelf has 3"):
        outcome(host, start(host).call("raise_odd"))


def test_a_method_that_there_is_not_is_named(host: Host) -> None:
    with pytest.raises(AttributeError, match="fly"):
        outcome(host, start(host).call("fly"))


# --- control calls


def test_a_control_call_is_answered_during_a_call(host: Host) -> None:
    worker, call = held(host)

    assert outcome(host, worker.control("note", "meanwhile")) == 1
    assert host.wait([call], timeout_s=0.0) == []
    outcome(host, worker.control("free"))
    assert outcome(host, call) is True


def test_control_calls_are_done_in_order(host: Host) -> None:
    worker, _ = held(host)
    for number in range(20):
        worker.control("note", number)

    assert outcome(host, worker.control("noted")) == list(range(20))
    worker.control("free")


def test_control_calls_wait_until_the_worker_is_made(host: Host) -> None:
    worker = start(host, make=partial(_later, MOMENT_S))

    assert outcome(host, worker.control("noted")) == []


def _later(seconds: float) -> Recorder:
    threading.Event().wait(seconds)
    return Recorder()


# --- waiting


def test_waiting_returns_all_that_is_done_in_the_order_given(host: Host) -> None:
    workers = [start(host, f"worker{number}") for number in range(3)]
    calls = [worker.call("note", 1) for worker in workers]
    for call in calls:
        outcome(host, call)
    busy = workers[1].call("hold")

    asked = [calls[2], busy, calls[0], calls[1]]
    assert host.wait(asked, timeout_s=SOON_S) == [calls[2], calls[0], calls[1]]
    workers[1].control("free")


def test_waiting_ends_with_the_first_call_that_is_done(host: Host) -> None:
    _, never = held(host, "slow")
    worker, call = held(host, "quick")
    worker.control("free")

    assert host.wait([never, call], timeout_s=FAR_S) == [call]


def test_waiting_ends_after_its_time(host: Host) -> None:
    _, never = held(host)

    assert host.wait([never], timeout_s=MOMENT_S) == []
    assert host.wait([never], timeout_s=0.0) == []
    assert host.wait([], timeout_s=FAR_S) == []


def test_threads_can_wait_for_the_same_call(host: Host) -> None:
    worker, call = held(host)
    found: SimpleQueue[Any] = SimpleQueue()

    def look() -> None:
        found.put(outcome(host, call))

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    worker.control("free")

    assert [found.get(timeout=SOON_S) for _ in threads] == [True] * 3
    for thread in threads:
        thread.join(SOON_S)


def test_a_call_says_once_that_it_is_done(host: Host) -> None:
    worker, call = held(host)
    said: SimpleQueue[str] = SimpleQueue()
    call.on_done(lambda: said.put("before"))
    assert said.empty()
    worker.control("free")

    assert said.get(timeout=SOON_S) == "before"
    assert outcome(host, call) is True
    call.on_done(lambda: said.put("after"))
    assert said.get(timeout=SOON_S) == "after"
    assert said.empty()


def test_calls_of_another_host_cannot_be_waited_for(host: Host) -> None:
    class Foreign:
        pass

    with pytest.raises(CommError, match="another host"):
        host.wait([Foreign()], timeout_s=0.0)  # type: ignore[list-item]


# --- workers that end


def test_a_killed_workers_calls_are_lost_at_once(host: Host) -> None:
    worker, call = held(host)
    later = worker.call("noted")
    host.kill(worker)

    assert host.wait([call, later], timeout_s=FAR_S) == [call, later]
    for lost in (call, later, worker.call("noted"), worker.control("noted"), worker.ended):
        with pytest.raises(WorkerLostError, match=r"worker.*killed"):
            outcome(host, lost)
    host.kill(worker)


def test_whoever_waits_already_is_woken_by_a_kill(host: Host) -> None:
    worker, call = held(host)
    killing = threading.Timer(MOMENT_S, lambda: host.kill(worker))
    killing.start()

    assert host.wait([call], timeout_s=FAR_S) == [call]
    killing.join(SOON_S)


def test_that_a_worker_has_ended_is_said_of_an_idle_one_too(host: Host) -> None:
    worker = start(host)
    outcome(host, worker.call("noted"))
    assert host.wait([worker.ended], timeout_s=0.0) == []
    said: SimpleQueue[str] = SimpleQueue()
    worker.ended.on_done(lambda: said.put("ended"))
    host.kill(worker)

    assert host.wait([worker.ended], timeout_s=FAR_S) == [worker.ended]
    assert said.get(timeout=SOON_S) == "ended"


def test_a_result_that_came_before_the_kill_is_not_lost(host: Host) -> None:
    worker = start(host)
    call = worker.call("note", 1)
    assert outcome(host, call) == 1
    host.kill(worker)

    assert call.result() == 1


def test_other_workers_go_on_when_one_is_killed(host: Host) -> None:
    one, other = start(host, "one"), start(host, "other")
    outcome(host, other.call("note", 1))
    host.kill(one)

    assert outcome(host, other.call("noted")) == [1]


def test_a_worker_can_be_killed_while_it_is_made(host: Host) -> None:
    worker = start(host, make=make_held)
    call = worker.call("noted")
    assert host.wait([call], timeout_s=MOMENT_S) == []
    host.kill(worker)

    for lost in (call, worker.control("noted"), worker.ended):
        with pytest.raises(WorkerLostError):
            outcome(host, lost)


def test_what_making_a_worker_raises_all_its_calls_raise(host: Host) -> None:
    worker = start(host, make=make_nothing)

    for call in (worker.call("noted"), worker.call("noted"), worker.control("noted")):
        with pytest.raises(KeyError, match="no such env"):
            outcome(host, call)
    with pytest.raises(WorkerLostError, match=r"worker.*could not be made.*no such env"):
        outcome(host, worker.ended)


# --- names, values for many, the end


def test_a_name_is_used_once(host: Host) -> None:
    worker = start(host)
    with pytest.raises(CommError, match="'worker'"):
        start(host)
    host.kill(worker)

    with pytest.raises(CommError, match="'worker'"):
        start(host)


def test_workers_run_on_this_machine(host: Host) -> None:
    worker = start(host)
    outcome(host, worker.call("noted"))

    assert host.where(worker) == ""


def test_a_value_is_shared_once_for_many_and_is_read_only(host: Host) -> None:
    array = np.ones(1000)
    shared = host.share(array)
    array[:] = 5.0
    workers = [start(host, f"worker{number}") for number in range(2)]

    calls = [worker.call("total", shared) for worker in workers] + [workers[0].control("total", array=shared)]
    assert [outcome(host, call) for call in calls] == [(1000.0, False)] * 3


def test_a_closed_host_has_ended_all_workers_and_starts_none(host: Host) -> None:
    worker = start(host)
    call = worker.call("noted")
    outcome(host, call)
    host.close()
    host.close()

    with pytest.raises(WorkerLostError):
        outcome(host, worker.ended)
    with pytest.raises(WorkerLostError):
        outcome(host, worker.call("noted"))
    with pytest.raises(CommError, match="closed"):
        start(host, "another")
    assert call.result() == []


def test_a_call_that_returns_while_the_host_is_closed_has_an_outcome(host: Host) -> None:
    workers = [start(host, f"worker{number}") for number in range(3)]
    for worker in workers:
        outcome(host, worker.call("noted"))
    calls = [worker.call("ramp", 10_000) for worker in workers for _ in range(5)]
    host.close()

    assert host.wait(calls, timeout_s=FAR_S) == calls
    for call in calls:
        try:
            assert call.result().shape == (10_000,)
        except WorkerLostError:
            continue


def test_whoever_waits_is_woken_when_the_host_is_closed(host: Host) -> None:
    _, call = held(host)
    closing = threading.Timer(MOMENT_S, lambda: (release_all(), host.close()))
    closing.start()

    assert host.wait([call], timeout_s=FAR_S) == [call]
    closing.join(SOON_S)
