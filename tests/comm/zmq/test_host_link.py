"""A machine that joins a run has a number of its own, and hears where everything is as it reaches the driver."""

from __future__ import annotations

import secrets
import threading
import time
from contextlib import ExitStack, closing
from typing import Any

import pytest

from ding_like.comm.zmq import rows as zmq_rows
from ding_like.comm.zmq.rows import RowServer, join_as_host
from ding_like.comm.zmq.sockets import reached_by, tcp_endpoint
from ding_like.errors import CommError


@pytest.fixture
def serve(stack: ExitStack) -> Any:
    """Return what starts the driver's end."""

    def make(welcome: Any = None) -> RowServer:  # Any: what a RowServer takes
        return stack.enter_context(closing(RowServer(tcp_endpoint("127.0.0.1"), welcome=welcome).start()))

    return make


def test_machines_have_different_numbers(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([6, 6, 6, 7])
    monkeypatch.setattr(secrets, "randbelow", lambda _: next(drawn))
    rows = serve()
    first = join_as_host(rows.endpoint, keys=None, patience_s=60.0)
    second = join_as_host(rows.endpoint, keys=None, patience_s=60.0)
    assert (first.number, second.number) == (7, 8)
    assert [state.role for state in rows.sources().values()] == ["host", "host"]
    first.close()
    second.close()


def test_a_run_with_no_number_left_refuses_with_the_reason(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "randbelow", lambda _: 6)
    rows = serve()
    first = join_as_host(rows.endpoint, keys=None, patience_s=60.0)
    with pytest.raises(CommError, match="host7 .* cannot join: host7 has joined already"):
        join_as_host(rows.endpoint, keys=None, patience_s=60.0)
    first.close()


def test_the_number_of_a_machine_that_is_gone_is_given_again(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "randbelow", lambda _: 6)
    monkeypatch.setattr(zmq_rows, "_HOST_S", 0.0)
    rows = serve()
    first = join_as_host(rows.endpoint, keys=None, patience_s=60.0)
    first.close()
    later_s = time.time() + 10.0
    monkeypatch.setattr(time, "time", lambda: later_s)
    second = join_as_host(rows.endpoint, keys=None, patience_s=60.0)
    assert second.number == first.number and second.run_id > first.run_id
    second.close()


def test_endpoints_of_every_address_are_those_of_the_driver(serve: Any) -> None:
    rows = serve({"clients": "tcp://0.0.0.0:17"})
    link = join_as_host(rows.endpoint, keys=None, patience_s=60.0)
    assert link.welcome == {"clients": "tcp://127.0.0.1:17"}
    link.close()


def test_a_link_ends_its_wait_at_the_end_of_the_run_and_at_a_call_to_wake(serve: Any) -> None:
    rows = serve()
    link = join_as_host(rows.endpoint, keys=None, patience_s=60.0)
    called = threading.Event()
    timer = threading.Timer(0.05, lambda: (called.set(), link.wake()))
    timer.start()
    assert link.wait_until(called.is_set, timeout_s=60.0)
    assert not link.wait_until(lambda: link.is_stopped, timeout_s=0.05)
    rows.stop_all()
    assert link.wait_until(lambda: link.is_stopped, timeout_s=60.0)
    timer.join()
    link.close()
    link.close()


def test_an_endpoint_of_every_address_is_reached_by_the_one_that_is_known() -> None:
    for endpoint, other, found in (
        ("tcp://0.0.0.0:1", "tcp://10.0.0.1:2", "tcp://10.0.0.1:1"),
        ("tcp://*:1", "tcp://host:2", "tcp://host:1"),
        ("tcp://[::]:1", "tcp://[fe80::1]:2", "tcp://[fe80::1]:1"),
        ("tcp://10.0.0.2:1", "tcp://10.0.0.1:2", "tcp://10.0.0.2:1"),
        ("ipc:///x/y", "tcp://10.0.0.1:2", "ipc:///x/y"),
    ):
        assert reached_by(endpoint, other) == found
