"""Serve a policy over HTTP: Flask for the routes, waitress for the threads, loopback unless told otherwise."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from typing import Any, Protocol

from flask import Flask, Response, g, request
from werkzeug.exceptions import HTTPException

from ding_like.comm.rest.listening import listen, url_of
from ding_like.comm.rest.messages import MAX_FILE
from ding_like.comm.rest.refusal import RefusedError
from ding_like.comm.serve.access import Access, check_host
from ding_like.comm.serve.draining import DrainingServer, error_body
from ding_like.comm.serve.limits import Limits
from ding_like.comm.serve.messages import (
    JSON,
    VERSION_HEADER,
    ActRequest,
    ActResponse,
    format_of,
    read_request,
    write_response,
)
from ding_like.utils.latency import Latency

logger = logging.getLogger(__name__)

_THREADS = 4  # that answer requests; the loop reads bodies, and forward passes run one at a time
_LATENCIES = 10_000  # the last ones, of which p50 and p99 are computed
_IDLE_S = 120.0  # a client between two steps of a slow env keeps its connection
_GRACE_S = 10.0
_ROUTES = "POST /act, GET /health"


class ServablePolicy(Protocol):
    """Define what the server needs of a policy; its weights may be replaced between two calls."""

    @property
    def max_body(self) -> int:
        """Return the largest allowed body of a request, in bytes."""

    def act(self, request: ActRequest) -> ActResponse:
        """Return the response. Raises RefusedError for a request that does not fit the policy."""

    def health(self) -> dict[str, Any]:
        """Return what is served, JSON-like."""


class Requests:
    """Count requests and measure how long the last ones took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latency_s: deque[float] = deque(maxlen=_LATENCIES)
        self._answered = self._refused = self._observations = 0

    def note(self, latency_s: float, observations: int) -> None:
        """Count a request that was answered."""
        with self._lock:
            self._answered += 1
            self._observations += observations
            self._latency_s.append(latency_s)

    def note_refused(self) -> None:
        """Count a request that was refused."""
        with self._lock:
            self._refused += 1

    def describe(self) -> dict[str, Any]:
        """Return the counts, and percentiles of the time from a request's arrival at a thread to its answer."""
        with self._lock:
            durations_s = list(self._latency_s)
            counts = {"answered": self._answered, "refused": self._refused, "observations": self._observations}
        latency = Latency.of(durations_s)
        if not latency.count:
            return {**counts, "p50_ms": None, "p99_ms": None}
        return {**counts, "p50_ms": round(latency.p50_ms, 3), "p99_ms": round(latency.p99_ms, 3)}


class PolicyServer:
    """Serve a policy from a thread of its own, between `start` and `close`, at `url`.

    Raises ConfigError for a host that others can reach without a token, CommError for a port that is in use.
    """

    def __init__(
        self,
        policy: ServablePolicy,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        check_host(host, token)
        access = Access(token, host)
        self.requests = Requests()
        app = make_app(policy, access, self.requests)
        listener = listen(host, port, failing="the policy cannot be served on")
        self._server = DrainingServer(
            app,
            listener,
            is_signed=lambda method, path, headers: access.is_known(headers),
            limits=limits or Limits.of_this_process()._replace(idle_s=_IDLE_S),
            threads=_THREADS,
            max_body=MAX_FILE,
        )
        self.url = url_of(host, listener)
        self._thread = threading.Thread(target=self._server.run, name="policy-http", daemon=True)
        self._is_closed = False

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Tell whether the thread that reads requests is running."""
        return self._thread.is_alive()

    def close(self, *, grace_s: float = _GRACE_S) -> None:
        """Answer requests received so far, within `grace_s`, then free the port; may be called again."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._thread.is_alive():
            self._server.drain(grace_s)
            self._thread.join(grace_s + _GRACE_S)
        self._server.task_dispatcher.shutdown(timeout=grace_s)
        self._server.close_all()


def make_app(policy: ServablePolicy, access: Access, requests: Requests) -> Flask:
    """Return the Flask application with its routes and error handlers."""
    app = Flask(__name__)
    app.config["MAX_CONTENT_LENGTH"] = policy.max_body
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False

    @app.before_request
    def check_access() -> None:
        g.began_s = time.perf_counter()
        access.check({name.upper().replace("-", "_"): value for name, value in request.headers.items()})
        if request.headers.get("Content-Encoding") is not None:
            raise RefusedError(
                "wrong_content_type", "the request has a Content-Encoding, expected a plain body: leave the header out"
            )

    @app.post("/act")
    def act() -> Response:
        form = format_of(request.mimetype)
        answer = policy.act(read_request(request.get_data(), form))
        response = Response(write_response(answer, form), mimetype=form)
        response.headers[VERSION_HEADER] = json.dumps(answer.version)
        requests.note(time.perf_counter() - g.began_s, len(answer.action))
        return response

    @app.get("/")
    @app.get("/health")
    def health() -> Response:
        told = {"status": "ok", **policy.health(), "requests": requests.describe()}
        return Response(json.dumps(told), mimetype=JSON)

    @app.errorhandler(Exception)
    def refuse(error: Exception) -> Response:
        requests.note_refused()
        if isinstance(error, HTTPException):
            return _of_http(error, policy)
        if not isinstance(error, RefusedError):
            logger.error("a request failed", exc_info=error)
            error = RefusedError("internal", "the server failed at this request; see its log")
        return Response(error_body(error.code, error.message), status=error.status, mimetype=JSON)

    return app


def _of_http(error: HTTPException, policy: ServablePolicy) -> Response:
    status = error.code or 400
    what = f"{request.method} {request.path[:80]}"
    said = {
        404: ("unknown", f"there is no {request.path[:80]} here, expected {_ROUTES}"),
        405: ("wrong_method", f"{what} is not answered, expected {_ROUTES}"),
        413: (
            "too_large",
            f"the body has {request.content_length or 0:,} bytes, expected at most {policy.max_body:,}: send fewer "
            "observations at a time, and large ones as safetensors",
        ),
    }
    code, message = said.get(status, ("malformed", error.name))
    response = Response(error_body(code, message), status=status, mimetype=JSON)
    if status == 405:
        response.headers["Allow"] = ", ".join(sorted(getattr(error, "valid_methods", None) or ()))
    return response
