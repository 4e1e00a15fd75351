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
from collections.abc import Callable, Mapping
from typing import NamedTuple

from flask import Response, g, request

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.keys import Keys
from ding_like.comm.rest.messages import Stamp
from ding_like.comm.rest.refusal import RefusedError
from ding_like.comm.rest.wire import check_id

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


_HOST = re.compile(r"(?:(?P<name>[A-Za-z0-9.-]+)|\[(?P<six>[0-9A-Fa-f:]+)\])(:[0-9]{1,5})?")
_TURN = re.compile(r"(?P<channel>[A-Za-z0-9][A-Za-z0-9._-]{0,63}):(?P<number>[1-9][0-9]{0,14})")


class Caller(NamedTuple):
    """Sender of a request. Without keys it is not known, and `role` is None."""

    role: str | None
    worker: str  # id, of a registered worker
    client: str  # its incarnation
    stamp: Stamp | None


class Gate:
    """Check of requests of a run's workers. `hosts` are the names that the server may be called by, None for any."""

    def __init__(
        self,
        keys: Keys | None,
        hosts: set[str] | None,
        *,
        secret_of: Callable[[str], str | None],
        clock: Clock,
    ) -> None:
        self._verifier = Verifier(keys, clock=clock) if keys else None
        self._hosts = None if hosts is None else {name.strip("[]") for name in hosts}
        self._secret_of = secret_of
        self._clock = clock

    def now_s(self) -> float:
        """Return the time by which signatures are judged, in seconds since 1970 or nearly so."""
        return self._clock()

    def greet(self) -> None:
        """Let a hello in. One that names a key is answered with that key's signature."""
        header = request.headers.get("Authorization", "")
        if header.startswith("DL2-hello") and self._verifier is not None:
            g.signer = self._verifier.hello(header)

    def check(self, roles: tuple[str, ...], *, worker: str | None = None, any_client: bool = False) -> Caller:
        """Return who asks. Raises RefusedError unless one of these roles signed the request.

        The request speaks for a registered worker: `worker`, where its path names one. With `any_client` it may come
        from a client that has not registered.
        """
        self._check_envelope()
        turn = request.headers.get("X-DL-Seq", "")
        named = request.headers.get("X-DL-Worker", "")
        client = request.headers.get("X-DL-Incarnation", "")
        if self._verifier is None:
            caller = Caller(None, worker or named, client, _stamp_of(turn))
            if not any_client:
                check_id(caller.worker, "the worker's id")
            return caller
        signed = self._signed()
        g.signer = (self._verifier.role_key(signed.role), signed.sig)
        if signed.role not in roles:
            raise RefusedError("wrong_role", f"a {signed.role} may not ask for this")
        if not any_client or named:
            self._check_worker(signed, worker if worker is not None else named)
        self._verifier.check_clock(signed)
        stamp = _stamp_of(turn)
        body = request.get_data(cache=True)
        if len(body) != signed.head.length or body_hash(body) != signed.head.sha256:
            raise RefusedError("bad_key", "the body is not the one that was signed")
        if not named:
            check_id(client, "the incarnation")
        elif stamp is None:
            raise RefusedError("malformed", "the header X-DL-Seq is to be <channel>:<number>")
        return Caller(signed.role, named, client, stamp)

    def sign(self, response: Response) -> Response:
        """Sign an answer, if its request was signed by a known worker."""
        if "signer" in g:
            key, asked = g.signer
            response.headers[ANSWER_HEADER] = answer_signature(key, asked, response.status_code, response.get_data())
        return response

    def _check_envelope(self) -> None:
        found = _HOST.fullmatch(request.headers.get("Host", ""))
        if self._hosts is not None and (found is None or (found["name"] or found["six"]).lower() not in self._hosts):
            raise RefusedError("malformed", "the Host of the request is not this coordinator")
        if request.headers.get("Origin") is not None:
            raise RefusedError("wrong_role", "requests of web pages are not answered")
        if request.headers.get("X-DL-Protocol") != str(m.PROTOCOL):
            raise RefusedError("wrong_protocol", f"this coordinator speaks protocol {m.PROTOCOL}")
        if request.headers.get("Content-Encoding") is not None:
            raise RefusedError("wrong_content_type", "the body is to be sent as it is, in no Content-Encoding")
        if request.headers.get("Transfer-Encoding") is not None:
            raise RefusedError("malformed", "the body is to be sent with a Content-Length, in no Transfer-Encoding")

    def _signed(self) -> Signed:
        assert self._verifier is not None
        path = request.full_path if request.query_string else request.path
        headers = {
            name.upper().replace("-", "_"): request.headers.get(name, "")
            for name in ("X-DL-SHA256", "X-DL-Worker", "X-DL-Incarnation", "X-DL-Seq")
        }
        headers["CONTENT_LENGTH"] = str(request.content_length or 0)
        header = request.headers.get("Authorization", "")
        return self._verifier.check(header, _head(request.method, path, headers))

    def _check_worker(self, signed: Signed, worker: str) -> None:
        """Refuse a request that speaks for another worker than the one that signed it."""
        assert self._verifier is not None
        check_id(worker, "the worker's id")
        if not worker.startswith(f"{signed.role}-"):
            raise RefusedError("wrong_role", f"the key of a {signed.role} does not speak for {worker}")
        if worker != signed.head.worker:
            raise RefusedError(
                "wrong_role", f"{signed.head.worker or 'a nameless request'} does not speak for {worker}"
            )
        g.signer = (self._verifier.check_own(signed, self._secret_of(worker)), signed.sig)


def _head(method: str, path: str, headers: Mapping[str, str]) -> Head:
    """Return what is signed of a request. Raises ValueError for a length that is not a number."""
    return Head(
        method,
        path,
        int(headers.get("CONTENT_LENGTH") or 0),
        headers.get("X_DL_SHA256", ""),
        headers.get("X_DL_WORKER", ""),
        headers.get("X_DL_INCARNATION", ""),
        headers.get("X_DL_SEQ", ""),
    )


def _stamp_of(turn: str) -> Stamp | None:
    if not turn:
        return None
    found = _TURN.fullmatch(turn)
    if found is None:
        raise RefusedError("malformed", "the header X-DL-Seq is to be <channel>:<number>")
    return Stamp(found["channel"], int(found["number"]))
