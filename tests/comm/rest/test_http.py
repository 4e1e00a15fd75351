"""The coordinator over HTTP: what it answers, what it refuses, and what a client makes of both."""

from __future__ import annotations

import json
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ding_like
from ding_like.comm.http_server import CoordinatorServer
from ding_like.comm.rest import client as rest_client
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.client import HttpCoordinator
from ding_like.comm.rest.messages import (
    STATUS,
    Id,
    RefusedError,
    Signer,
    Stamp,
    answer_signature,
    check_id,
    decode,
    draw_secret,
    encode,
    is_secret,
    own_key,
    steady_clock,
)
from ding_like.comm.rest.worker import WorkerAgent
from ding_like.errors import CommError, ConfigError
from tests.support import wait_until

KEYS = {"collector": b"c" * 32, "learner": b"l" * 32, "admin": b"a" * 32}
SECRET = "5" * 64


class Service:
    """Service that answers every message and records what was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.tasks: list[m.Task] = []
        self.fails = False
        self.secrets = {"collector-one": SECRET}
        self.last: dict[tuple[str, str], tuple[int, Any]] = {}

    def answer(self, name: str, worker_id: str, ids: tuple[str, ...], message: Any, stamp: Stamp | None) -> Any:
        assert stamp is not None
        number, known = self.last.get((worker_id, stamp.channel), (0, None))
        if number == stamp.number:
            return known
        reply = getattr(self, name)(worker_id, *ids, message)
        self.last[worker_id, stamp.channel] = (stamp.number, reply)
        return reply

    def secret_of(self, worker_id: str) -> str | None:
        return self.secrets.get(worker_id)

    def _note(self, name: str, *arguments: Any) -> None:
        if self.fails:
            raise ZeroDivisionError("a fault of ours")
        self.asked.append((name, *arguments))

    def hello(self) -> m.Hello:
        return m.Hello((m.PROTOCOL,), 1, 0.0, ding_like.__version__, "run")

    def register(self, message: m.Register) -> m.Registered:
        self._note("register", message.role)
        self.secrets[f"{message.role}-{message.incarnation}"] = message.secret
        return m.Registered(f"{message.role}-{message.incarnation}", 0.05)

    def heartbeat(self, worker_id: str, message: m.Heartbeat) -> m.HeartbeatReply:
        self._note("heartbeat", worker_id)
        return m.HeartbeatReply((), {"p": m.PolicyVersion(1, 7, "x", 1)})

    def leave(self, worker_id: str, message: m.Leave) -> m.Ok:
        self._note("leave", worker_id)
        return m.Ok()

    def claim(self, worker_id: str, message: m.Claim) -> m.ClaimReply:
        self._note("claim", worker_id)
        return m.ClaimReply(self.tasks.pop(0) if self.tasks else None)

    def finish_task(self, worker_id: str, task_id: str, message: m.FinishTask) -> m.EndReply:
        self._note("finish_task", task_id, message.result)
        return m.EndReply(not self.tasks)

    def fail_task(self, worker_id: str, task_id: str, message: m.FailTask) -> m.EndReply:
        self._note("fail_task", task_id, message.message)
        return m.EndReply(False)

    def status(self) -> dict[str, Any]:
        return {"run": 1}

    def __getattr__(self, name: str) -> Any:
        def ask(*arguments: Any) -> Any:
            self._note(name, *arguments[:-1])
            raise RefusedError("unknown", f"there is no such thing for {name}")

        return ask


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def server(service: Service) -> Iterator[CoordinatorServer]:
    made = CoordinatorServer(service, KEYS)
    made.start()
    yield made
    made.close()


_made: list[HttpCoordinator] = []


@pytest.fixture(autouse=True)
def close_clients() -> Iterator[None]:
    yield
    while _made:
        _made.pop().close()


def client(server: Any, role: str = "collector", key: bytes | None = None, **kwargs: Any) -> HttpCoordinator:
    url = server if isinstance(server, str) else server.url
    _made.append(HttpCoordinator(url, role=role, key=key or KEYS[role], **kwargs))
    return _made[-1]


def worker(server: Any, **kwargs: Any) -> HttpCoordinator:
    """Return a client that has registered as collector-one."""
    made = client(server, **kwargs)
    made.register(m.Register("collector", "here", 1, ding_like.__version__, "one"))
    return made


def signed(method: str, path: str, body: bytes, *, turn: str = "") -> dict[str, str]:
    """Return the headers of a request of collector-one."""
    signer = Signer("collector", KEYS["collector"], secret=SECRET, clock=time.time)
    signer.offset_s = 0.0
    headers, _ = signer.sign(method, path, body, turn=turn or f"{secrets.token_hex(4)}:1", worker="collector-one")
    return headers


def test_messages_go_there_and_back(server: CoordinatorServer, service: Service) -> None:
    asker = client(server)
    asker.hello()

    registered = asker.register(m.Register("collector", "here", 1, ding_like.__version__, "one"))
    reply = asker.heartbeat(registered.worker_id, m.Heartbeat("idle"))
    asker.leave(registered.worker_id, m.Leave("done"))

    assert reply.policies["p"].version == 7 and asker.status() == {"run": 1}
    assert [asked[0] for asked in service.asked] == ["register", "heartbeat", "leave"]


def test_a_refusal_arrives_as_one_with_its_code(server: CoordinatorServer) -> None:
    with pytest.raises(RefusedError, match="no such thing for task_info") as caught:
        worker(server).task_info("collector-one", "t", m.TaskInfo(1, {}))

    assert caught.value.code == "unknown" and caught.value.status == 404


def test_a_fault_of_ours_is_one_answer_and_the_server_lives(server: CoordinatorServer, service: Service) -> None:
    asker = worker(server)
    service.fails = True
    with pytest.raises(RefusedError, match="its log says how") as caught:
        asker.claim("collector-one", m.Claim())
    service.fails = False

    assert caught.value.status == 500
    assert asker.claim("collector-one", m.Claim()).task is None


def test_a_host_that_others_reach_needs_keys(service: Service) -> None:
    with pytest.raises(ConfigError, match="reached from other machines: give --key-file"):
        CoordinatorServer(service, None, host="0.0.0.0")


def test_a_port_in_use_is_one_clear_error(server: CoordinatorServer, service: Service) -> None:
    port = int(server.url.rpartition(":")[2])

    with pytest.raises(CommError, match=rf"cannot listen on 127\.0\.0\.1:{port}"):
        CoordinatorServer(service, KEYS, port=port)


def test_nobody_there_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setattr(rest_client, "_MIN_WAIT_S", 0.01)

    with pytest.raises(CommError, match=rf"the coordinator at {url} has not answered for 0\.1 s"):
        client(url, retry_s=0.1).hello()


def test_another_package_is_one_clear_error(
    server: CoordinatorServer, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "hello", lambda: m.Hello((m.PROTOCOL,), 1, 0.0, "9.9", "run"), raising=False)
    other = CoordinatorServer(service, KEYS)
    other.start()

    with pytest.raises(CommError, match=r"has ding_like 9\.9, this worker .*install the same version"):
        client(other).hello()
    other.close()


def test_an_empty_host_is_not_every_interface(service: Service) -> None:
    for host in ("", "\t"):
        with pytest.raises(ConfigError, match="host is empty.*every interface"):
            CoordinatorServer(service, KEYS, host=host)


def test_an_agent_does_tasks_until_the_run_is_over(server: CoordinatorServer, service: Service) -> None:
    service.tasks = [m.Task(f"t{number}", 1, "collect", "b", "p", {"x": number}) for number in range(3)]
    agent = WorkerAgent(client(server), "collector", incarnation="one")
    agent.register()

    agent.run(lambda task, handle: {"x": task.cfg["x"]})
    agent.close()

    finished = [asked[1:] for asked in service.asked if asked[0] == "finish_task"]
    assert finished == [(f"t{number}", {"x": number}) for number in range(3)]
    assert service.asked[-1] == ("leave", "collector-one")


def test_an_agent_tells_of_a_failure_and_raises_it(server: CoordinatorServer, service: Service) -> None:
    service.tasks = [m.Task("t", 1, "collect", "b", "p", {})]
    agent = WorkerAgent(client(server), "collector", incarnation="one")
    agent.register()

    def fail(task: m.Task, handle: Any) -> dict[str, Any]:
        raise ValueError("the env is broken")

    with pytest.raises(ValueError, match="the env is broken"):
        agent.run(fail)
    agent.close()

    assert ("fail_task", "t", "ValueError: the env is broken") in service.asked
    assert not [thread for thread in threading.enumerate() if thread.name == "heartbeat"]


def test_heartbeats_bring_news_to_a_task(server: CoordinatorServer, service: Service) -> None:
    service.tasks = [m.Task("t", 1, "collect", "b", "p", {})]
    agent = WorkerAgent(client(server), "collector", incarnation="one")
    agent.register()

    def wait_for_news(task: m.Task, handle: Any) -> dict[str, Any]:
        wait_until(lambda: handle.newest_policy is not None, "a heartbeat")
        return {"version": handle.newest_policy.version}

    agent.run(wait_for_news)
    agent.close()

    assert ("finish_task", "t", {"version": 7}) in service.asked


@dataclass(frozen=True)
class Inner:
    number: int
    share: float = 0.5


@dataclass(frozen=True)
class Outer:
    name: Id
    flag: bool
    inner: Inner
    many: tuple[Inner, ...] = ()
    table: dict[str, int] = field(default_factory=dict)
    free: dict[str, Any] = field(default_factory=dict)
    maybe: Inner | None = None


def body(**changes: Any) -> bytes:
    return json.dumps({"name": "a", "flag": True, "inner": {"number": 1}, **changes}).encode()


def test_a_message_comes_back_equal() -> None:
    sent = Outer("a", True, Inner(3, 0.25), (Inner(1), Inner(2)), {"x": 1}, {"deep": [1, "two", None, {"y": 0.5}]})

    assert decode(Outer, encode(sent)) == sent


def test_arrays_come_back_bit_by_bit() -> None:
    places, weights = np.array([-1, 0, 2**40], np.int64), np.array([-0.0, 1e-45, 3e38], np.float32)

    found = decode(m.Batches, encode(m.Batches(1, places, np.arange(3), weights)))

    for sent, back in ((places, found.places), (weights, found.weights)):
        assert back.dtype == sent.dtype and back.tobytes() == sent.tobytes() and back.flags.writeable


def test_defaults_fill_what_is_left_out() -> None:
    assert decode(Outer, body()) == Outer("a", True, Inner(1))


def test_what_is_no_message_is_refused() -> None:
    cases = [
        (b"", "no JSON"),
        (b"[]", "expected dict"),
        (b"\xff\xfe", "no JSON"),
        (b"\xef\xbb\xbf{}", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b'{"name":' + b"9" * 1_000_000 + b"}", "no JSON"),
        (b'{"name":"a","name":"b"}', "a key comes twice"),
        (body(extra=1), "unknown extra"),
        (b'{"name":"a"}', "missing flag, inner"),
        (body(flag=1), "expected bool"),
        (body(inner={"number": True}), "expected int"),
        (body(inner={"number": 1.5}), "expected int"),
        (body(inner={"number": 10**30}), "too large"),
        (body(inner={"number": 1, "share": "x"}), "expected float"),
        (body(inner={"number": 1, "share": float("nan")}), "NaN is no JSON"),
        (body(inner={"number": 1, "share": 1}).replace(b'"share": 1', b'"share": 1e999'), "not finite"),
        (body(inner=[1]), "expected dict"),
        (body(many={"number": 1}), "expected list"),
        (body(many=[{"number": 1}] * 5000), "5000 items"),
        (body(free={"x": "y" * 100_000}), "100000 characters"),
        (body(free={"x": "\ud800"}), "not a valid text"),
        (body(free=json.loads('{"x":' * 40 + "1" + "}" * 40)), "nested deeper"),
        (body(name="../../etc/passwd"), "expected letters, digits"),
    ]
    for sent, said in cases:
        with pytest.raises(RefusedError, match=said) as caught:
            decode(Outer, sent)
        assert caught.value.status in (400, 413) and len(caught.value.message) < 400, said


def test_names_that_could_be_more_than_names_are_refused() -> None:
    for name in ["", ".", "..", "/abs", "a/b", "a\\b", "%2e", "~", "a b", "é", "a\n", "-rf", "x" * 129, "a\0"]:
        with pytest.raises(RefusedError, match="name is"):
            check_id(name, "name")


def test_arrays_that_are_none_are_refused() -> None:
    for text in ["?", "AAA", "AAAA", "é", "AAAAAAAAAAA=AAAA"]:
        sent = json.dumps({"num_batches": 1, "places": text, "unique_ids": "", "weights": None}).encode()
        with pytest.raises(RefusedError, match="places is not an array"):
            decode(m.Batches, sent)


def test_arrays_with_numbers_that_are_not_finite_are_refused() -> None:
    sent = encode(m.Batches(1, np.arange(1), np.arange(1), np.array([np.inf], np.float32)))

    with pytest.raises(RefusedError, match="not finite"):
        decode(m.Batches, sent)


def test_numbers_that_are_not_finite_are_not_sent() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        encode(Inner(1, float("nan")))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(sent: bytes) -> None:
    try:
        decode(m.Heartbeat, sent)
    except RefusedError as error:
        assert error.status == STATUS[error.code]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.fixed_dictionaries({"state": json_values}, optional={"task_id": json_values, "stats": json_values}))
def test_any_json_is_a_message_or_refused(sent: dict[str, Any]) -> None:
    try:
        found = decode(m.Heartbeat, json.dumps(sent).encode())
    except RefusedError:
        return
    assert decode(m.Heartbeat, encode(found)) == found


KEY, SECRET, WORKER = b"c" * 32, "5" * 64, "collector-1"


def test_secrets_are_long_and_different() -> None:
    assert is_secret(draw_secret()) and draw_secret() != draw_secret()
    assert not any(is_secret(text) for text in ("", "0" * 31, "0" * 129, "G" * 64, "0" * 63 + "\n"))


def test_an_answer_is_signed_for_one_worker_request_status_and_body() -> None:
    own = own_key(KEY, WORKER, SECRET)
    signature = answer_signature(own, WORKER, "asked", 200, b"{}")
    signer = Signer("collector", KEY, secret=SECRET)

    assert signer.is_answer(signature, "asked", 200, b"{}", worker=WORKER)
    for asked, status, body, worker in (
        ("other", 200, b"{}", WORKER),
        ("asked", 404, b"{}", WORKER),
        ("asked", 200, b"{ }", WORKER),
        ("asked", 200, b"{}", "collector-2"),
        ("asked", 200, b"{}", ""),
    ):
        assert not signer.is_answer(signature, asked, status, body, worker=worker)
    by_role = answer_signature(KEY, WORKER, "asked", 404, b"{}")
    assert not signer.is_answer(by_role, "asked", 404, b"{}", worker=WORKER)
    assert signer.is_answer(by_role, "asked", 404, b"{}", worker=WORKER, by_role=True)


def test_a_steady_clock_is_moved_by_no_change_of_the_walls() -> None:
    wall, monotonic = [5000.0], [10.0]
    clock = steady_clock(lambda: wall[0], lambda: monotonic[0])

    wall[0] += 600.0
    monotonic[0] += 1.5
    assert clock() == 5001.5
    wall[0] -= 3600.0
    assert clock() == 5001.5
