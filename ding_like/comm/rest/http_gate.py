"""Authentication of requests: host, signature, time; and the signature of the answer.

A request that comes twice has the same (worker, channel, number) and gets the saved reply: see `core/journal.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from flask import Response, g, request

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.keys import Keys
from ding_like.comm.rest.refusal import RefusedError
from ding_like.comm.rest.service import Stamp
from ding_like.comm.rest.signing import ANSWER_HEADER, Clock, Head, Signed, Verifier, answer_signature, body_hash
from ding_like.comm.rest.wire import check_id

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
