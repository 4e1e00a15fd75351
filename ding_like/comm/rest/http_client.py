"""HTTP client of a coordinator."""

from __future__ import annotations

import dataclasses
import random
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

import ding_like
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.auth import ANSWER_HEADER, Clock, Signer, body_hash, draw_secret
from ding_like.comm.rest.messages import ROUTES, CoordinatorService, Stamp
from ding_like.comm.rest.refusal import STATUS, RefusedError, UnreachableError
from ding_like.comm.rest.wire import decode, encode, printable
from ding_like.errors import CommError

M = TypeVar("M")

_CONNECT_S = 2.0
_READ_S = 3.0  # beyond the time that the answer may wait
_JSON = "application/json"
_MIN_WAIT_S, _MAX_WAIT_S = 0.1, 2.0
_HURRY_S = 5.0  # for what is still to be said by a worker that ends
_HURRIED = threading.Event()  # never set: to wait with
_MAX_ANSWER = m.MAX_FILE  # bytes
_PIECE = 1 << 18
_SLOWEST = 256 * 1024.0  # bytes a second
# Refusals that the coordinator can sign with the role's key alone: of a worker whose own key it does not know.
_OF_ROLE = ("unknown", "name_taken", "wrong_role")
# Refusals that cannot be signed, and are believed as long as no signed answer has come: the worker has a wrong key, or
# speaks another protocol.
_AT_START = ("bad_key", "wrong_protocol")


class _TryAgainError(CommError):
    """The request may work a little later."""


class _UnsignedError(_TryAgainError):
    """The answer is not the coordinator's."""


class _BadClockError(_TryAgainError):
    """The coordinator's clock has jumped."""


class _Asked(NamedTuple):
    """One request, sent until it is answered; `worker` signs it with its own key, `turn` numbers it."""

    method: str
    path: str
    body: bytes
    wait_s: float
    content_type: str
    worker: str = ""
    turn: str = ""


class _Answer(NamedTuple):
    status: int
    body: bytes
    signature: str


class HttpCoordinator(CoordinatorService):
    """HTTP client of the coordinator at `url`; requests are signed with the key of a role and retried for `retry_s`.

    Raises RefusedError for what the coordinator refuses, CommError if it cannot be reached, or if what is reached does
    not hold the key: answers that it has not signed are not believed. Threads may share one. `clock` only grows.
    """

    def __init__(
        self,
        url: str,
        *,
        role: str,
        key: bytes | None,
        incarnation: str,
        retry_s: float = 30.0,
        clock: Clock = time.monotonic,
    ) -> None:
        self._url = url.rstrip("/")
        self._role = role
        self._incarnation = incarnation
        self._secret = draw_secret()
        self._clock = clock
        self._signer = (
            None if key is None else Signer(role, key, incarnation=incarnation, secret=self._secret, clock=clock)
        )
        self._is_believed = False  # a signed answer has come
        self._worker = ""  # as it was registered
        self._retry_s = retry_s
        self._hurry = threading.Event()
        self._own = threading.local()  # a connection is one thread's, and so are channels
        self._sessions: list[requests.Session] = []

    def hello(self) -> m.Hello:
        """Return who answers, after taking its clock. Raises CommError for another protocol or package."""
        found = self._repeat(self._greet)
        if m.PROTOCOL not in found.protocols:
            raise CommError(
                f"the coordinator at {self._url} speaks protocol {found.protocols}, this worker {m.PROTOCOL}: "
                "install the same version of ding_like on both."
            )
        if found.package != ding_like.__version__:
            raise CommError(
                f"the coordinator at {self._url} has ding_like {found.package}, this worker {ding_like.__version__}: "
                "install the same version on both."
            )
        return found

    def register(self, message: m.Register) -> m.Registered:
        """Register with this client's secret. Raises CommError if another name is given than was asked for."""
        found = self._ask("POST", "/v1/workers", dataclasses.replace(message, secret=self._secret), m.Registered)
        if found.worker_id != f"{message.role}-{message.incarnation}":
            raise CommError(f"the coordinator at {self._url} calls {message.incarnation} by another's name.")
        self._worker = found.worker_id
        return found

    def call(self, name: str, worker_id: str, message: Any, item: str = "") -> Any:
        """Send the message of a route and return its reply."""
        route = ROUTES[name]
        path = route.path.format(worker=worker_id, item=item)
        return self._ask(route.method, path, message, route.reply, worker=worker_id)

    def status(self) -> dict[str, Any]:
        """Return a description of the run."""
        return self._ask("GET", "/v1/status", None, dict[str, Any])

    def put_file(self, path: str, data: bytes) -> None:
        """Bring a file to the coordinator, under a path of its file routes. Raises RefusedError for one too large."""
        if len(data) > m.MAX_FILE:
            raise RefusedError(
                "too_large",
                f"{path} has {len(data)} bytes; at most {m.MAX_FILE} go by the coordinator. Larger ones need folders "
                "that all hosts share: set system.path_data and system.path_policy.",
            )
        wait_s = _READ_S + len(data) / _SLOWEST
        self._send(_Asked("PUT", path, data, wait_s, m.OCTETS, self._worker, self._turn("files")))

    def get_file(self, path: str) -> bytes:
        """Fetch a file from the coordinator."""
        return self._send(_Asked("GET", path, b"", _READ_S, m.OCTETS, self._worker, self._turn("files")))

    def close(self) -> None:
        """Close the connections of all threads."""
        while self._sessions:
            session = self._sessions.pop()
            # A session only releases its pools, which stay open as long as an error's traceback refers to them.
            adapter = session.get_adapter(self._url)
            pools = adapter.poolmanager.pools if isinstance(adapter, HTTPAdapter) else {}
            for key in pools.keys():
                pools[key].close()
            session.close()

    def _ask(self, method: str, path: str, message: Any, reply: type[M], *, worker: str = "") -> M:
        """Send one message; a repetition keeps its number."""
        body = b"" if message is None else encode(message)
        if len(body) > m.MAX_BODY:
            raise RefusedError("too_large", f"the message has {len(body)} bytes; at most {m.MAX_BODY}")
        wait_s = _READ_S + float(getattr(message, "wait_s", 0.0))
        turn = self._turn("messages" if worker else "requests")
        return decode(reply, self._send(_Asked(method, path, body, wait_s, _JSON, worker, turn)))

    def _turn(self, kind: str) -> str:
        """Return the next number of this thread's channel of a kind: one request of it is on its way at a time."""
        channels: dict[str, Stamp] | None = getattr(self._own, "channels", None)
        if channels is None:
            channels = self._own.channels = {}
        # No other thread, of this process or of any other, has the same channel.
        last = channels.get(kind) or Stamp(secrets.token_hex(8), 0)
        channels[kind] = Stamp(last.channel, last.number + 1)
        return f"{last.channel}:{last.number + 1}"

    def be_patient(self, retry_s: float) -> None:
        """Try again for another time than until now, where the coordinator does not answer."""
        self._retry_s = retry_s

    def hurry(self) -> None:
        """Give up soon from now on, requests under way included: this worker is to end. For any thread."""
        self._hurry.set()

    def wait(self, seconds: float) -> bool:
        """Wait; return at once, and True, if this worker is to end."""
        return self._hurry.wait(seconds)

    def _send(self, asked: _Asked) -> bytes:
        """Send a request until it is answered, and return the answer's body."""
        has_measured = False

        def send() -> bytes:
            nonlocal has_measured
            try:
                return self._request(asked)
            except _BadClockError:
                if has_measured:
                    raise
                has_measured = True
                self._greet()
                return self._request(asked)

        return self._repeat(send)

    def _repeat(self, send: Callable[[], M]) -> M:
        """Send a request, again and again while that may help, after random waits: many workers must not come at once.

        Waits are up to 0.1 s at first and 2 s in the end.
        """
        started_s, most_s = time.monotonic(), _MIN_WAIT_S
        while True:
            try:
                return send()
            except _TryAgainError as error:
                retry_s = min(self._retry_s, _HURRY_S) if self._hurry.is_set() else self._retry_s
                left_s = started_s + retry_s - time.monotonic()
                if left_s <= 0:
                    raise UnreachableError(self._despair(error, retry_s)) from error
            most_s = min(2 * most_s, _MAX_WAIT_S)
            wait_s = min(random.uniform(_MIN_WAIT_S / 2, most_s), left_s)
            if not self._hurry.wait(wait_s):
                continue
            _HURRIED.wait(min(_MIN_WAIT_S, left_s))  # the wait that was cut short

    def _despair(self, error: _TryAgainError, retry_s: float) -> str:
        """Return what to say when there was no answer for `retry_s`."""
        if isinstance(error, _UnsignedError):
            return (
                f"what answers at {self._url} has not shown for {retry_s:g} s that it holds the key of a {self._role}: "
                f"{error}. See that it is the coordinator, and give --key-file the file that it was started with."
            )
        return (
            f"the coordinator at {self._url} has not answered for {retry_s:g} s: {error}. See that it runs and that "
            "this host reaches it."
        )

    def _greet(self) -> m.Hello:
        """Say hello once and take the coordinator's clock, if it shows that it holds the key."""
        headers, nonce = {"X-DL-Protocol": str(m.PROTOCOL)}, ""
        if self._signer is not None:
            headers["Authorization"], nonce = self._signer.hello()
        sent_s = self._clock()
        answer = self._exchange("GET", "/v1/hello", b"", headers, _READ_S)
        heard_s = self._clock()
        if self._signer is not None:
            self._believe(answer, nonce, "")
        if answer.status != 200:
            raise _refusal_of(answer)
        found = decode(m.Hello, answer.body)
        if self._signer is not None:
            self._signer.offset_s = found.server_time - (sent_s + heard_s) / 2
        return found

    def _request(self, asked: _Asked) -> bytes:
        """Send a request once, signed, and return the body of its answer."""
        headers = {"Content-Type": asked.content_type, "X-DL-Protocol": str(m.PROTOCOL)}
        signature = ""
        if self._signer is not None:
            if self._signer.offset_s is None:
                self._greet()
            signed, signature = self._signer.sign(
                asked.method, asked.path, asked.body, turn=asked.turn, worker=asked.worker
            )
            headers.update(signed)
        else:
            headers.update({"X-DL-SHA256": body_hash(asked.body), "X-DL-Incarnation": self._incarnation})
            headers.update({"X-DL-Seq": asked.turn, **({"X-DL-Worker": asked.worker} if asked.worker else {})})
        answer = self._exchange(asked.method, asked.path, asked.body, headers, asked.wait_s)
        if self._signer is not None:
            self._believe(answer, signature, asked.worker)
        if answer.status == 200:
            return answer.body
        refusal = _refusal_of(answer)
        if isinstance(refusal, RefusedError) and refusal.code == "bad_key" and self._signer is not None:
            # Signed with the key itself: this request came twice, or changed, on its way. Another signature will do.
            raise _TryAgainError(refusal.message)
        raise refusal

    def _exchange(self, method: str, path: str, body: bytes, headers: dict[str, str], wait_s: float) -> _Answer:
        """Send bytes and return what comes back, as it is: it is not trusted, not unpacked, and held to a limit."""
        until_s = time.monotonic() + _CONNECT_S + wait_s
        try:
            with self._my_session().request(
                method,
                self._url + path,
                data=body,
                headers={"Accept-Encoding": "identity", **headers},
                timeout=(_CONNECT_S, wait_s),
                allow_redirects=False,
                stream=True,
            ) as response:
                if response.headers.get("Content-Encoding", "identity") != "identity":
                    raise _UnsignedError("the answer is compressed, which the coordinator's never are")
                data = bytearray()
                while piece := response.raw.read1(_PIECE, decode_content=False):
                    data += piece
                    if len(data) > _MAX_ANSWER:
                        raise _UnsignedError(f"the answer is longer than {_MAX_ANSWER} bytes")
                    if time.monotonic() > until_s + len(data) / _SLOWEST:
                        raise _TryAgainError("the answer comes too slowly")
                return _Answer(response.status_code, bytes(data), response.headers.get(ANSWER_HEADER, ""))
        except (requests.RequestException, HTTPError) as error:  # unreachable, too slow, or gone in the middle
            raise _TryAgainError(_reason(error)) from error

    def _believe(self, answer: _Answer, asked: str, worker: str) -> None:
        """Raise an error for an answer that the coordinator has not signed."""
        assert self._signer is not None
        if self._signer.is_answer(answer.signature, asked, answer.status, answer.body, worker=worker):
            self._is_believed = True
            return
        if answer.status == 200:
            raise _UnsignedError("its answer is not signed with that key")
        refusal = _refusal_of(answer)
        code = refusal.code if isinstance(refusal, RefusedError) else ""
        of_role = self._signer.is_answer(answer.signature, asked, answer.status, answer.body)
        if of_role and code in _OF_ROLE:
            return
        if not self._is_believed and code in _AT_START:
            raise refusal
        raise _UnsignedError(f"its answer is not signed with that key ({refusal})")

    def _my_session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._own, "session", None)
        if session is None:
            session = requests.Session()
            session.trust_env = False  # no proxies: a coordinator is asked directly
            self._own.session = session
            self._sessions.append(session)
        return session


def _reason(error: BaseException) -> str:
    """Return why a request failed, without the layers that the libraries wrap around it."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            return seen.strerror
        inner = seen.__cause__ or seen.__context__ or getattr(seen, "reason", None)
        inner = inner or next((each for each in seen.args if isinstance(each, BaseException)), None)
        if inner is None:
            break
        seen = inner
    return str(seen) or type(error).__name__


def _refusal_of(answer: _Answer) -> CommError:
    try:
        error = decode(m.ErrorReply, answer.body).error
    except RefusedError:
        return CommError(f"the coordinator answered with status {answer.status} and no reason.")
    if error.code not in STATUS:
        return CommError(f"the coordinator refused for an unknown reason: {printable(error.message)}")
    if error.code == "bad_clock":
        return _BadClockError(error.message)
    if error.retryable:
        return _TryAgainError(error.message)
    return RefusedError(error.code, error.message, retry_after_s=error.retry_after_s, details=error.details)
