"""HTTP server of a policy: Flask for the routes, waitress for the threads, loopback by default."""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections import deque

from flask import Flask, Response, g, request
from werkzeug.exceptions import HTTPException

from ding_like.comm import http_server
from ding_like.comm.http_server import HttpServer, check_envelope, local_names
from ding_like.comm.keys import MAKE_TOKEN
from ding_like.comm.rest.messages import RefusedError
from ding_like.serve.served import JSON, VERSION_HEADER, ServedPolicy, format_of, read_request, write_response
from ding_like.types import Json
from ding_like.utils.measure import Latency

logger = logging.getLogger(__name__)

_THREADS = 4  # that answer requests; the loop reads bodies, and forward passes run one at a time
_LATENCIES = 10_000  # the last ones, of which p50 and p99 are computed
_ROUTES = "POST /act, GET /health"
_REMEDY = (
    "--token-file FILE, a secret that clients send as `Authorization: Bearer TOKEN`. This makes one: " + MAKE_TOKEN
)


class Requests:
    """Counts of requests, and how long the last ones took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latency_s: deque[float] = deque(maxlen=_LATENCIES)
        self._answered = self._refused = self._observations = 0

    def record(self, latency_s: float, observations: int) -> None:
        """Count a request that was answered."""
        with self._lock:
            self._answered += 1
            self._observations += observations
            self._latency_s.append(latency_s)

    def record_refused(self) -> None:
        """Count a request that was refused."""
        with self._lock:
            self._refused += 1

    def describe(self) -> Json:
        """Return the counts, and percentiles of the time from a request's arrival at a thread to its answer."""
        with self._lock:
            latency = Latency.of(list(self._latency_s)).plain()
            counts = {"answered": self._answered, "refused": self._refused, "observations": self._observations}
        return {**counts, **{name: value and round(value, 3) for name, value in latency.items() if name != "count"}}


class PolicyServer(HttpServer):
    """HTTP server of a policy.

    Raises ConfigError for a host that others can reach without a token, CommError for a port that is in use.
    """

    def __init__(
        self, policy: ServedPolicy, *, host: str = "127.0.0.1", port: int = 0, token: str | None = None
    ) -> None:
        check_host(host, token)
        self.requests = Requests()
        app = make_app(policy, self.requests, token=token, names=local_names(host) if token is None else None)
        super().__init__(app, host=host, port=port, threads=_THREADS, failing="the policy cannot be served on")


def check_host(host: str, token: str | None) -> None:
    """Raise ConfigError for a host that is not known, or that other machines could reach without a token."""
    http_server.check_host(host, has_secret=token is not None, remedy=_REMEDY)


def make_app(policy: ServedPolicy, requests: Requests, *, token: str | None, names: tuple[str, ...] | None) -> Flask:
    """Return the Flask application with its routes; `names` are those it may be called by, None for any."""
    app = Flask(__name__)
    app.config["MAX_CONTENT_LENGTH"] = policy.max_body
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    expected = f"Bearer {token}".encode()

    @app.before_request
    def check_access() -> None:
        g.began_s = time.perf_counter()
        check_envelope(names)
        given = request.headers.get("Authorization", "")
        if token is not None and not secrets.compare_digest(given.encode("utf-8", "surrogateescape"), expected):
            what = "another token" if given else "no token"
            raise RefusedError("bad_key", f"the request has {what}, expected `Authorization: Bearer TOKEN`")

    @app.post("/act")
    def act() -> Response:
        form = format_of(request.mimetype)
        answer = policy.act(read_request(request.get_data(), form))
        response = Response(write_response(answer, form), mimetype=form)
        response.headers[VERSION_HEADER] = json.dumps(answer.version)
        requests.record(time.perf_counter() - g.began_s, len(answer.action))
        return response

    @app.get("/")
    @app.get("/health")
    def health() -> Response:
        found = {"status": "ok", **policy.health(), "requests": requests.describe()}
        return Response(json.dumps(found), mimetype=JSON)

    @app.errorhandler(Exception)
    def refuse(error: Exception) -> Response:
        requests.record_refused()
        headers = {}
        if isinstance(error, HTTPException):
            if error.code == 405:
                headers["Allow"] = ", ".join(sorted(getattr(error, "valid_methods", None) or ()))
            error = _refusal_of(error, policy)
        elif not isinstance(error, RefusedError):
            logger.error("a request failed", exc_info=error)
            error = RefusedError("internal", "the server failed at this request; see its log")
        body = json.dumps({"error": {"code": error.code, "message": error.message}})
        return Response(body, status=error.status, mimetype=JSON, headers=headers)

    return app


def _refusal_of(error: HTTPException, policy: ServedPolicy) -> RefusedError:
    if error.code == 404:
        return RefusedError("unknown", f"there is no {request.path[:80]} here, expected {_ROUTES}")
    if error.code == 405:
        return RefusedError("wrong_method", f"{request.method} {request.path[:80]} is not answered, expected {_ROUTES}")
    if error.code == 413:
        return RefusedError(
            "too_large",
            f"the body has {request.content_length or 0:,} bytes, expected at most {policy.max_body:,}: send fewer "
            "observations at a time, and large ones as safetensors",
        )
    return RefusedError("malformed", error.name)
