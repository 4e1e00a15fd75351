"""Sign requests and their answers: who asks, what, when and in which turn; and that the answer is the coordinator's.

A request is signed with the key of its role, and by a registered worker also with a key of its own, made of the role's
key and of the secret that it registered with: who holds the role's key alone speaks for no other worker. The body is
signed by length and hash, so a signature is checked before a body is read. An answer is signed over its status, its
body and the signature of its request, with the worker's own key where there is one.
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

from ding_like.comm.rest.keys import Keys
from ding_like.comm.rest.refusal import RefusedError

WINDOW_S = 300.0
ANSWER_HEADER = "X-DL-Signature"
_REQUEST = re.compile(
    r"DL2 key=(?P<role>[a-z]{1,16}),ts=(?P<ts>\d{1,12}),nonce=(?P<nonce>[0-9a-f]{32}),sig=(?P<sig>[0-9a-f]{64})"
    r"(,own=(?P<own>[0-9a-f]{64}))?"
)
_HELLO = re.compile(r"DL2-hello key=(?P<role>[a-z]{1,16}),nonce=(?P<nonce>[0-9a-f]{32}),proof=(?P<proof>[0-9a-f]{64})")
_SECRET = re.compile(r"[0-9a-f]{32,128}")

Clock = Callable[[], float]


class Head(NamedTuple):
    """Signed fields of a request; the body is signed by length and hash."""

    method: str
    path: str  # with the query
    length: int
    sha256: str  # of the body, hex
    worker: str  # id of a registered worker, or nothing
    client: str  # the incarnation: new for every start of a process
    turn: str  # "<channel>:<number>", or nothing


class Signed(NamedTuple):
    """Fields of a verified signature."""

    role: str
    ts: int  # seconds of the coordinator's clock
    nonce: str
    sig: str
    own: str | None
    head: Head


def draw_secret() -> str:
    """Return a new secret of a worker."""
    return secrets.token_hex(32)


def is_secret(text: str) -> bool:
    """Tell whether a text is long enough to be a worker's secret, and hex."""
    return _SECRET.fullmatch(text) is not None


def own_key(key: bytes, worker_id: str, secret: str) -> bytes:
    """Return the key that is a worker's alone, from its role's key and its secret."""
    return hmac.digest(key, _text("worker", worker_id, secret), hashlib.sha256)


def body_hash(body: bytes) -> str:
    """Return the SHA-256 of a body, hex."""
    return hashlib.sha256(body).hexdigest()


def answer_signature(key: bytes, asked: str, status: int, body: bytes) -> str:
    """Return the signature of an answer; `asked` is the signature of its request, or the nonce of a hello."""
    return _hmac(key, "answer", asked, status, body_hash(body))


def steady_clock(wall: Clock = time.time, monotonic: Clock = time.monotonic) -> Clock:
    """Return a clock that begins with the wall's time and then runs evenly, however the wall's clock is set."""
    start_s = wall() - monotonic()
    return lambda: start_s + monotonic()


class Signer:
    """Signer of one client's requests, which also verifies answers. Threads may share one.

    Times are those of `clock`, which only grows, and `offset_s`, which a signed hello of the coordinator gives.
    """

    def __init__(self, role: str, key: bytes, *, incarnation: str, secret: str, clock: Clock = time.monotonic) -> None:
        self._role = role
        self._key = key
        self._incarnation = incarnation
        self._secret = secret
        self._clock = clock
        self._own_keys: dict[str, bytes] = {}
        self.offset_s: float | None = None  # the coordinator's clock minus ours; None: not known yet

    def hello(self) -> tuple[str, str]:
        """Return (Authorization, nonce) of a hello; it says that the key is held, and nothing of time or names."""
        nonce = secrets.token_hex(16)
        return f"DL2-hello key={self._role},nonce={nonce},proof={_hmac(self._key, 'hello', self._role, nonce)}", nonce

    def sign(
        self, method: str, path: str, body: bytes, *, turn: str = "", worker: str = "", client: str | None = None
    ) -> tuple[dict[str, str], str]:
        """Return (headers, signature) of a request. Raises ValueError before `offset_s` is known."""
        if self.offset_s is None:
            raise ValueError("the coordinator's clock is not known yet: say hello first.")
        client = self._incarnation if client is None else client
        head = Head(method, path, len(body), body_hash(body), worker, client, turn)
        ts, nonce = int(self._clock() + self.offset_s), secrets.token_hex(16)
        text = _request_text(head, self._role, ts, nonce)
        sig = hmac.new(self._key, text, hashlib.sha256).hexdigest()
        own = f",own={hmac.new(self._own(worker), text, hashlib.sha256).hexdigest()}" if worker else ""
        headers = {
            "X-DL-SHA256": head.sha256,
            "X-DL-Worker": worker,
            "X-DL-Incarnation": client,
            "X-DL-Seq": turn,
            "Authorization": f"DL2 key={self._role},ts={ts},nonce={nonce},sig={sig}{own}",
        }
        return {name: value for name, value in headers.items() if value}, sig

    def is_answer(self, signature: str, asked: str, status: int, body: bytes, *, worker: str = "") -> bool:
        """Tell whether the coordinator signed an answer, to a worker's request with that worker's own key."""
        key = self._own(worker) if worker else self._key
        return hmac.compare_digest(answer_signature(key, asked, status, body), signature)

    def _own(self, worker: str) -> bytes:
        if worker not in self._own_keys:
            self._own_keys[worker] = own_key(self._key, worker, self._secret)
        return self._own_keys[worker]


class Verifier:
    """Verifier of requests, with the keys of a run and its own steady clock."""

    def __init__(self, keys: Keys, *, clock: Clock) -> None:
        self._keys = dict(keys)
        self._clock = clock

    def hello(self, header: str) -> tuple[bytes, str]:
        """Return (key, nonce) for the answer to a hello. Raises RefusedError for one without a key that is known."""
        found = _HELLO.fullmatch(header)
        key = self._keys.get(found["role"]) if found else None
        if found is None or key is None:
            raise RefusedError("bad_key", "the signature does not fit: the hello names no key that is known here")
        if not hmac.compare_digest(_hmac(key, "hello", found["role"], found["nonce"]), found["proof"]):
            raise RefusedError("bad_key", f"the signature does not fit: this is not the key of a {found['role']} here")
        return key, found["nonce"]

    def check(self, header: str, head: Head) -> Signed:
        """Return what a request's signature says, whenever it was made. Raises RefusedError for a wrong one."""
        found = _REQUEST.fullmatch(header)
        key = self._keys.get(found["role"]) if found else None
        if found is None or key is None:
            raise RefusedError("bad_key", "the request is not signed with a key that is known here")
        text = _request_text(head, found["role"], int(found["ts"]), found["nonce"])
        if not hmac.compare_digest(hmac.new(key, text, hashlib.sha256).hexdigest(), found["sig"]):
            raise RefusedError("bad_key", "the signature does not fit: another key, or the request was changed")
        return Signed(found["role"], int(found["ts"]), found["nonce"], found["sig"], found["own"], head)

    def check_own(self, signed: Signed, secret: str | None) -> bytes:
        """Return a worker's own key. Raises RefusedError if the request was not signed with it."""
        worker = signed.head.worker
        if secret is None:
            raise RefusedError("unknown", f"there is no worker {worker}; register first")
        key = own_key(self._keys[signed.role], worker, secret)
        text = _request_text(signed.head, signed.role, signed.ts, signed.nonce)
        expected = hmac.new(key, text, hashlib.sha256).hexdigest()
        if not is_secret(secret) or not hmac.compare_digest(expected, signed.own or ""):
            raise RefusedError("name_taken", f"{worker} is another process: this one did not register under the name")
        return key

    def check_clock(self, signed: Signed) -> None:
        """Raise RefusedError for a request that was signed too long ago, or ahead."""
        off_s = signed.ts - self._clock()
        if abs(off_s) > WINDOW_S:
            raise RefusedError(
                "bad_clock", f"the request was signed {abs(off_s):.0f} s {'ahead' if off_s > 0 else 'ago'}: more than "
                f"{WINDOW_S:g} s"
            )  # fmt: skip

    def role_key(self, role: str) -> bytes:
        """Return the key of a role that a signature named."""
        return self._keys[role]

    def now_s(self) -> float:
        """Return the time by which signatures are judged."""
        return self._clock()


def _request_text(head: Head, role: str, ts: int, nonce: str) -> bytes:
    return _text("request", *head, role, ts, nonce)


def _hmac(key: bytes, *parts: str | int) -> str:
    return hmac.new(key, _text(*parts), hashlib.sha256).hexdigest()


def _text(*parts: str | int) -> bytes:
    # JSON keeps parts apart: no part can end early and become the next. The first one says what kind of text it is.
    return json.dumps(parts).encode()
