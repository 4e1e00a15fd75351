"""Slow and greedy connections take room from themselves, and honest workers get through."""

from __future__ import annotations

import errno
import logging
import resource
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

import ding_like
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.http_client import HttpCoordinator
from ding_like.comm.rest.http_limits import LimitedServer, Limits
from ding_like.comm.rest.http_server import CoordinatorServer
from tests.comm.rest.test_http import KEYS, Service, signed

QUICK = Limits(connections=24, strangers=8, head_s=0.3, body_s=0.3, idle_s=0.3, answer_s=0.3, look_s=0.05)
PATIENT = QUICK._replace(head_s=30.0, body_s=30.0, idle_s=30.0)
HEAD = b"POST /v1/tasks/claim HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "


class Net:
    """Server with few connections, and those that were opened to it."""

    def __init__(self, limits: Limits) -> None:
        self.server = CoordinatorServer(Service(), KEYS, limits=limits)  # type: ignore[arg-type]
        self.server.start()
        self.port = int(self.server.url.rpartition(":")[2])
        self._opened: list[Any] = []

    def connect(self, sent: bytes = b"", *, source: str = "127.0.0.1") -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60.0, source_address=(source, 0))
        self._opened.append(connection)
        connection.sendall(sent)
        return connection

    def worker(self, name: str) -> HttpCoordinator:
        made = HttpCoordinator(self.server.url, role="collector", key=KEYS["collector"], incarnation=name, retry_s=60.0)
        self._opened.append(made)
        made.register(m.Register("collector", "here", 1, ding_like.__version__, name))
        return made

    def open_connections(self) -> int:
        return len(self.server._server.active_channels)

    def close(self) -> None:
        for each in self._opened:
            each.close()
        self.server.close()


@pytest.fixture
def net(request: pytest.FixtureRequest) -> Iterator[Net]:
    made = Net(getattr(request, "param", PATIENT))
    yield made
    made.close()


def is_closed(connection: socket.socket, within_s: float = 60.0) -> bool:
    """Tell whether the other side closes a connection, after whatever it says."""
    connection.settimeout(within_s)
    try:
        while connection.recv(4096):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


def drip(connection: socket.socket, *, for_s: float, byte: bytes = b"x") -> bool:
    """Send a byte now and then, so that the connection is never silent; tell whether it was closed in that time."""
    connection.settimeout(0.02)
    until_s = time.monotonic() + for_s
    while time.monotonic() < until_s:
        try:
            connection.sendall(byte)
            if connection.recv(4096) == b"":
                return True
        except TimeoutError:
            continue
        except ConnectionError:
            return True
    return False


@pytest.mark.parametrize("net", [QUICK._replace(idle_s=30.0)], indirect=True)
def test_a_head_has_a_deadline_however_many_bytes_come(net: Net) -> None:
    for sent in (b"", HEAD):
        assert drip(net.connect(sent), for_s=60.0), sent


@pytest.mark.parametrize("net", [QUICK._replace(idle_s=30.0)], indirect=True)
def test_a_body_has_a_deadline_however_many_bytes_come(net: Net) -> None:
    body = b"x" * 10_000
    lines = [f"{name}: {value}" for name, value in signed("POST", "/v1/tasks/claim", body).items()]
    head = "\r\n".join(["POST /v1/tasks/claim HTTP/1.1", "Host: 127.0.0.1", "Content-Length: 10000", *lines, "", ""])

    assert drip(net.connect(head.encode()), for_s=60.0)


@pytest.mark.parametrize("net", [QUICK._replace(head_s=30.0)], indirect=True)
def test_a_connection_on_which_nothing_more_comes_is_closed(net: Net) -> None:
    connection = net.connect(b"GET /v1/healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert b"200" in connection.recv(4096)

    assert is_closed(connection)


@pytest.mark.parametrize("net", [QUICK._replace(head_s=30.0, idle_s=30.0)], indirect=True)
def test_who_does_not_take_his_answers_is_left(net: Net) -> None:
    connection = net.connect()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(0.5)
    asked = b"GET /v1/hello HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 200
    with pytest.raises((TimeoutError, ConnectionError)):  # at some time nothing more is taken in, and then it is closed
        while True:
            connection.sendall(asked)

    assert is_closed(connection, within_s=60.0)


def test_workers_get_through_while_slow_connections_hold_all_there_are(net: Net) -> None:
    workers = [net.worker("before")]
    for _ in range(80):  # the limit is 24
        net.connect(HEAD)
    workers += [net.worker(f"w{number}") for number in range(6)]

    for number, worker in enumerate(workers):
        name = "before" if number == 0 else f"w{number - 1}"
        assert worker.heartbeat(f"collector-{name}", m.Heartbeat("idle")).env_step == 7
    assert net.open_connections() <= PATIENT.connections


def test_the_address_with_most_connections_gives_them_up(net: Net) -> None:
    quiet = net.connect(HEAD, source="127.0.0.2")
    greedy = [net.connect(HEAD, source="127.0.0.3") for _ in range(40)]

    assert is_closed(greedy[0]) and not is_closed(quiet, within_s=0.2)


def test_who_holds_a_key_does_not_hold_all_connections(net: Net) -> None:
    greedy = []
    for _ in range(40):
        lines = [f"{name}: {value}" for name, value in signed("GET", "/v1/status", b"").items()]
        head = ["GET /v1/status HTTP/1.1", "Host: 127.0.0.1", f"X-DL-Protocol: {m.PROTOCOL}", *lines, "", ""]
        greedy.append(net.connect("\r\n".join(head).encode()))
        assert b" 200 " in greedy[-1].recv(4096)

    net.worker("honest")
    assert is_closed(greedy[0]) and net.open_connections() <= PATIENT.connections


def test_a_connection_for_which_there_is_no_descriptor_waits_without_a_traceback(
    net: Net, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fails = [3]
    accept = LimitedServer.accept

    def fail(self: LimitedServer) -> Any:
        if fails[0]:
            fails[0] -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(self)

    monkeypatch.setattr(LimitedServer, "accept", fail)
    with caplog.at_level(logging.INFO):
        net.worker("one")

    assert fails == [0] and not [record for record in caplog.records if record.exc_info]
    assert [record.message for record in caplog.records if "cannot be taken" in record.message] == [
        "a connection cannot be taken: Too many open files"
    ]


def test_there_are_fewer_connections_where_there_are_fewer_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for soft in (64, 1024, 4096, resource.RLIM_INFINITY):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        limits = Limits.of_this_process()
        found[soft] = (limits.connections, limits.strangers)

    assert found == {64: (32, 8), 1024: (768, 192), 4096: (2000, 500), resource.RLIM_INFINITY: (2000, 500)}
