"""Serve a coordinator over HTTP: Flask for the routes, waitress for the threads, loopback unless told otherwise."""

from __future__ import annotations

import functools
import ipaddress
import logging
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import waitress
from flask import Flask, Response, request
from waitress import wasyncore
from waitress.server import BaseWSGIServer
from werkzeug.exceptions import HTTPException

from ding_like.comm import messages as m
from ding_like.comm.file_routes import add_file_routes
from ding_like.comm.keys import Keys, Verifier
from ding_like.comm.rate_limit import RateLimit
from ding_like.comm.refusal import RefusedError
from ding_like.comm.service import CoordinatorService
from ding_like.comm.wire import check_id, decode, encode
from ding_like.errors import CommError, ConfigError

logger = logging.getLogger(__name__)
# Requests that wait for a thread are no news: where there are too many, answers take longer.
logging.getLogger("waitress.queue").setLevel(logging.ERROR)

MAX_BODY = 1 << 20
_CLOSE_S = 10.0
_MAX_WORKERS_REMEMBERED = 10_000
_ANSWERS_KEPT = 8  # of one worker
# Of one worker; the fastest collector of a small env sends some hundred segments a second.
_REQUESTS_PER_S, _REQUESTS_AT_ONCE = 1000.0, 2000.0
_JSON = "application/json"
_HTTP_CODES = {404: "unknown", 405: "wrong_method", 413: "too_large", 415: "wrong_content_type"}


class CoordinatorServer:
    """Serve `service` from a thread of its own, between `start` and `close`.

    Files of workers that share no folder go below the folders `segments` and `weights`.

    Raises ConfigError for a host that others can reach without keys, CommError for a port that is in use.
    """

    def __init__(
        self,
        service: CoordinatorService,
        keys: Keys | None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        threads: int = 16,
        segments: Path | None = None,
        weights: Path | None = None,
    ) -> None:
        if not is_loopback(host):
            if not keys:
                raise ConfigError(f"the coordinator would listen on {host} for everybody; give it keys (--key-file).")
            logger.warning(
                "listening on %s: requests are signed, but not encrypted; use a TLS proxy or a private net", host
            )
        hosts = {"127.0.0.1", "localhost", "[::1]"} if is_loopback(host) else None
        app = make_app(service, keys, hosts=hosts, segments=segments, weights=weights)
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.create_server((host, port), family=family)
        except OSError as error:
            reason = (error.strerror or str(error)).partition(" (while")[0]
            raise CommError(
                f"the coordinator cannot listen on {host}:{port}: {reason}. Give another --port (0 takes any that is "
                "free), or a --host of this machine."
            ) from error
        self._server: BaseWSGIServer = waitress.create_server(
            app,
            sockets=[listener],
            threads=threads,
            channel_timeout=15,
            max_request_body_size=MAX_BODY if segments is None and weights is None else m.MAX_FILE,
            max_request_header_size=16_384,
            connection_limit=2000,
            asyncore_use_poll=True,  # select() knows no descriptors above 1024
            ident=None,
        )
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        self._is_closed = False
        self._thread = threading.Thread(target=self._server.run, name="coordinator-http", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Tell whether the thread that answers is there."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Stop answering and free the port."""
        if self._is_closed:
            return
        self._is_closed = True
        # First the threads that answer, which still write to connections; then, in its own thread, the loop over those.
        self._server.task_dispatcher.shutdown(timeout=_CLOSE_S)
        if self._thread.is_alive():
            try:
                self._server.trigger.pull_trigger(self._close_connections)
            except OSError as error:
                # The loop was awake, and has closed the trigger before it was pulled.
                logger.debug("the loop had closed already: %s", error)
            self._thread.join(_CLOSE_S)
        else:
            self._close_connections()

    def _close_connections(self) -> None:
        wasyncore.close_all(self._server._map, ignore_all=True)


def make_app(
    service: CoordinatorService,
    keys: Keys | None,
    *,
    hosts: set[str] | None = None,
    segments: Path | None = None,
    weights: Path | None = None,
) -> Flask:
    """Return the application. `hosts` are the names that it may be called by, None for any."""
    app = Flask(__name__)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.url_map.merge_slashes = False  # what is signed is what is asked
    gate = _Gate(keys, hosts)
    _add_routes(app, service, gate)
    add_file_routes(app, gate.check, segments=segments, weights=weights)

    @app.errorhandler(Exception)
    def refuse(error: Exception) -> Response:
        if isinstance(error, RefusedError):
            return _refusal(error)
        if isinstance(error, HTTPException):
            return _refusal(RefusedError(_HTTP_CODES.get(error.code or 400, "malformed"), error.name))
        logger.error("a request failed", exc_info=error)
        return _refusal(RefusedError("internal", "the coordinator failed at this request; its log says how"))

    return app


class _Gate:
    """Let requests in: who may ask what, and an answer a second time where the first got lost."""

    def __init__(self, keys: Keys | None, hosts: set[str] | None) -> None:
        self._verifier = Verifier(keys, wall_clock=time.time) if keys else None
        self._hosts = hosts
        self.rate = RateLimit(_REQUESTS_PER_S, _REQUESTS_AT_ONCE)
        self._lock = threading.Lock()
        # Worker -> its last answers by number; a worker's threads may have one request each on the way.
        self._last: OrderedDict[str, OrderedDict[str, Response]] = OrderedDict()

    def check(self, roles: tuple[str, ...]) -> str | None:
        """Refuse a request that is not signed by one of these roles, or that a browser might have sent.

        Returns the role that signed it, None where no keys are asked for.
        """
        host = urlsplit(f"//{request.host}").hostname
        if self._hosts is not None and host not in {name.strip("[]") for name in self._hosts}:
            raise RefusedError("malformed", "the Host of the request is not this coordinator")
        if request.headers.get("Origin") is not None:
            raise RefusedError("wrong_role", "requests of web pages are not answered")
        if request.headers.get("X-DL-Protocol") != str(m.PROTOCOL):
            raise RefusedError("wrong_protocol", f"this coordinator speaks protocol {m.PROTOCOL}")
        if self._verifier is None:
            return None
        path = request.full_path if request.query_string else request.path
        role = self._verifier.role_of(
            request.headers.get("Authorization", ""), request.method, path, request.get_data(cache=True)
        )
        if role not in roles:
            raise RefusedError("wrong_role", f"a {role} may not ask for this")
        return role

    def once(self, worker_id: str, answer: Callable[[], Response]) -> Response:
        """Answer a request, or repeat the answer that was given to the same one."""
        number = f"{request.headers.get('X-DL-Incarnation', '')}:{request.headers.get('X-DL-Seq', '')}"
        if number == ":":
            return answer()
        with self._lock:
            answers = self._last.get(worker_id)
            known = None if answers is None else answers.get(number)
        if known is not None:
            return known
        response = answer()
        with self._lock:
            answers = self._last.setdefault(worker_id, OrderedDict())
            answers[number] = response
            if len(answers) > _ANSWERS_KEPT:
                answers.popitem(last=False)
            self._last.move_to_end(worker_id)
            if len(self._last) > _MAX_WORKERS_REMEMBERED:
                self._last.popitem(last=False)
        return response


_WORKERS = ("collector", "learner")
# (method, path, message class, method of the service, roles). {x} in a path is an id.
_ROUTES: tuple[tuple[str, str, Any, str, tuple[str, ...]], ...] = (
    ("POST", "/v1/workers/<w>/heartbeat", m.Heartbeat, "heartbeat", _WORKERS),
    ("DELETE", "/v1/workers/<w>", m.Leave, "leave", _WORKERS),
    ("POST", "/v1/tasks/claim", m.Claim, "claim", _WORKERS),
    ("POST", "/v1/tasks/<t>/data", m.SendData, "send_data", ("collector",)),
    ("POST", "/v1/tasks/<t>/info", m.TaskInfo, "task_info", _WORKERS),
    ("POST", "/v1/tasks/<t>/finish", m.FinishTask, "finish_task", _WORKERS),
    ("POST", "/v1/tasks/<t>/fail", m.FailTask, "fail_task", _WORKERS),
    ("POST", "/v1/buffers/<b>/sample", m.Sample, "sample", ("learner",)),
    ("POST", "/v1/buffers/<b>/update", m.Update, "update", ("learner",)),
    ("POST", "/v1/policies/<p>", m.Publish, "publish", ("learner",)),
)


def _add_routes(app: Flask, service: CoordinatorService, gate: _Gate) -> None:
    @app.get("/v1/hello")
    def hello() -> Response:
        return _reply(service.hello())

    @app.get("/v1/healthz")
    def healthz() -> Response:
        return _reply(m.Ok())

    @app.get("/v1/status")
    def status() -> Response:
        gate.check(("admin", *_WORKERS))
        return Response(encode(service.status()), mimetype=_JSON)

    @app.post("/v1/workers")
    def register() -> Response:
        role, message = gate.check(_WORKERS), _message(m.Register)
        if role is not None and message.role != role:
            raise RefusedError("wrong_role", f"the key of a {role} does not make a {message.role}")
        return _reply(service.register(message))

    for method, path, kind, name, roles in _ROUTES:
        view = functools.partial(_answer, gate, getattr(service, name), kind, roles)
        app.add_url_rule(path, endpoint=f"{method} {path}", view_func=view, methods=[method])


def _answer(gate: _Gate, ask: Callable[..., Any], kind: Any, roles: tuple[str, ...], **ids: str) -> Response:
    """Check a request, decode it, and hand it to the service."""
    role = gate.check(roles)
    worker_id = check_id(ids.pop("w", request.headers.get("X-DL-Worker", "")), "the worker's id")
    if role is not None and not worker_id.startswith(f"{role}-"):
        raise RefusedError("wrong_role", f"the key of a {role} does not speak for {worker_id}")
    gate.rate.check(worker_id)
    named = [check_id(value, "the id in the path") for value in ids.values()]
    message = _message(kind)
    return gate.once(worker_id, lambda: _reply(ask(worker_id, *named, message)))


def _message(kind: Any) -> Any:
    if request.mimetype != _JSON:
        raise RefusedError("wrong_content_type", f"the body is to be {_JSON}")
    return decode(kind, request.get_data(cache=True))


def _reply(message: Any) -> Response:
    return Response(encode(message), mimetype=_JSON)


def _refusal(error: RefusedError) -> Response:
    body = m.ErrorBody(error.code, error.message, error.retryable, error.retry_after_s, error.details)
    return Response(encode(m.ErrorReply(body)), status=error.status, mimetype=_JSON)


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches a host name or address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
