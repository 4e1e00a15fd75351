"""Every request that a stranger, a broken worker or a thief of one key might send: refused, and nothing is changed."""

from __future__ import annotations

import base64
import gzip
import json
import socket
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import ding_like
from ding_like.comm.rest import messages as m
from tests.comm.rest.hostile.stage import Stage, memory

_MEMORY = 20 << 20


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    made = Stage(tmp_path_factory.mktemp("hostile"))
    # What the first requests load stays: memory is compared from here on.
    for _ in range(20):
        assert made.ask("GET", "/v1/hello", b"") == 200
    yield made
    made.close()


@pytest.fixture(autouse=True)
def unharmed(stage: Stage) -> Iterator[None]:
    """Check after every test: nothing changed, memory as before, and the coordinator answers."""
    before, used = stage.state(), memory()
    yield
    assert stage.ask("GET", "/v1/hello", b"") == 200
    assert stage.state() == before
    assert memory() - used < _MEMORY


def post(stage: Stage, path: str, body: Any, **more: Any) -> int:
    """Send a body, as JSON if it is none yet; {names} in path and texts stand for the run's own."""
    for name, value in stage.names.items():
        path = path.replace("{" + name + "}", value)
    return stage.ask("POST", path, body if isinstance(body, bytes) else json.dumps(body).encode(), **more)


def check(stage: Stage, cases: Iterable[Sequence[Any]], ask: Callable[..., int]) -> None:
    """Ask what each case (*request, status or statuses) says; fail with every other status, and every effect."""
    before, wrong = stage.state(), []
    for *request, expected in cases:
        status = ask(*request)
        if status not in ((expected,) if isinstance(expected, int) else expected):
            wrong.append(f"{request!r:.200} is answered with {status}, not {expected}")
        if (after := stage.state()) != before:
            wrong.append(f"{request!r:.200} changes the run")
            before = after
    assert not wrong, "\n".join(wrong)


def info(stage: Stage, **changes: Any) -> bytes:
    """Return the body of a right message TaskInfo, changed."""
    return json.dumps({"attempt": stage.collect.attempt, "info": {}, **changes}).encode()


INFO = "/v1/tasks/{collect}/info"


def test_a_request_with_a_wrong_head(stage: Stage) -> None:
    cases: list[tuple[Any, Any, int]] = [
        ({"Authorization": None}, {}, 401),
        ({"Authorization": "Bearer x"}, {}, 401),
        ({"Authorization": "DL3 " + "x" * 9000}, {}, 401),
        ({}, {"key": b"\0" * 32}, 401),
        ({}, {"secret": "0" * 64}, 401),  # holds the role's key, and not the worker's secret
        ({}, {"secret": ""}, 401),
        ({}, {"worker": ""}, 400),
        ({}, {"worker": "../etc"}, 400),
        ({}, {"worker": "collector-unknown"}, 404),
        ({}, {"turn": ""}, 400),
        ({}, {"turn": "stage:0"}, 400),
        ({}, {"turn": "stage:" + "9" * 16}, 400),
        ({}, {"turn": "../stage:1"}, 400),
        ({"X-DL-Seq": "stage:999999"}, {}, 401),
        ({"X-DL-SHA256": "0" * 64}, {}, 401),
        ({}, {"now_s": time.time() + 3600}, 401),
        ({}, {"body": b"{}"}, 401),
        ({}, {"path": "/v1/tasks/other/info"}, 401),
        ({}, {"path": "/v1/tasks/collect-1/info?x=1"}, 401),
        ({}, {"method": "DELETE"}, 401),
        ({"Host": "evil.com"}, {}, 400),
        ({"Origin": "http://evil.com"}, {}, 403),
        ({"Content-Type": "text/plain"}, {}, 415),
        ({"X-DL-Protocol": None}, {}, 426),
        ({"X-DL-Protocol": "1"}, {}, 426),
        ({"X-DL-Worker": "collector-unknown"}, {}, 404),
        ({"Content-Encoding": "gzip"}, {}, 415),
        ({"Content-Encoding": "identity"}, {}, 415),
        ({"X-Long": "x" * 20_000}, {}, 431),
    ]
    check(stage, cases, lambda headers, signed: post(stage, INFO, info(stage), headers=headers, signed=signed))


def head(stage: Stage, body: bytes, **how: Any) -> bytes:
    """Return the head of a request for INFO."""
    return stage.head("POST", f"/v1/tasks/{stage.collect.task_id}/info", body, **how)


def test_a_request_sent_again_by_a_listener(stage: Stage) -> None:
    body = info(stage)
    sent = head(stage, body) + body
    (mine,) = [line for line in sent.split(b"\r\n") if line.startswith(b"Authorization")]
    other_channel = sent.replace(b": stage:", b": other:")

    assert stage.send(sent.replace(b"\r\n\r\n", b"\r\n%s\r\n\r\n" % mine)) == 401, "a signature given twice"
    assert stage.send(sent) == 200
    before = stage.state()
    assert stage.send(sent) == 200, "the saved reply, and nothing is done again"
    assert stage.state() == before
    assert b"other:" in other_channel and stage.send(other_channel) == 401
    assert post(stage, INFO, body) == 200
    assert stage.send(sent) == 409  # it is old by now


def test_a_request_of_before_a_clock_was_set_back(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too old stays so: signatures are judged by a clock that only grows."""
    body, now = info(stage), time.time()
    sent = head(stage, body, signed={"now_s": now - 600}) + body

    monkeypatch.setattr(time, "time", lambda: now - 600)

    assert stage.send(sent) == 401


def test_a_body_moved_to_the_head_of_another_request(stage: Stage) -> None:
    body, other = info(stage), info(stage, info={"a": 1})

    assert stage.send(head(stage, body) + other[: len(body)]) == 401
    assert stage.send(head(stage, body, headers={"Content-Length": str(len(other))}) + other) == 401


def test_a_name_that_another_has(stage: Stage) -> None:
    """Who holds the key of collectors registers under no other collector's name, and leaves for none."""
    incarnation = stage.collector.partition("-")[2]
    squat = register(incarnation=incarnation, package=ding_like.__version__, secret="f" * 64)

    assert post(stage, "/v1/workers", squat, signed={"worker": ""}) == 409
    for method, end, body in (("DELETE", "", b'{"reason": "x"}'), ("POST", "/heartbeat", b'{"state": "idle"}')):
        path = f"/v1/workers/{stage.collector}{end}"
        assert stage.ask(method, path, body, signed={"secret": "f" * 64}) == 401
        assert stage.ask(method, path, body, signed={"worker": "collector-unknown"}) == 404


def test_a_body_beyond_the_limit_is_not_read(stage: Stage) -> None:
    """The answer comes on the head alone."""
    for method, path in (("POST", "/v1/tasks/claim"), ("PUT", "/v1/segments/x.1")):
        head = stage.head(method, path, b"", headers={"Content-Length": str(m.MAX_FILE + 2)})
        assert stage.send(head, close=False) == 413, path
    # A message is held to a smaller limit than a file.
    assert stage.ask("POST", "/v1/tasks/claim", b"x" * (m.MAX_BODY + 1)) == 413


def test_what_a_role_may_not_ask(stage: Stage) -> None:
    cases = [
        ("POST", "/v1/buffers/{buffer}/sample", "collector", 403),
        ("POST", "/v1/buffers/{buffer}/update", "collector", 403),
        ("POST", "/v1/policies/{policy}", "collector", 403),
        ("POST", "/v1/tasks/{collect}/data", "learner", 403),
        ("POST", "/v1/tasks/{collect}/data", "admin", 401),
        ("POST", "/v1/workers", "admin", 401),
        ("PUT", "/v1/segments/x.1", "learner", 403),
        ("PUT", "/v1/weights/{policy}/1-1", "collector", 403),
        ("GET", "/v1/segments/x.1", "collector", 403),
        ("OPTIONS", "/v1/tasks/claim", "collector", 405),
        ("TRACE", "/v1/hello", "collector", 405),
        ("GET", "/v1/tasks/claim", "collector", 405),
        ("GET", "//v1/hello", "collector", 401),  # the server takes it for /v1/hello, which was not signed
        ("GET", "/./v1/hello", "collector", 404),
        ("GET", "/v1/hello/", "collector", 404),
        ("GET", "/v1/../v1/hello", "collector", 404),
        ("GET", "/", "collector", 404),
    ]

    def ask(method: str, path: str, role: str) -> int:
        for name, value in stage.names.items():
            path = path.replace("{" + name + "}", value)
        return stage.ask(method, path, b"{}", role=role)

    check(stage, cases, ask)


def test_a_key_does_not_speak_for_workers_of_another_role(stage: Stage) -> None:
    body = {"attempt": stage.learn.attempt, "result": {}}

    assert post(stage, "/v1/tasks/{learn}/finish", body, signed={"worker": stage.learner}) == 401
    assert post(stage, "/v1/tasks/{learn}/finish", body) == 409  # nor for another worker's task
    assert post(stage, "/v1/workers", register(role="learner")) == 403
    assert stage.ask("DELETE", f"/v1/workers/{stage.learner}", b'{"reason": "x"}') == 403


def register(**changes: Any) -> dict[str, Any]:
    own = {"role": "collector", "host": "h", "pid": 1, "package": "0", "incarnation": "i", "secret": "0" * 64}
    return {**own, **changes}


def test_who_may_not_register(stage: Stage) -> None:
    cases: list[tuple[Any, int]] = [
        ({}, 426),  # another version of the package
        ({"role": "admin"}, 403),
        ({"role": "../x"}, 400),
        ({"incarnation": "../../x"}, 400),
        ({"pid": True}, 400),
        ({"pid": 2**70}, 400),
        ({"host": "h" * 100_000}, 413),
        ({"resources": {"gpu": "many"}}, 400),
        ({"import_names": ["os"]}, 400),
        ({"type": "__class__"}, 400),
        ({"secret": ""}, 400),
        ({"secret": "0" * 10_000}, 400),
    ]
    check(stage, cases, lambda changes: post(stage, "/v1/workers", register(**changes), signed={"worker": ""}))


DEEP = b'{"attempt": 1, "info": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}"
JSONS: dict[str, tuple[bytes, int]] = {
    "deep": (DEEP, 400),
    "NaN": (b'{"attempt": 1, "info": {"a": NaN}}', 400),
    "key twice": (b'{"attempt": 1, "attempt": 1, "info": {}}', 400),
    "no UTF-8": (b'{"attempt": 1, "info": {"\xff": 1}}', 400),
    "lone surrogate": (b'{"attempt": 1, "info": {"a": "\\ud800"}}', 400),
    "empty": (b"", 400),
    "more keys": (b'{"attempt": 1, "info": {}, "cmd": "id"}', 400),
    "large body": (b'{"attempt": 1, "info": {"a": "' + b"x" * (2 << 20) + b'"}}', 413),
    "gzip bomb": (gzip.compress(b"0" * 10_000_000), 415),
    "pickle": (b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94\x8c\x06system\x94\x93\x94.", 400),
    "old attempt": (b'{"attempt": 0, "info": {}}', 409),
    "negative attempt": (b'{"attempt": -1, "info": {}}', 409),
    "future attempt": (b'{"attempt": 4000000000, "info": {}}', 409),
}


def test_bodies_that_are_no_message(stage: Stage) -> None:
    gzipped = {"gzip bomb": {"Content-Encoding": "gzip"}}
    cases = [(name, *case) for name, case in JSONS.items()]
    check(stage, cases, lambda name, body: post(stage, INFO, body, headers=gzipped.get(name)))


IDS = [
    "..", ".", "~", "-rf", "%2e%2e%2f", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%00", "a%0ab", "a%0d%0aX: y", "%c3%a4",
    "a%5cb", "$(id)", ";rm", "'", "%22", "a" * 200, "%d0%b0bc", "a%20b", "*",
]  # fmt: skip


def test_ids_that_are_more_than_ids(stage: Stage) -> None:
    octets = {"headers": {"Content-Type": "application/octet-stream"}}
    asked: list[tuple[str, str, bytes, dict[str, Any], Container[int]]] = [
        ("POST", "/v1/tasks/{}/info", info(stage), {}, (400, 404)),
        ("GET", "/v1/segments/{}", b"", {"role": "learner"}, (400, 404)),
        ("GET", "/v1/weights/{}/1-1", b"", {}, (400, 404)),
        ("GET", "/v1/weights/policy/{}", b"", {}, (400, 404)),
        ("PUT", "/v1/segments/{}", b"x", octets, range(400, 600)),
        ("PUT", "/v1/weights/policy/{}", b"x", {**octets, "role": "learner"}, (400, 401, 404)),
    ]
    cases = [(method, path.format(name), *more) for name in IDS for method, path, *more in asked]
    check(stage, cases, lambda method, path, body, more: stage.ask(method, path, body, **more))


def test_names_of_segments_that_are_more_than_names(stage: Stage) -> None:
    names = ["", "a/b", "/abs", "../../etc/passwd", "CON\n", "a\\b", "é", "a" * 10_000, "\0"]
    path = "/v1/tasks/{collect}/data"
    check(stage, ((each, 400) for each in names), lambda name: post(stage, path, data(stage, name=name)))


def data(stage: Stage, **changes: Any) -> dict[str, Any]:
    own = dict(
        name=f"{stage.collector}.00000000", rows=8, sha256="0" * 64, nbytes=1, policy_version=0,
        env_steps=8,
    )  # fmt: skip
    return {"attempt": stage.collect.attempt, "segments": [{**own, **changes}]}


def test_segments_that_cannot_be(stage: Stage) -> None:
    """They are named in the answer, and none is taken."""
    cases: list[dict[str, Any]] = [
        dict(rows=0), dict(rows=-1), dict(rows=2**40), dict(env_steps=-1), dict(nbytes=0), dict(nbytes=-1),
        dict(nbytes=2**40), dict(env_steps=2**50), dict(policy_version=-1), dict(sha256="x" * 65),
        dict(name="collector-other.1"), dict(name="x"),
    ]  # fmt: skip
    path = "/v1/tasks/{collect}/data"
    check(stage, ((each, (200, 400, 422)) for each in cases), lambda each: post(stage, path, data(stage, **each)))


def test_too_many_segments_at_once(stage: Stage) -> None:
    body = data(stage)
    body["segments"] *= 4097

    assert len(json.dumps(body)) < 1 << 20 or post(stage, "/v1/tasks/{collect}/data", body) == 413


def array(values: list[Any], kind: str) -> str:
    return base64.b64encode(np.array(values, kind).tobytes()).decode()


def test_priorities_that_cannot_be(stage: Stage) -> None:
    cases: list[tuple[dict[str, Any], int]] = [
        (dict(priorities=array([float("nan")], "<f4")), 400),
        (dict(priorities=array([float("inf")], "<f4")), 400),
        (dict(priorities=array([-1.0], "<f4")), 400),
        (dict(priorities=array([1e308], "<f8")), 400),
        (dict(places=array([10**9], "<i8")), 400),
        (dict(places=array([-1], "<i8")), 400),
        (dict(places=array([0, 1], "<i8")), 400),
        (dict(places="!!!"), 400),
        (dict(bad_segments=["../x"]), 400),
        (dict(bad_segments=["x"] * 5000), 413),
        (dict(learn_iter=-1), 400),
        (dict(learn_iter=2**61), 400),
    ]
    own = dict(
        task_id=stage.learn.task_id, attempt=stage.learn.attempt, learn_iter=0, info={}, places=array([0], "<i8"),
        unique_ids=array([1], "<i8"), priorities=array([1.0], "<f4"),
    )  # fmt: skip

    path = "/v1/buffers/{buffer}/update"
    check(stage, cases, lambda each: post(stage, path, {**own, **each}, role="learner"))


def test_batches_that_cannot_be(stage: Stage) -> None:
    cases: list[tuple[dict[str, Any], int]] = [
        (dict(batch_size=0), 413),
        (dict(batch_size=10**9), 413),
        (dict(num_batches=0), 413),
        (dict(have_segments_up_to=-1), 400),
        (dict(have_segments_up_to=10**6), 400),
        (dict(cur_learner_iter=-1), 400),
        (dict(wait_s=-1.0), 400),
        (dict(wait_s=1e9), 400),
        (dict(task_id="collect-2"), 409),
        (dict(task_id="nobodys"), 404),
        (dict(attempt=99), 409),
    ]
    own = dict(
        task_id=stage.learn.task_id, attempt=stage.learn.attempt, batch_size=8, num_batches=1, cur_learner_iter=0,
        have_segments_up_to=0,
    )  # fmt: skip

    path = "/v1/buffers/{buffer}/sample"
    check(stage, cases, lambda each: post(stage, path, {**own, **each}, role="learner"))
    assert post(stage, "/v1/buffers/other/sample", own, role="learner") == 403


def test_weights_that_cannot_be(stage: Stage) -> None:
    cases: list[tuple[str, dict[str, Any], int]] = [
        ("/v1/policies/{policy}", dict(version=0), 409),
        ("/v1/policies/{policy}", dict(version=-1), 400),
        ("/v1/policies/{policy}", dict(attempt=0, version=5), 409),
        ("/v1/policies/{policy}", dict(nbytes=-1), 400),
        ("/v1/policies/{policy}", dict(sha256="x" * 100_000), 413),
        ("/v1/policies/other", {}, 403),
        ("/v1/policies/{policy}", dict(task_id="nobodys"), 404),
    ]
    own = dict(task_id=stage.learn.task_id, attempt=stage.learn.attempt, version=1, sha256="0" * 64, nbytes=1)
    check(stage, cases, lambda path, fields: post(stage, path, {**own, **fields}, role="learner"))


def test_files_that_are_not_taken(stage: Stage) -> None:
    cases = [
        ({"X-DL-SHA256": "0" * 64}, b"x", 401),
        ({"Content-Type": "application/json"}, b"x", 415),
        ({"Content-Length": str(200 << 20)}, b"", 413),
    ]
    path, own = f"/v1/segments/{stage.collector}.1", {"Content-Type": "application/octet-stream"}
    check(stage, cases, lambda headers, body: stage.ask("PUT", path, body, headers={**own, **headers}))


HEAD = (
    b"POST /v1/tasks/claim HTTP/1.1\r\nHost: 127.0.0.1\r\nX-DL-Protocol: %d\r\nContent-Type: application/json\r\n"
    % m.PROTOCOL
)
RAW: dict[str, tuple[bytes, tuple[int, ...]]] = {
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 50 + b"\r\n\r\n", (0, 400)),
    "length too long": (HEAD + b"Content-Length: 100\r\n\r\n{}", (0, 400, 401)),
    "length too short": (HEAD + b'Content-Length: 1\r\n\r\n{"wait_s": 0}', (400, 401)),
    "length negative": (HEAD + b"Content-Length: -5\r\n\r\n{}", (400,)),
    "length no number": (HEAD + b"Content-Length: five\r\n\r\n{}", (400,)),
    "length huge": (HEAD + b"Content-Length: 99999999999999\r\n\r\n{}", (413,)),
    "two lengths": (HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", (400, 401)),
    "length and chunks": (HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", (400, 401)),
    "old HTTP with chunks": (b"POST /v1/tasks/claim HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", (400,)),
    "bad chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", (400,)),
    "unknown coding": (HEAD + b"Transfer-Encoding: gzip\r\n\r\n{}", (400, 501)),
    "header without end": (HEAD + b"X: " + b"x" * 100_000, (0, 400, 431)),
    "header with a line break": (HEAD + b"X: a\n b\r\nContent-Length: 2\r\n\r\n{}", (400, 401)),
    "old HTTP": (b"GET /v1/status\r\n\r\n", (0, 400, 401, 426)),
}


def test_bytes_that_are_no_request(stage: Stage) -> None:
    check(stage, RAW.values(), stage.send)


def test_chunks_without_end_are_cut_off(stage: Stage) -> None:
    """A body of a length that was not said is read up to the limit of files."""
    answer = b""
    with socket.create_connection(("127.0.0.1", stage.port), timeout=5.0) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        connection.settimeout(0.2)
        with suppress(TimeoutError, ConnectionError):
            for _ in range(1100):  # 69 MiB
                connection.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
        connection.settimeout(5.0)
        with suppress(ConnectionError):
            answer = connection.recv(4096)

    assert answer == b"" or b" 413 " in answer


def test_five_hundred_slow_callers_do_not_stop_others(stage: Stage) -> None:
    slow = [socket.create_connection(("127.0.0.1", stage.port), timeout=5.0) for _ in range(500)]
    for connection in slow:
        connection.sendall(b"POST /v1/tasks/claim HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
    try:
        assert stage.ask("GET", "/v1/hello", b"") == 200
    finally:
        for connection in slow:
            connection.close()


def test_many_made_up_names_take_no_memory(stage: Stage) -> None:
    for number in range(200):
        assert stage.ask("POST", f"/v1/tasks/t{number}/info", info(stage)) == 404
        if number % 4 == 0:
            signed = {"worker": f"collector-w{number}", "turn": f"c{number}:1"}
            assert post(stage, INFO, info(stage), signed=signed) == 404
            assert stage.ask("GET", "/v1/status", b"", signed={**signed, "worker": ""}) == 200
