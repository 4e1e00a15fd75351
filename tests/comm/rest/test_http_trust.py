"""What a worker believes: only what its coordinator signed, whatever stands between them and whatever clocks do."""

from __future__ import annotations

import gzip
import http.client
import http.server
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import ding_like
from ding_like.comm.http_server import CoordinatorServer
from ding_like.comm.rest import client as rest_client
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.client import HttpCoordinator
from ding_like.comm.rest.messages import ANSWER_HEADER, Clock, RefusedError, encode, steady_clock
from ding_like.errors import CommError
from tests.comm.rest.test_http import KEYS, Service

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

    def server(self, *, keys: Any = KEYS, clock: Clock | None = None) -> CoordinatorServer:
        server = CoordinatorServer(self.service, keys, clock=clock)  # type: ignore[arg-type]
        server.start()
        self._made.append(server)
        return server

    def between(self, answer: Answer) -> Between:
        self._made.append(Between(answer))
        return self._made[-1]  # type: ignore[no-any-return]

    def client(
        self, url: str, *, key: bytes | None = KEYS["collector"], retry_s: float = 0.2, **how: Any
    ) -> HttpCoordinator:
        client = HttpCoordinator(url, role="collector", key=key, retry_s=retry_s, **how)
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
            signed = {ANSWER_HEADER: response.headers.get(ANSWER_HEADER, "")}
            reply = Reply(response.status, response.read(), {"Content-Type": "application/json", **signed})
        finally:
            connection.close()
        return reply if change is None else change(path, reply)

    return answer


def register(client: HttpCoordinator) -> str:
    return client.register(m.Register("collector", "here", 1, ding_like.__version__, "one")).worker_id


def refuse(status: int, code: str, message: str = "no") -> Reply:
    return Reply(status, encode(m.ErrorReply(m.ErrorBody(code, message, False))), {})


def hello(**changes: Any) -> Reply:
    own = dict(protocols=(m.PROTOCOL,), epoch=1, server_time=5e9, package=ding_like.__version__, run_id="false")
    return Reply(200, encode(m.Hello(**{**own, **changes})), {})


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


def test_a_coordinator_that_asks_for_no_key_is_not_believed_by_who_has_one(parts: Parts) -> None:
    with pytest.raises(CommError, match="has not shown"):
        parts.client(parts.server(keys=None).url).hello()


def test_a_wrong_key_is_one_clear_error_at_once(parts: Parts) -> None:
    client = parts.client(parts.server().url, key=b"x" * 32, retry_s=60.0)

    with pytest.raises(RefusedError, match="not the key of a collector") as caught:
        client.hello()
    assert caught.value.code == "bad_key"
    with pytest.raises(RefusedError, match="not the key of a collector"):
        register(client)


def test_an_answer_that_was_changed_on_its_way_is_as_none(parts: Parts) -> None:
    changes: list[Callable[[Reply], Reply]] = [
        lambda reply: reply._replace(headers={}),
        lambda reply: reply._replace(headers={ANSWER_HEADER: "0" * 64}),
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


def test_refusals_arrive_signed(parts: Parts) -> None:
    client = parts.client(parts.server().url)
    worker = register(client)
    del parts.service.secrets[worker]

    with pytest.raises(RefusedError) as caught:
        client.heartbeat(worker, m.Heartbeat("idle"))
    assert caught.value.code == "unknown"


def test_another_protocol_is_one_clear_error_at_once(parts: Parts) -> None:
    between = parts.between(lambda *_: refuse(426, "wrong_protocol", "this coordinator speaks protocol 1"))

    with pytest.raises(RefusedError, match="speaks protocol 1"):
        parts.client(between.url, retry_s=60.0).hello()


def test_a_worker_takes_no_name_but_its_own(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    named = m.Registered("collector-two", 3.0)
    monkeypatch.setattr(parts.service, "register", lambda message: named, raising=False)

    with pytest.raises(CommError, match="another's name"):
        register(parts.client(parts.server().url))


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
    client = parts.client(parts.server().url)
    client.hello()
    worker = register(client)

    for jumped[0] in (600.0, -600.0, 86_400.0):
        assert client.heartbeat(worker, m.Heartbeat("idle")).policies["p"].version == 7
        assert client.status() == {"run": 1}


@pytest.mark.parametrize(("side", "jump_s"), [("worker", 600.0), ("coordinator", -600.0)])
def test_a_clock_that_jumps_all_the_same_is_measured_again(parts: Parts, side: str, jump_s: float) -> None:
    """As after a sleep of the machine, or a coordinator that starts again with another time."""
    jumped = {"worker": 0.0, "coordinator": 0.0}
    wall = steady_clock()
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
