"""A request is what its worker signed, of this time and for the first time; an answer is the coordinator's."""

from __future__ import annotations

from typing import Any

import pytest

from ding_like.comm.rest.auth import (
    Head,
    Signed,
    Signer,
    Verifier,
    answer_signature,
    body_hash,
    draw_secret,
    is_secret,
    own_key,
    steady_clock,
)
from ding_like.comm.rest.refusal import RefusedError

KEYS = {"collector": b"c" * 32, "learner": b"l" * 32}
BODY = b'{"x":1}'
SECRET = "5" * 64
HEAD = Head("POST", "/v1/x?a=1", len(BODY), body_hash(BODY), "collector-1", "one", "main:1")


def signer(*, role: str = "collector", key: bytes | None = None, secret: str = SECRET, now_s: float = 1000.0) -> Signer:
    made = Signer(role, KEYS[role] if key is None else key, incarnation="one", secret=secret, clock=lambda: now_s)
    made.offset_s = 0.0
    return made


def header(made: Signer | None = None) -> str:
    headers, _ = (made or signer()).sign("POST", "/v1/x?a=1", BODY, turn="main:1", worker="collector-1")
    return headers["Authorization"]


def check(text: str, *, now_s: float = 1000.0, **changes: Any) -> Signed:
    verifier = Verifier(KEYS, clock=lambda: now_s)
    signed = verifier.check(text, HEAD._replace(**changes))
    verifier.check_clock(signed)
    return signed


def test_a_signed_request_has_its_role() -> None:
    assert check(header()).role == "collector"
    assert check(header(signer(role="learner"))).role == "learner"


def test_anything_that_was_changed_is_refused() -> None:
    changes: list[dict[str, Any]] = [
        dict(method="PUT"),
        dict(path="/v1/x"),
        dict(path="/v1/x?a=2"),
        dict(path="/v1/X?a=1"),
        dict(length=8),
        dict(sha256=body_hash(b"")),
        dict(sha256=""),
        dict(worker="collector-2"),
        dict(worker=""),
        dict(client="two"),
        dict(turn="main:2"),
        dict(turn="other:1"),
        dict(turn=""),
    ]
    for change in changes:
        with pytest.raises(RefusedError, match="signature does not fit"):
            check(header(), **change)
            pytest.fail(f"{change} is let in")


def test_a_request_of_another_time_is_refused_for_its_clock() -> None:
    for off_s in (-302, 302, 3600):
        with pytest.raises(RefusedError, match="more than 300 s") as caught:
            check(header(), now_s=1000.0 + off_s)
        assert caught.value.code == "bad_clock"
    assert check(header(), now_s=1299.0).role == "collector"


def test_what_no_known_key_signed_is_refused() -> None:
    texts = [
        "",
        "Bearer x",
        "DL2 key=collector",
        header().replace("DL2", "dl2"),
        header().replace("DL2", "DL1"),
        header() + " ",
        header().replace("key=collector", "key=learner"),
        header().replace("key=collector", "key=admin"),
        header(signer(key=b"x" * 32)),
        header().upper(),
        "DL2 key=collector,ts=1000,nonce=" + "0" * 32 + ",sig=" + "0" * 64,
    ]
    for text in texts:
        with pytest.raises(RefusedError) as caught:
            check(text)
            pytest.fail(f"{text!r} is let in")
        assert caught.value.status == 401, text


def test_only_who_has_a_workers_secret_speaks_for_it() -> None:
    verifier = Verifier(KEYS, clock=lambda: 1000.0)

    assert verifier.check_own(check(header()), SECRET) == own_key(KEYS["collector"], "collector-1", SECRET)
    for text in (header(signer(secret="6" * 64)), header().partition(",own=")[0]):
        with pytest.raises(RefusedError) as caught:
            verifier.check_own(check(text), SECRET)
        assert caught.value.code == "name_taken"
    with pytest.raises(RefusedError) as caught:
        verifier.check_own(check(header()), None)
    assert caught.value.code == "unknown"
    with pytest.raises(RefusedError):  # a worker that has none can be spoken for by nobody
        verifier.check_own(check(header(signer(secret=""))), "")


def test_secrets_are_long_and_different() -> None:
    assert is_secret(draw_secret()) and draw_secret() != draw_secret()
    assert not any(is_secret(text) for text in ("", "0" * 31, "0" * 129, "G" * 64, "0" * 63 + "\n"))


def test_an_answer_is_signed_for_one_request_status_and_body() -> None:
    own = own_key(KEYS["collector"], "collector-1", SECRET)
    signature = answer_signature(own, "asked", 200, b"{}")
    made = signer()

    assert made.is_answer(signature, "asked", 200, b"{}", worker="collector-1")
    for asked, status, body, worker in (
        ("other", 200, b"{}", "collector-1"),
        ("asked", 404, b"{}", "collector-1"),
        ("asked", 200, b"{ }", "collector-1"),
        ("asked", 200, b"{}", "collector-2"),
        ("asked", 200, b"{}", ""),
    ):
        assert not made.is_answer(signature, asked, status, body, worker=worker)
    assert not made.is_answer(answer_signature(KEYS["collector"], "asked", 200, b"{}"), "asked", 200, b"{}", worker="w")


def test_a_hello_shows_the_key_and_gives_no_signature_for_anything_else() -> None:
    verifier = Verifier(KEYS, clock=lambda: 1000.0)
    text, nonce = signer().hello()

    assert verifier.hello(text) == (KEYS["collector"], nonce)
    assert "ts=" not in text
    for wrong in (
        signer(key=b"x" * 32).hello()[0],
        text.replace("collector", "learner"),
        text.replace("collector", "admin"),
    ):
        with pytest.raises(RefusedError, match="signature does not fit"):
            verifier.hello(wrong)
    with pytest.raises(RefusedError):
        check(text.replace("DL2-hello", "DL2"))


def test_a_steady_clock_is_moved_by_no_change_of_the_walls() -> None:
    wall, monotonic = [5000.0], [10.0]
    clock = steady_clock(lambda: wall[0], lambda: monotonic[0])

    wall[0] += 600.0
    monotonic[0] += 1.5
    assert clock() == 5001.5
    wall[0] -= 3600.0
    assert clock() == 5001.5
