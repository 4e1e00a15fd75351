"""The coordinator over HTTP: what it answers, what it refuses, and what a client makes of both."""

from __future__ import annotations

import gzip
import http.client
import http.server
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ding_like
from ding_like.comm.http_server import CoordinatorServer
from ding_like.comm.rest import client as rest_client
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.client import HttpCoordinator
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

    def answer(self, name: str, worker_id: str, ids: tuple[str, ...], message: Any, stamp: m.Stamp | None) -> Any:
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
            raise m.RefusedError("unknown", f"there is no such thing for {name}")

        return ask


FORWARDED = ("Authorization", "Content-Type", "X-DL-")


class Reply(NamedTuple):
    status: int
    body: bytes
    headers: dict[str, str]


Answer = Callable[[str, str, bytes, dict[str, str]], Reply]  # of method, path, body and headers


class Between:
    """Server at the address of the coordinator that answers as the test says; `heads` are the requests."""

    def __init__(self, answer: Answer) -> None:
        heads: list[dict[str, str]] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                heads.append({"path": self.path, **dict(self.headers)})
                reply = answer(self.command, self.path, body, dict(self.headers))
                self.send_response(reply.status)
                for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    self.wfile.write(reply.body)
                except ConnectionError:  # the worker has heard enough
                    self.close_connection = True

            do_GET = do_POST = do_PUT = do_DELETE = do_any  # noqa: N815

            def log_message(self, *_: Any) -> None: ...

        self.heads = heads
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5.0)


class Parts:
    """Servers, clients and relays between them; `close` closes all."""

    def __init__(self) -> None:
        self.service = Service()
        self._made: list[Any] = []

    def server(self, *, keys: Any = KEYS, clock: m.Clock | None = None) -> CoordinatorServer:
        server = CoordinatorServer(self.service, keys, clock=clock)  # type: ignore[arg-type]
        server.start()
        self._made.append(server)
        return server

    def between(self, answer: Answer) -> Between:
        self._made.append(Between(answer))
        return self._made[-1]  # type: ignore[no-any-return]

    def client(
        self, url: str = "", *, key: bytes | None = KEYS["collector"], retry_s: float = 0.2, **how: Any
    ) -> HttpCoordinator:
        client = HttpCoordinator(url or self.server().url, role="collector", key=key, retry_s=retry_s, **how)
        self._made.append(client)
        return client

    def close(self) -> None:
        for each in reversed(self._made):
            each.close()


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Parts]:
    monkeypatch.setattr(rest_client, "_MIN_WAIT_S", 0.01)
    made = Parts()
    yield made
    made.close()


def through(server: CoordinatorServer, change: Callable[[str, Reply], Reply] | None = None) -> Answer:
    """Return what asks the coordinator itself, and changes what it says."""
    host, _, port = server.url.removeprefix("http://").partition(":")

    def answer(method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        connection = http.client.HTTPConnection(host, int(port), timeout=5.0)
        try:
            connection.request(method, path, body, {k: v for k, v in headers.items() if k.startswith(FORWARDED)})
            response = connection.getresponse()
            signed = {m.ANSWER_HEADER: response.headers.get(m.ANSWER_HEADER, "")}
            reply = Reply(response.status, response.read(), {"Content-Type": "application/json", **signed})
        finally:
            connection.close()
        return reply if change is None else change(path, reply)

    return answer


def register(client: HttpCoordinator) -> str:
    return client.register(m.Register("collector", "here", 1, ding_like.__version__, "one")).worker_id


def refuse(status: int, code: str, message: str = "no") -> Reply:
    return Reply(status, m.encode(m.ErrorReply(m.ErrorBody(code, message, False))), {})


def hello(**changes: Any) -> Reply:
    own = dict(protocols=(m.PROTOCOL,), epoch=1, server_time=5e9, package=ding_like.__version__, run_id="false")
    return Reply(200, m.encode(m.Hello(**{**own, **changes})), {})


def test_messages_go_there_and_back(parts: Parts) -> None:
    asker = parts.client()
    asker.hello()

    registered = asker.register(m.Register("collector", "here", 1, ding_like.__version__, "one"))
    reply = asker.heartbeat(registered.worker_id, m.Heartbeat("idle"))
    asker.leave(registered.worker_id, m.Leave("done"))

    assert reply.policies["p"].version == 7 and asker.status() == {"run": 1}
    assert [asked[0] for asked in parts.service.asked] == ["register", "heartbeat", "leave"]


def test_a_refusal_arrives_as_one_with_its_code(parts: Parts) -> None:
    client = parts.client()
    with pytest.raises(m.RefusedError, match="no such thing for task_info") as caught:
        client.task_info(register(client), "t", m.TaskInfo(1, {}))

    assert caught.value.code == "unknown" and caught.value.status == 404
    del parts.service.secrets["collector-one"]
    with pytest.raises(m.RefusedError, match="there is no worker collector-one; register first") as caught:
        client.heartbeat("collector-one", m.Heartbeat("idle"))
    assert caught.value.code == "unknown"


def test_a_fault_of_ours_is_one_answer_and_the_server_lives(parts: Parts) -> None:
    asker = parts.client()
    worker = register(asker)
    parts.service.fails = True
    with pytest.raises(m.RefusedError, match="its log says how") as caught:
        asker.claim(worker, m.Claim())
    parts.service.fails = False

    assert caught.value.status == 500
    assert asker.claim(worker, m.Claim()).task is None


def test_a_place_where_nothing_can_be_served_is_one_clear_error(parts: Parts) -> None:
    with pytest.raises(ConfigError, match="reached from other machines: give --key-file"):
        CoordinatorServer(parts.service, None, host="0.0.0.0")
    for host in ("", "\t"):
        with pytest.raises(ConfigError, match="host is empty.*every interface"):
            CoordinatorServer(parts.service, KEYS, host=host)
    port = int(parts.server().url.rpartition(":")[2])
    with pytest.raises(CommError, match=rf"cannot listen on 127\.0\.0\.1:{port}"):
        CoordinatorServer(parts.service, KEYS, port=port)


def test_nobody_there_is_one_clear_error(parts: Parts) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"

    with pytest.raises(CommError, match=rf"the coordinator at {url} has not answered for 0\.1 s"):
        parts.client(url, retry_s=0.1).hello()


def test_another_package_or_protocol_is_one_clear_error_at_once(parts: Parts) -> None:
    with pytest.raises(CommError, match=r"has ding_like 9\.9, this worker .*install the same version"):
        parts.client(parts.between(lambda *_: hello(package="9.9")).url, key=None, retry_s=60.0).hello()
    between = parts.between(lambda *_: refuse(426, "wrong_protocol", "this coordinator speaks protocol 1"))
    with pytest.raises(m.RefusedError, match="speaks protocol 1"):
        parts.client(between.url, retry_s=60.0).hello()


@pytest.fixture
def agent(parts: Parts) -> WorkerAgent:
    made = WorkerAgent(parts.client(), "collector", incarnation="one")
    made.register()
    return made


def test_an_agent_does_tasks_until_the_run_is_over(agent: WorkerAgent, parts: Parts) -> None:
    parts.service.tasks = [m.Task(f"t{number}", 1, "collect", "b", "p", {"x": number}) for number in range(3)]
    agent.run(lambda task, handle: {"x": task.cfg["x"]})
    agent.close()

    finished = [asked[1:] for asked in parts.service.asked if asked[0] == "finish_task"]
    assert finished == [(f"t{number}", {"x": number}) for number in range(3)]
    assert parts.service.asked[-1] == ("leave", "collector-one")


def test_an_agent_tells_of_a_failure_and_raises_it(agent: WorkerAgent, parts: Parts) -> None:
    parts.service.tasks = [m.Task("t", 1, "collect", "b", "p", {})]

    def fail(task: m.Task, handle: Any) -> dict[str, Any]:
        raise ValueError("the env is broken")

    with pytest.raises(ValueError, match="the env is broken"):
        agent.run(fail)
    agent.close()

    assert ("fail_task", "t", "ValueError: the env is broken") in parts.service.asked
    assert not [thread for thread in threading.enumerate() if thread.name == "heartbeat"]


def test_heartbeats_bring_news_to_a_task(agent: WorkerAgent, parts: Parts) -> None:
    parts.service.tasks = [m.Task("t", 1, "collect", "b", "p", {})]

    def wait_for_news(task: m.Task, handle: Any) -> dict[str, Any]:
        wait_until(lambda: handle.newest_policy is not None, "a heartbeat")
        return {"version": handle.newest_policy.version}

    agent.run(wait_for_news)
    agent.close()

    assert ("finish_task", "t", {"version": 7}) in parts.service.asked


@dataclass(frozen=True)
class Inner:
    number: int
    share: float = 0.5


@dataclass(frozen=True)
class Outer:
    name: m.Id
    flag: bool
    inner: Inner
    many: tuple[Inner, ...] = ()
    table: dict[str, int] = field(default_factory=dict)
    free: dict[str, Any] = field(default_factory=dict)
    maybe: Inner | None = None


def body(**changes: Any) -> bytes:
    return json.dumps({"name": "a", "flag": True, "inner": {"number": 1}, **changes}).encode()


def test_a_message_comes_back_equal_and_defaults_fill_what_is_left_out() -> None:
    sent = Outer("a", True, Inner(3, 0.25), (Inner(1), Inner(2)), {"x": 1}, {"deep": [1, "two", None, {"y": 0.5}]})

    assert m.decode(Outer, m.encode(sent)) == sent
    assert m.decode(Outer, body()) == Outer("a", True, Inner(1))
    with pytest.raises(ValueError, match="JSON compliant"):
        m.encode(Inner(1, float("nan")))


def test_arrays_come_back_bit_by_bit() -> None:
    places, weights = np.array([-1, 0, 2**40], np.int64), np.array([-0.0, 1e-45, 3e38], np.float32)

    found = m.decode(m.Batches, m.encode(m.Batches(1, places, np.arange(3), weights)))

    for sent, back in ((places, found.places), (weights, found.weights)):
        assert back.dtype == sent.dtype and back.tobytes() == sent.tobytes() and back.flags.writeable


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
        with pytest.raises(m.RefusedError, match=said) as caught:
            m.decode(Outer, sent)
        assert caught.value.status in (400, 413) and len(caught.value.message) < 400, said


def test_names_that_could_be_more_than_names_are_refused() -> None:
    for name in ["", ".", "..", "/abs", "a/b", "a\\b", "%2e", "~", "a b", "é", "a\n", "-rf", "x" * 129, "a\0"]:
        with pytest.raises(m.RefusedError, match="name is"):
            m.check_id(name, "name")


def test_arrays_that_are_none_are_refused() -> None:
    for text in ["?", "AAA", "AAAA", "é", "AAAAAAAAAAA=AAAA", 7]:
        sent = json.dumps({"num_batches": 1, "places": text, "unique_ids": "", "weights": None}).encode()
        with pytest.raises(m.RefusedError, match="places is not an array"):
            m.decode(m.Batches, sent)
    with pytest.raises(m.RefusedError, match="not finite"):
        m.decode(m.Batches, m.encode(m.Batches(1, np.arange(1), np.arange(1), np.array([np.inf], np.float32))))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(sent: bytes) -> None:
    try:
        m.decode(m.Heartbeat, sent)
    except m.RefusedError as error:
        assert error.status == m.STATUS[error.code]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.fixed_dictionaries({"state": json_values}, optional={"task_id": json_values, "stats": json_values}))
def test_any_json_is_a_message_or_refused(sent: dict[str, Any]) -> None:
    try:
        found = m.decode(m.Heartbeat, json.dumps(sent).encode())
    except m.RefusedError:
        return
    assert m.decode(m.Heartbeat, m.encode(found)) == found


KEY, WORKER = b"c" * 32, "collector-1"


def test_secrets_are_long_and_different() -> None:
    assert m.is_secret(m.draw_secret()) and m.draw_secret() != m.draw_secret()
    assert not any(m.is_secret(text) for text in ("", "0" * 31, "0" * 129, "G" * 64, "0" * 63 + "\n"))


def test_an_answer_is_signed_for_one_worker_request_status_and_body() -> None:
    own = m.own_key(KEY, WORKER, SECRET)
    signature = m.answer_signature(own, WORKER, "asked", 200, b"{}")
    signer = m.Signer("collector", KEY, secret=SECRET)

    assert signer.is_answer(signature, "asked", 200, b"{}", worker=WORKER)
    for asked, status, body, worker in (
        ("other", 200, b"{}", WORKER),
        ("asked", 404, b"{}", WORKER),
        ("asked", 200, b"{ }", WORKER),
        ("asked", 200, b"{}", "collector-2"),
        ("asked", 200, b"{}", ""),
    ):
        assert not signer.is_answer(signature, asked, status, body, worker=worker)
    by_role = m.answer_signature(KEY, WORKER, "asked", 404, b"{}")
    assert not signer.is_answer(by_role, "asked", 404, b"{}", worker=WORKER)
    assert signer.is_answer(by_role, "asked", 404, b"{}", worker=WORKER, by_role=True)


def test_a_steady_clock_is_moved_by_no_change_of_the_walls() -> None:
    wall, monotonic = [5000.0], [10.0]
    clock = m.steady_clock(lambda: wall[0], lambda: monotonic[0])

    wall[0] += 600.0
    monotonic[0] += 1.5
    assert clock() == 5001.5
    wall[0] -= 3600.0
    assert clock() == 5001.5


# --- answers


def test_a_false_coordinator_is_not_believed_and_gets_no_signature(parts: Parts) -> None:
    false = parts.between(lambda *_: hello())
    client = parts.client(false.url)

    with pytest.raises(CommError, match=r"has not shown for 0\.2 s that it holds the key of a collector.*--key-file"):
        client.hello()
    with pytest.raises(CommError, match="has not shown"):
        register(client)
    assert false.heads and {head["path"] for head in false.heads} == {"/v1/hello"}
    assert not any("X-DL-Worker" in head for head in false.heads)
    with pytest.raises(CommError, match="has not shown"):  # nor is one that asks for no key
        parts.client(parts.server(keys=None).url).hello()


def test_a_wrong_key_is_one_clear_error_at_once(parts: Parts) -> None:
    client = parts.client(key=b"x" * 32, retry_s=60.0)

    with pytest.raises(m.RefusedError, match="not the key of a collector") as caught:
        client.hello()
    assert caught.value.code == "bad_key"
    with pytest.raises(m.RefusedError, match="not the key of a collector"):
        register(client)


def test_an_answer_that_was_changed_on_its_way_is_as_none(parts: Parts) -> None:
    changes: list[Callable[[Reply], Reply]] = [
        lambda reply: reply._replace(headers={}),
        lambda reply: reply._replace(headers={m.ANSWER_HEADER: "0" * 64}),
        lambda reply: reply._replace(body=reply.body.replace(b"7", b"9")),
        lambda reply: reply._replace(body=reply.body + b" "),
        lambda reply: reply._replace(status=503),
        lambda reply: refuse(404, "unknown"),
        lambda reply: refuse(409, "stale_attempt"),
        lambda reply: refuse(401, "bad_key"),
        lambda reply: refuse(410, "finished"),
        lambda reply: Reply(302, b"", {"Location": "http://127.0.0.1:9/"}),
        lambda reply: reply._replace(
            body=gzip.compress(reply.body), headers={**reply.headers, "Content-Encoding": "gzip"}
        ),
    ]
    lies: list[Callable[[Reply], Reply]] = []

    def lie(path: str, reply: Reply) -> Reply:
        return lies.pop()(reply) if "heartbeat" in path and lies else reply

    client = parts.client(parts.between(through(parts.server(), lie)).url, retry_s=60.0)
    worker = register(client)

    for number, change in enumerate(changes):
        lies += [change] * 2
        assert client.heartbeat(worker, m.Heartbeat("idle")).policies["p"].version == 7
        asked = [name for name, *_ in parts.service.asked]
        assert not lies and asked.count("heartbeat") == number + 1, f"change {number}: it is acted on once"


def test_a_worker_takes_no_name_but_its_own(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    named = m.Registered("collector-two", 3.0)
    monkeypatch.setattr(parts.service, "register", lambda message: named, raising=False)

    with pytest.raises(CommError, match="another's name"):
        register(parts.client())


def test_an_answer_is_not_unpacked_and_not_read_beyond_a_limit(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_client, "_MAX_ANSWER", 10_000)
    packed = gzip.compress(b"0" * 50_000_000)
    for reply in (Reply(200, packed, {"Content-Encoding": "gzip"}), Reply(200, b"0" * 20_000, {})):
        between = parts.between(lambda *_, reply=reply: reply)  # type: ignore[misc]
        with pytest.raises(CommError, match="no JSON|longer than 10000 bytes"):
            parts.client(between.url, key=None).hello()
        assert all(head["Accept-Encoding"] == "identity" for head in between.heads)


# --- turns


def test_each_thread_numbers_its_messages_on_a_channel_of_its_own(parts: Parts) -> None:
    between = parts.between(through(parts.server()))
    client = parts.client(between.url)
    worker = register(client)

    def beat() -> None:
        for _ in range(3):
            client.heartbeat(worker, m.Heartbeat("idle"))

    threads = [threading.Thread(target=beat) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5.0)
    beat()

    turns = [head["X-DL-Seq"].split(":") for head in between.heads if "heartbeat" in head["path"]]
    channels = {channel: [number for each, number in turns if each == channel] for channel, _ in turns}
    assert list(channels.values()) == [["1", "2", "3"]] * 3


def test_a_lost_answer_is_asked_for_again_with_the_same_number(parts: Parts) -> None:
    lost = [True]

    def lose(path: str, reply: Reply) -> Reply:
        if "claim" in path and lost[0]:
            lost[0] = False
            return Reply(503, b"", {})
        return reply

    parts.service.tasks = [m.Task("t", 1, "collect", "b", "p", {})]
    between = parts.between(through(parts.server(), lose))
    client = parts.client(between.url, retry_s=10.0)
    worker = register(client)

    task = client.claim(worker, m.Claim()).task

    assert task is not None and task.task_id == "t" and parts.service.asked[-1] == ("claim", worker)
    turns = [head["X-DL-Seq"] for head in between.heads if "claim" in head["path"]]
    assert len(turns) == 2 and len(set(turns)) == 1


# --- clocks


@pytest.mark.parametrize("side", ["worker", "coordinator"])
def test_a_jump_of_the_walls_clock_ends_nobody(parts: Parts, monkeypatch: pytest.MonkeyPatch, side: str) -> None:
    """The worker is this thread, the coordinator all others."""
    real, here, jumped = time.time, threading.current_thread(), [0.0]
    monkeypatch.setattr(
        time, "time", lambda: real() + jumped[0] * ((threading.current_thread() is here) == (side == "worker"))
    )
    client = parts.client()
    client.hello()
    worker = register(client)

    for jumped[0] in (600.0, -600.0, 86_400.0):
        assert client.heartbeat(worker, m.Heartbeat("idle")).policies["p"].version == 7
        assert client.status() == {"run": 1}


@pytest.mark.parametrize(("side", "jump_s"), [("worker", 600.0), ("coordinator", -600.0)])
def test_a_clock_that_jumps_all_the_same_is_measured_again(parts: Parts, side: str, jump_s: float) -> None:
    """As after a sleep of the machine, or a coordinator that starts again with another time."""
    jumped = {"worker": 0.0, "coordinator": 0.0}
    wall = m.steady_clock()
    server = parts.server(clock=lambda: wall() + jumped["coordinator"])
    between = parts.between(through(server))
    client = parts.client(between.url, clock=lambda: time.monotonic() + jumped["worker"])
    worker = register(client)
    client.heartbeat(worker, m.Heartbeat("idle"))
    asked = len(between.heads)

    jumped[side] = jump_s
    parts.service.tasks = [m.Task("t", 1, "collect", "b", "p", {})]
    task = client.claim(worker, m.Claim()).task

    assert task is not None and not parts.service.tasks
    paths = [head["path"] for head in between.heads[asked:]]
    assert paths == ["/v1/tasks/claim", "/v1/hello", "/v1/tasks/claim"]
    turns = {head["X-DL-Seq"] for head in between.heads[asked:] if head["path"] != "/v1/hello"}
    assert len(turns) == 1, "the request is the same, signed anew"


def test_a_hello_cannot_be_kept_and_said_later(parts: Parts) -> None:
    """Its signature covers the client's nonce: a listener cannot set a client's clock with an old reply."""
    kept: list[Reply] = []

    def keep(path: str, reply: Reply) -> Reply:
        kept.append(reply)
        return kept[0]

    url = parts.between(through(parts.server(), keep)).url
    parts.client(url).hello()

    with pytest.raises(CommError, match="has not shown"):
        parts.client(url).hello()


def test_a_worker_of_which_the_clock_is_refused_for_good_gives_up_with_a_reason(parts: Parts) -> None:
    times = iter(range(0, 10**9, 1000))
    client = parts.client(parts.server(clock=lambda: float(next(times))).url)

    with pytest.raises(CommError, match=r"has not answered for 0\.2 s: the request was signed \d+ s ago"):
        client.status()
