"""HTTP server of a coordinator: Flask for the routes, waitress for the threads, loopback by default."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import logging
import re
import resource
import threading
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from flask import Flask, Response, request
from waitress import wasyncore
from waitress.server import create_server
from werkzeug.exceptions import HTTPException

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.auth import Caller, Clock, Gate, is_secret, steady_clock
from ding_like.comm.rest.files import read_below, write_below
from ding_like.comm.rest.keys import Keys
from ding_like.comm.rest.listening import listen, url_of
from ding_like.comm.rest.messages import MAX_FILE, OCTETS, ROUTES, SHA256_HEADER, Route, Stamp
from ding_like.comm.rest.refusal import RefusedError
from ding_like.comm.rest.wire import check_id, decode, encode
from ding_like.comm.weights.delta import delta
from ding_like.errors import ConfigError
from ding_like.utils.addresses import is_loopback
from ding_like.utils.files import is_full
from ding_like.utils.interval import Interval

logger = logging.getLogger(__name__)
# Requests that wait for a thread are no news: where there are too many, answers take longer.
logging.getLogger("waitress.queue").setLevel(logging.ERROR)

MAX_BODY = m.MAX_BODY
_MAX_HEAD = 16_384  # bytes
_CONNECTIONS = 2000  # at most
_OTHER_FILES = 256  # descriptors that the coordinator itself may need
_CLOSE_S = 10.0
_JSON = "application/json"
_HTTP_CODES = {404: "unknown", 405: "wrong_method", 413: "too_large", 415: "wrong_content_type"}


class LockedCalls(Protocol):
    """Service of a coordinator that is called by many threads, with messages that may come twice."""

    def answer(self, name: str, worker_id: str, ids: tuple[str, ...], message: Any, stamp: Stamp | None) -> Any:
        """Answer the message of a route, or repeat the answer that the same stamp of this worker had.

        Raises RefusedError with code `old_message` for a number below the last of its channel.
        """

    def secret_of(self, worker_id: str) -> str | None:
        """Return the secret that a worker registered with; None for a worker that is not there."""

    def hello(self) -> m.Hello: ...

    def register(self, message: m.Register) -> m.Registered: ...

    def status(self) -> dict[str, Any]: ...


class CoordinatorServer:
    """HTTP server of `service`, in a thread of its own between `start` and `close`.

    Files of workers that share no folder go below the folders `segments` and `weights`. Floods, slow sockets and TLS
    are a reverse proxy's work: see docs/parallel.md.

    Raises ConfigError for a host that others can reach without keys, CommError for a port that is in use.
    """

    def __init__(
        self,
        service: LockedCalls,
        keys: Keys | None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        threads: int = 16,
        segments: Path | None = None,
        weights: Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`clock` judges signatures, by default one that no change of the wall's clock moves."""
        _check_host(host, keys)
        hosts = {"127.0.0.1", "localhost", "[::1]"} if is_loopback(host) else None
        app = make_app(service, keys, hosts=hosts, segments=segments, weights=weights, clock=clock)
        listener = listen(host, port, failing="the coordinator cannot listen on")
        self._sockets: dict[int, Any] = {}
        self._server = create_server(
            app,
            map=self._sockets,
            sockets=[listener],
            threads=threads,
            connection_limit=_most_connections(),
            max_request_body_size=m.MAX_FILE + 1,
            max_request_header_size=_MAX_HEAD,
            asyncore_use_poll=True,  # select() knows no descriptors above 1024
            log_socket_errors=False,
            ident=None,
        )
        self.url = url_of(host, listener)
        self._is_closed = False
        self._thread = threading.Thread(target=self._server.run, name="coordinator-http", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """True while the thread that answers runs."""
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
                self._server.trigger.pull_trigger(self._close_sockets)
            except OSError as error:
                # The loop was awake, and has closed the trigger before it was pulled.
                logger.debug("the loop had closed already: %s", error)
            self._thread.join(_CLOSE_S)
        else:
            self._close_sockets()

    def _close_sockets(self) -> None:
        wasyncore.close_all(self._sockets, ignore_all=True)


def _most_connections() -> int:
    """Return how many connections leave this process descriptors for its own files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = _CONNECTIONS if soft == resource.RLIM_INFINITY else max(soft - _OTHER_FILES, soft // 2)
    return max(min(_CONNECTIONS, free), 8)


def make_app(
    service: LockedCalls,
    keys: Keys | None,
    *,
    hosts: set[str] | None = None,
    segments: Path | None = None,
    weights: Path | None = None,
    clock: Clock | None = None,
) -> Flask:
    """Return the application. `hosts` are the names that it may be called by, None for any."""
    gate = Gate(keys, hosts, secret_of=service.secret_of, clock=clock or steady_clock())
    app = Flask(__name__)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.url_map.merge_slashes = False  # what is signed is what is asked
    _add_routes(app, service, gate)
    add_file_routes(app, gate, segments=segments, weights=weights)
    app.after_request(gate.sign)

    @app.errorhandler(Exception)
    def refuse(error: Exception) -> Response:
        if isinstance(error, RefusedError):
            return _refusal(error)
        if isinstance(error, HTTPException):
            return _refusal(RefusedError(_HTTP_CODES.get(error.code or 400, "malformed"), error.name))
        logger.error("a request failed", exc_info=error)
        return _refusal(RefusedError("internal", "the coordinator failed at this request; its log says how"))

    return app


_WORKERS = ("collector", "learner")


def _add_routes(app: Flask, service: LockedCalls, gate: Gate) -> None:
    @app.get("/v1/hello")
    def hello() -> Response:
        gate.greet()
        # The time by which signatures are judged here, whatever clock the service has.
        return _reply(dataclasses.replace(service.hello(), server_time=gate.now_s()))

    @app.get("/v1/healthz")
    def healthz() -> Response:
        return _reply(m.Ok())

    @app.get("/v1/status")
    def status() -> Response:
        gate.check(("admin", *_WORKERS), any_client=True)
        return Response(encode(service.status()), mimetype=_JSON)

    @app.post("/v1/workers")
    def register() -> Response:
        role, message = gate.check(_WORKERS, any_client=True).role, _message(m.Register)
        if role is not None and message.role != role:
            raise RefusedError("wrong_role", f"the key of a {role} does not make a {message.role}")
        if role is not None and not is_secret(message.secret):
            raise RefusedError("malformed", "a worker registers with a secret: 32 to 128 hex digits that it drew")
        return _reply(service.register(message))

    for name, route in ROUTES.items():
        path = route.path.replace("{", "<").replace("}", ">")
        view = functools.partial(_answer, gate, service, name, route)
        app.add_url_rule(path, endpoint=name, view_func=view, methods=[route.method])


def _answer(gate: Gate, service: LockedCalls, name: str, route: Route, **ids: str) -> Response:
    """Check a request, decode it, and hand it to the service, which acts once on what comes twice."""
    caller = gate.check(route.roles, worker=ids.pop("worker", None))
    named = tuple(check_id(value, "the id in the path") for value in ids.values())
    return _reply(service.answer(name, caller.worker, named, _message(route.message), caller.stamp))


def _message(kind: Any) -> Any:
    if request.mimetype != _JSON:
        raise RefusedError("wrong_content_type", f"the body is to be {_JSON}")
    return decode(kind, request.get_data(cache=True))


def _reply(message: Any) -> Response:
    return Response(encode(message), mimetype=_JSON)


def _refusal(error: RefusedError) -> Response:
    body = m.ErrorBody(error.code, error.message, error.retryable, error.retry_after_s, error.details)
    return Response(encode(m.ErrorReply(body)), status=error.status, mimetype=_JSON)


def _check_host(host: str, keys: Keys | None) -> None:
    """Refuse a host that would let strangers in unasked."""
    if not host.strip():
        raise ConfigError(
            "the coordinator's host is empty, which would be every interface of this machine: give --host 127.0.0.1 "
            "for this machine alone, or --host 0.0.0.0 with --key-file for all that reach it."
        )
    if is_loopback(host):
        return
    if not keys:
        raise ConfigError(f"the coordinator would listen on {host} for every host; give it keys (--key-file).")
    logger.warning("listening on %s: requests are signed, but not encrypted; use a TLS proxy or a private net", host)


logger = logging.getLogger(__name__)

FILE_ROUTES = ("/v1/segments/", "/v1/weights/")
_WORDS = Interval(60.0, starts_due=True)
_VERSION = re.compile(r"(?P<attempt>[0-9]{1,15})-(?P<version>[0-9]{1,15})")


class _Place(NamedTuple):
    folder: Path
    names: tuple[str, ...]  # of folders below it, and of the file


def add_file_routes(app: Flask, gate: Gate, *, segments: Path | None, weights: Path | None) -> None:
    """Add PUT and GET of segments and weights below two folders; without a folder nothing is there.

    Names are ids, never paths. Collectors bring segments, each under its own name, and fetch weights, learners the
    other way round.
    """

    @app.put("/v1/segments/<name>")
    def put_segment(name: str) -> Response:
        caller = gate.check(("collector",), any_client=True)
        place = _segment_place(segments, name)
        _check_brings(caller)
        if caller.role is not None and not name.startswith(f"{caller.worker}."):
            raise RefusedError(
                "wrong_role", f"{caller.worker} does not bring {name}: segments are named after who does"
            )
        return _take(place)

    @app.get("/v1/segments/<name>")
    def get_segment(name: str) -> Response:
        gate.check(("learner",), any_client=True)
        return _give(_segment_place(segments, name))

    @app.put("/v1/weights/<policy_id>/<version>")
    def put_weights(policy_id: str, version: str) -> Response:
        caller = gate.check(("learner",), any_client=True)
        place = _weights_place(weights, policy_id, version)
        _check_brings(caller)
        return _take(place)

    @app.get("/v1/weights/<policy_id>/<version>")
    def get_weights(policy_id: str, version: str) -> Response:
        gate.check(("collector", "learner"), any_client=True)
        have = request.args.get("have")  # a version that the caller has: what changed since will do, if that is less
        base = None if have is None else _weights_place(weights, policy_id, have)
        return _give(_weights_place(weights, policy_id, version), base)

    @app.before_request
    def allow_large_bodies() -> None:
        if request.method == "PUT" and request.path.startswith(FILE_ROUTES):
            request.max_content_length = MAX_FILE


def _check_brings(caller: Caller) -> None:
    """Refuse files of a client that has not registered, where it is known who asks."""
    if caller.role is not None and not caller.worker:
        raise RefusedError("wrong_role", "files are brought by workers: register first")


def _segment_place(folder: Path | None, name: str) -> _Place:
    return _Place(_folder(folder), (f"{check_id(name, 'the name of a segment')}.safetensors",))


def _weights_place(folder: Path | None, policy_id: str, version: str) -> _Place:
    found = _VERSION.fullmatch(version)
    if found is None:
        raise RefusedError("malformed", "weights are named <attempt>-<version>, two numbers of up to 15 digits")
    name = f"{int(found['attempt'])}-{int(found['version'])}.safetensors"
    return _Place(_folder(folder), (check_id(policy_id, "policy_id"), name))


def _folder(folder: Path | None) -> Path:
    if folder is None:
        raise RefusedError("unknown", "this coordinator takes no files: its workers share a folder")
    return folder


def _take(place: _Place) -> Response:
    """Keep the body as a file. The same again is fine; other bytes under a name that is taken are not."""
    if request.mimetype != OCTETS:
        raise RefusedError("wrong_content_type", f"the body is to be {OCTETS}")
    data, name = request.get_data(cache=True), place.names[-1]
    digest = hashlib.sha256(data).hexdigest()
    if digest != request.headers.get(SHA256_HEADER, ""):
        raise RefusedError("schema", f"the body's hash is not that of the header {SHA256_HEADER}")
    known = read_below(*place, limit=MAX_FILE)
    if known is not None:
        if hashlib.sha256(known).hexdigest() != digest:
            raise RefusedError("version_not_newer", f"{name} is there already, with other bytes")
        return Response(status=200)
    try:
        write_below(*place, data)
    except NotADirectoryError as error:
        raise RefusedError(
            "unknown", f"{name} has no place: there is no folder of its policy, but something else"
        ) from error
    except OSError as error:
        if not is_full(error):
            raise
        message = f"the coordinator's disk is full: {len(data)} bytes of {name} found no room"
        if _WORDS.pass_s():  # workers try again every second
            logger.warning("%s", message)
        raise RefusedError("storage_full", message, retry_after_s=1.0) from error
    return Response(status=200)


def _give(place: _Place, base: _Place | None = None) -> Response:
    """Answer with a file, or with its delta to a file `base` that is there as well, if that is shorter."""
    data = read_below(*place, limit=MAX_FILE)
    if data is None:
        raise RefusedError("no_file", f"there is no {place.names[-1]}")
    old = None if base is None else read_below(*base, limit=MAX_FILE)
    if old is not None:
        changes = delta(np.frombuffer(old, np.uint8), np.frombuffer(data, np.uint8))
        data = data if changes is None else changes.tobytes()
    return Response(data, mimetype=OCTETS, headers={SHA256_HEADER: hashlib.sha256(data).hexdigest()})
