"""Signatures of requests and of their answers (HMAC-SHA256).

A registered worker signs with a key of its own, made of the role's key and of the secret that it registered with: the
role's key alone speaks for no worker. All other requests are signed with the role's key. An answer is signed with the
key of its request, over its status, its body and the request's signature.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

ANSWER_HEADER = "X-DL-Signature"
_SECRET = re.compile(r"[0-9a-f]{32,128}")

Clock = Callable[[], float]


class Head(NamedTuple):
    """Signed fields of a request."""

    role: str
    ts: int  # seconds of the coordinator's clock
    method: str
    path: str  # with the query
    sha256: str  # of the body, hex
    worker: str  # id of a registered worker, or nothing
    turn: str  # "<channel>:<number>", or nothing

    def signature(self, key: bytes) -> str:
        """Return the signature of these fields, hex."""
        return _hmac(key, "request", *self)


def draw_secret() -> str:
    """Return a new secret of a worker."""
    return secrets.token_hex(32)


def is_secret(text: str) -> bool:
    """Return whether a text can be a worker's secret: hex, and long enough."""
    return _SECRET.fullmatch(text) is not None


def body_hash(body: bytes) -> str:
    """Return the SHA-256 of a body, hex."""
    return hashlib.sha256(body).hexdigest()


def steady_clock(wall: Clock = time.time, monotonic: Clock = time.monotonic) -> Clock:
    """Return a clock that begins with the wall's time and then runs evenly, however the wall's clock is set."""
    start_s = wall() - monotonic()
    return lambda: start_s + monotonic()


def _hmac(key: bytes, *parts: str | int) -> str:
    # JSON keeps parts apart: no part can end early and become the next. The first one names the kind of text.
    return hmac.new(key, json.dumps(parts).encode(), hashlib.sha256).hexdigest()


def own_key(key: bytes, worker: str, secret: str) -> bytes:
    """Return the key that is a worker's alone, from its role's key and its secret."""
    return bytes.fromhex(_hmac(key, "worker", worker, secret))


def answer_signature(key: bytes, worker: str, asked: str, status: int, body: bytes) -> str:
    """Return the signature of an answer; `asked` is the signature of its request."""
    return _hmac(key, "answer", worker, asked, status, body_hash(body))


class Signer:
    """Signer of one client's requests, which also verifies answers. Threads may share one.

    Times are those of `clock`, which only grows, and `offset_s`, which a signed hello of the coordinator gives.
    """

    def __init__(self, role: str, key: bytes, *, secret: str, clock: Clock = time.monotonic) -> None:
        self._role = role
        self._key = key
        self._secret = secret
        self._clock = clock
        self.offset_s: float | None = None  # the coordinator's clock minus ours; None: not known yet

    def sign(
        self, method: str, path: str, body: bytes, *, turn: str = "", worker: str = ""
    ) -> tuple[dict[str, str], str]:
        """Return (headers, signature) of a request."""
        ts = int(self._clock() + (self.offset_s or 0.0))
        head = Head(self._role, ts, method, path, body_hash(body), worker, turn)
        signature = head.signature(self._key_of(worker))
        headers = {"X-DL-SHA256": head.sha256, "X-DL-Worker": worker, "X-DL-Seq": turn}
        headers["Authorization"] = f"DL3 key={self._role},ts={ts},sig={signature}"
        return {name: value for name, value in headers.items() if value}, signature

    def is_answer(
        self, signature: str, asked: str, status: int, body: bytes, *, worker: str = "", by_role: bool = False
    ) -> bool:
        """Return whether the coordinator signed an answer, with the worker's own key or, `by_role`, with the role's."""
        key = self._key if by_role else self._key_of(worker)
        return hmac.compare_digest(answer_signature(key, worker, asked, status, body), signature)

    def _key_of(self, worker: str) -> bytes:
        return own_key(self._key, worker, self._secret) if worker else self._key
