"""HTTP servers: the checks of hosts and web pages that all make, and a coordinator's routes of messages and files.

Floods, slow sockets and TLS are a reverse proxy's work: docs/parallel.md has the settings of one.

A request that comes twice has the same (worker, channel, number) and gets the saved reply: see `core/journal.py`.

Files go through the coordinator for workers that share no folder with it. Their names are ids, never paths.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import hmac
import logging
import re
import select
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from flask import Flask, Response, g, request
from waitress import wasyncore
from waitress.server import create_server
from werkzeug.exceptions import HTTPException

from ding_like.comm.keys import Keys
from ding_like.comm.rest import messages as m
from ding_like.comm.tensors import delta
from ding_like.errors import CommError, ConfigError
from ding_like.types import Json
from ding_like.utils.files import atomic_write, is_full, read_regular_file
from ding_like.utils.measure import Interval
from ding_like.utils.processes import OWN_HOST, check_known, is_loopback

# Requests that wait for a thread are not worth a line each: where there are too many, answers take longer.
logging.getLogger("waitress.queue").setLevel(logging.ERROR)

MAX_BODY = 64 << 20  # bytes of any request; an application may set a lower limit
_MAX_HEAD = 16_384
_CONNECTIONS = 2000  # at most
_OTHER_FILES = 256  # descriptors that the process itself may need
_LOOK_S = 1.0
_GRACE_S = 10.0
_LOCAL_NAMES = ("127.0.0.1", "::1", "localhost")
_FIX = "Give another --port (0 takes any that is free), or a --host of this machine."
_HOST = re.compile(r"(?:(?P<name>[A-Za-z0-9.-]+)|\[(?P<six>[0-9A-Fa-f:]+)\])(:[0-9]{1,5})?")


def _free_descriptors() -> int:
    """Return how many files and sockets this process may open, less those that it needs itself."""
    try:
        import resource
    except ImportError:  # Windows, which limits none
        return _CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _CONNECTIONS if soft == resource.RLIM_INFINITY else max(soft - _OTHER_FILES, soft // 2)


class HttpServer:
    """HTTP server of `app` at `url`, in a thread of its own between `start` and `close`.

    Raises CommError, which begins with `failing` and ends with `fix`, for a port that is in use and for a host that is
    not this machine's.
    """

    def __init__(self, app: Flask, *, host: str, port: int, threads: int, failing: str, fix: str = _FIX) -> None:
        listener = _listen(host, port, failing, fix)
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        self._sockets: dict[int, Any] = {}
        self._server = create_server(
            app,
            map=self._sockets,
            sockets=[listener],
            threads=threads,
            connection_limit=max(min(_CONNECTIONS, _free_descriptors()), 8),  # some are left for its own files
            max_request_body_size=MAX_BODY + 1,
            max_request_header_size=_MAX_HEAD,
            asyncore_use_poll=hasattr(select, "poll"),  # select() cannot wait for descriptors above 1024
            log_socket_errors=False,
            ident=None,
        )
        self._close_by_s: float | None = None
        self._thread = threading.Thread(target=self._run, name="http-server", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """True while the thread that reads requests runs."""
        return self._thread.is_alive()

    def close(self, *, grace_s: float = _GRACE_S) -> None:
        """Answer the requests that were received, within `grace_s`, then free the port; may be called again."""
        if self._close_by_s is not None:
            return
        self._close_by_s = time.monotonic() + grace_s
        if self._thread.is_alive():
            self._server.pull_trigger()
            self._thread.join(grace_s + _GRACE_S)
        self._server.task_dispatcher.shutdown(timeout=grace_s)
        wasyncore.close_all(self._sockets, ignore_all=True)

    def _run(self) -> None:
        while self._close_by_s is None:
            wasyncore.poll2(_LOOK_S, self._sockets)
        self._server.handle_accept()  # a client that has connected has sent a request, or is about to
        wasyncore.dispatcher.close(self._server)  # the port
        wasyncore.poll2(0.0, self._sockets)  # read what has arrived
        while self._close_idle() and (left_s := self._close_by_s - time.monotonic()) > 0:
            wasyncore.poll2(min(left_s, _LOOK_S), self._sockets)

    def _close_idle(self) -> int:
        """Close idle connections; return how many are left."""
        channels = self._server.active_channels
        for channel in list(channels.values()):
            # In this order: a response is in the buffer before its request is removed.
            if not channel.requests and not channel.total_outbufs_len and channel.request is None:
                channel.handle_close()
        return len(channels)


def check_host(host: str, *, has_secret: bool, remedy: str) -> None:
    """Raise ConfigError for a host that is empty or not known, and for one that other machines reach without a secret.

    `remedy` is the option that gives a secret, and the command that makes one.
    """
    if not host.strip():
        raise ConfigError(
            "the host is empty, which would be every interface of this machine: give --host 127.0.0.1 for this machine "
            f"alone, or --host 0.0.0.0 and {remedy}."
        )
    check_known(host, "--host", OWN_HOST)
    if not has_secret and not is_loopback(host):
        raise ConfigError(f"the host {host} can be reached from other machines: give {remedy}.")


def local_names(host: str) -> tuple[str, ...] | None:
    """Return the names by which clients may call a server on `host`; None for any, where other machines reach it."""
    return _LOCAL_NAMES if is_loopback(host) else None


def is_called_by(names: tuple[str, ...] | None) -> bool:
    """Return whether the Host of the present request is one of these names; None: any is right."""
    found = _HOST.fullmatch(request.headers.get("Host", ""))
    return names is None or (found is not None and (found["name"] or found["six"]).lower() in names)


def check_envelope(names: tuple[str, ...] | None) -> None:
    """Raise RefusedError for the present request if a web page sent it, or if its body is encoded.

    A web page whose name was made to resolve to this machine (DNS rebinding) sends that name as Host.
    """
    if names is not None and not is_called_by(names):
        host = request.headers.get("Host", "")
        raise m.RefusedError(
            "malformed", f"the Host of the request is {host[:80]!r}, expected one of {', '.join(names)}"
        )
    if "Origin" in request.headers:
        raise m.RefusedError("wrong_role", "the request has an Origin: requests of web pages are not answered")
    if "Content-Encoding" in request.headers:
        raise m.RefusedError(
            "wrong_content_type", "the request has a Content-Encoding, expected a plain body: leave the header out"
        )


def _listen(host: str, port: int, failing: str, fix: str) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]
        raise CommError(f"{failing} {host}:{port}: {reason}. {fix}") from error


logger = logging.getLogger(__name__)

_JSON = "application/json"
_WINDOW_S = 300.0  # for which a signature holds
_AUTHORIZATION = re.compile(r"DL3 key=(?P<role>[a-z]{1,16}),ts=(?P<ts>\d{1,12}),sig=(?P<sig>[0-9a-f]{64})")
_TURN = re.compile(r"(?P<channel>[A-Za-z0-9][A-Za-z0-9._-]{0,63}):(?P<number>[1-9][0-9]{0,14})")
_HTTP_CODES = {404: "unknown", 405: "wrong_method", 413: "too_large", 415: "wrong_content_type"}
_WORKERS = ("collector", "learner")
_FILE_ROUTES = ("/v1/segments/", "/v1/weights/")
_VERSION = re.compile(r"(?P<attempt>[0-9]{1,15})-(?P<version>[0-9]{1,15})")
# Of a name that is no file, or a link, or below one.
_NO_FILE = (None, errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENXIO)
_FULL_DISK_WARNINGS = Interval(60.0, starts_due=True)


class Caller(NamedTuple):
    """Sender of a request. Without keys it is not known, and `role` is None."""

    role: str | None
    worker: str  # id, of a registered worker
    stamp: m.Stamp | None


class Gate:
    """Check of a coordinator's requests, by the keys of the run and the secrets of its workers."""

    def __init__(self, keys: Keys | None, *, secret_of: Callable[[str], str | None], clock: m.Clock) -> None:
        self._keys, self._secret_of = dict(keys or {}), secret_of
        self.clock = clock  # by which signatures are judged: seconds since 1970, or nearly so

    def check(self, roles: tuple[str, ...], *, worker: str | None = None, any_client: bool = False) -> Caller:
        """Return the sender of the present request. Raises RefusedError unless one of these roles signed it.

        The request speaks for a registered worker: `worker`, where its path names one. With `any_client` it may come
        from a client that has not registered.
        """
        if request.headers.get("X-DL-Protocol") != str(m.PROTOCOL):
            raise m.RefusedError("wrong_protocol", f"this coordinator speaks protocol {m.PROTOCOL}")
        named, role = request.headers.get("X-DL-Worker", ""), None
        if self._keys:
            role = self._check_signature(roles)
            if worker not in (None, named):
                raise m.RefusedError("wrong_role", f"{named or 'a nameless request'} does not speak for {worker}")
        else:
            named = worker or named
        if named or not any_client:
            m.check_id(named, "the worker's id")
        turn = request.headers.get("X-DL-Seq", "")
        found = _TURN.fullmatch(turn)
        if found is None and (turn or (role is not None and named)):
            raise m.RefusedError("malformed", "the header X-DL-Seq is to be <channel>:<number>")
        return Caller(role, named, found and m.Stamp(found["channel"], int(found["number"])))

    def sign(self, response: Response) -> Response:
        """Sign an answer, if its request was signed."""
        if "signer" in g:
            key, worker, asked = g.signer
            signature = m.answer_signature(key, worker, asked, response.status_code, response.get_data())
            response.headers[m.ANSWER_HEADER] = signature
        return response

    def _check_signature(self, roles: tuple[str, ...]) -> str:
        """Return the role that signed the present request: just now, with this body."""
        head = self.verify()
        if head.role not in roles:
            raise m.RefusedError("wrong_role", f"a {head.role} may not ask for this")
        off_s = head.ts - self.clock()
        if abs(off_s) > _WINDOW_S:
            when = f"{abs(off_s):.0f} s {'ahead' if off_s > 0 else 'ago'}"
            raise m.RefusedError("bad_clock", f"the request was signed {when}: more than {_WINDOW_S:g} s")
        if m.body_hash(request.get_data(cache=True)) != head.sha256:
            raise m.RefusedError("bad_key", "the body is not the one that was signed")
        return head.role

    def verify(self) -> m.Head:
        """Return the signed fields of the present request, of any time. Raises RefusedError for a wrong signature."""
        header = request.headers.get
        found = _AUTHORIZATION.fullmatch(header("Authorization", ""))
        key = self._keys.get(found["role"]) if found else None
        if found is None or key is None:
            raise m.RefusedError("bad_key", "the request is not signed with a key that is known here")
        worker, role = header("X-DL-Worker", ""), found["role"]
        if worker:
            secret = self._secret_of(m.check_id(worker, "the worker's id"))
            if not secret:
                g.signer = key, worker, found["sig"]  # the one answer that a worker believes with the role's key
                raise m.RefusedError("unknown", f"there is no worker {worker}; register first")
            key = m.own_key(key, worker, secret)
        path = request.full_path if request.query_string else request.path
        sha256, turn = header("X-DL-SHA256", ""), header("X-DL-Seq", "")
        head = m.Head(role, int(found["ts"]), request.method, path, sha256, worker, turn)
        if not hmac.compare_digest(head.signature(key), found["sig"]):
            raise m.RefusedError(
                "bad_key",
                f"the signature does not fit: this is not the key of a {role} here, or not that of "
                f"{worker or 'this request'}, or the request was changed",
            )
        g.signer = key, worker, found["sig"]
        return head


class LockedCalls(Protocol):
    """Service of a coordinator that is called by many threads, with messages that may come twice."""

    def answer(self, name: str, worker_id: str, ids: tuple[str, ...], message: Any, stamp: m.Stamp | None) -> Any:
        """Answer the message of a route, or repeat the answer that the same stamp of this worker had.

        Raises RefusedError with code `old_message` for a number below the last of its channel.
        """

    def secret_of(self, worker_id: str) -> str | None:
        """Return the secret that a worker registered with; None for a worker that is not there."""

    def hello(self) -> m.Hello: ...

    def register(self, message: m.Register) -> m.Registered: ...

    def status(self) -> dict[str, Json]: ...


class CoordinatorServer(HttpServer):
    """HTTP server of `service`. Files go below the folders `segments` and `weights`.

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
        clock: m.Clock | None = None,
    ) -> None:
        """`clock` judges signatures, by default one that no change of the wall's clock moves."""
        check_host(host, has_secret=bool(keys), remedy="--key-file FILE (`ding keys FILE` makes one)")
        if not is_loopback(host):
            logger.warning(
                "listening on %s: requests are signed, but not encrypted; use a TLS proxy or a private net", host
            )
        app = make_app(service, keys, names=local_names(host), segments=segments, weights=weights, clock=clock)
        super().__init__(app, host=host, port=port, threads=threads, failing="the coordinator cannot listen on")


def make_app(
    service: LockedCalls,
    keys: Keys | None,
    *,
    names: tuple[str, ...] | None = None,
    segments: Path | None = None,
    weights: Path | None = None,
    clock: m.Clock | None = None,
) -> Flask:
    """Return the application. `names` are those that it may be called by, None for any."""
    gate = Gate(keys, secret_of=service.secret_of, clock=clock or m.steady_clock())
    app = Flask(__name__)
    app.config["MAX_CONTENT_LENGTH"] = m.MAX_BODY
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.url_map.merge_slashes = False  # what is signed is what is asked
    _add_message_routes(app, service, gate, keys)
    _add_file_routes(app, gate, segments and segments.resolve(), weights and weights.resolve())
    app.after_request(gate.sign)

    @app.before_request
    def check_head() -> None:
        check_envelope(names)
        if request.method == "PUT" and request.path.startswith(_FILE_ROUTES):
            request.max_content_length = m.MAX_FILE

    @app.errorhandler(Exception)
    def refuse(error: Exception) -> Response:
        if isinstance(error, HTTPException):
            error = m.RefusedError(_HTTP_CODES.get(error.code or 400, "malformed"), error.name)
        elif not isinstance(error, m.RefusedError):
            logger.error("a request failed", exc_info=error)
            error = m.RefusedError("internal", "the coordinator failed at this request; its log says how")
        body = m.ErrorBody(error.code, error.message, error.retryable)
        return Response(m.encode(m.ErrorReply(body)), status=error.status, mimetype=_JSON)

    return app


def _add_message_routes(app: Flask, service: LockedCalls, gate: Gate, keys: Keys | None) -> None:
    @app.get("/v1/hello")
    def hello() -> Response:
        if keys and "Authorization" in request.headers:
            gate.verify()  # a hello of any time is let in; one that is signed gets a signed answer
        # The time by which signatures are judged here, whatever clock the service has.
        return _reply(dataclasses.replace(service.hello(), server_time=gate.clock()))

    @app.get("/v1/healthz")
    def healthz() -> Response:
        return _reply(m.Ok())

    @app.get("/v1/status")
    def status() -> Response:
        gate.check(("admin", *_WORKERS), any_client=True)
        return _reply(service.status())

    @app.post("/v1/workers")
    def register() -> Response:
        role, message = gate.check(_WORKERS, any_client=True).role, _message(m.Register)
        if role is not None and message.role != role:
            raise m.RefusedError("wrong_role", f"the key of a {role} does not make a {message.role}")
        if role is not None and not m.is_secret(message.secret):
            raise m.RefusedError("malformed", "a worker registers with a secret: 32 to 128 hex digits that it drew")
        return _reply(service.register(message))

    for name, route in m.ROUTES.items():
        path = route.path.replace("{", "<").replace("}", ">")
        view = functools.partial(_answer, gate, service, name, route)
        app.add_url_rule(path, endpoint=name, view_func=view, methods=[route.method])


def _answer(gate: Gate, service: LockedCalls, name: str, route: m.Route, **ids: str) -> Response:
    """Check a request, decode it, and hand it to the service, which acts once on what comes twice."""
    caller = gate.check(route.roles, worker=ids.pop("worker", None))
    named = tuple(m.check_id(value, "the id in the path") for value in ids.values())
    return _reply(service.answer(name, caller.worker, named, _message(route.message), caller.stamp))


def _message(kind: Any) -> Any:
    if request.mimetype != _JSON:
        raise m.RefusedError("wrong_content_type", f"the body is to be {_JSON}")
    return m.decode(kind, request.get_data(cache=True))


def _reply(message: Any) -> Response:
    return Response(m.encode(message), mimetype=_JSON)


def _add_file_routes(app: Flask, gate: Gate, segments: Path | None, weights: Path | None) -> None:
    """Add PUT and GET of files; collectors bring segments and fetch weights, learners the other way round."""

    @app.put("/v1/segments/<name>")
    def put_segment(name: str) -> Response:
        caller, path = gate.check(("collector",)), _place(segments, None, name)
        if not name.startswith(f"{caller.worker}."):
            raise m.RefusedError(
                "wrong_role", f"{caller.worker} does not bring {name}: segments are named after workers"
            )
        return _take(path)

    @app.get("/v1/segments/<name>")
    def get_segment(name: str) -> Response:
        gate.check(("learner",))
        return _give(_place(segments, None, name))

    @app.put("/v1/weights/<policy_id>/<version>")
    def put_weights(policy_id: str, version: str) -> Response:
        gate.check(("learner",))
        return _take(_place(weights, policy_id, version))

    @app.get("/v1/weights/<policy_id>/<version>")
    def get_weights(policy_id: str, version: str) -> Response:
        gate.check(_WORKERS)
        have = request.args.get("have")  # a version that the caller has: the changes since then suffice
        base = None if have is None else _place(weights, policy_id, have)
        return _give(_place(weights, policy_id, version), base)


def _place(folder: Path | None, policy_id: str | None, name: str) -> Path:
    """Return where a segment is, or the version `name` of a policy's weights."""
    if policy_id is None:
        inner = Path(m.check_id(name, "the name of a segment"))
    elif (found := _VERSION.fullmatch(name)) is not None:
        inner = Path(m.check_id(policy_id, "policy_id"), f"{int(found['attempt'])}-{int(found['version'])}")
    else:
        raise m.RefusedError("malformed", "weights are named <attempt>-<version>, two numbers of up to 15 digits")
    if folder is None:
        raise m.RefusedError("unknown", "this coordinator takes no files: its workers share a folder")
    return folder / f"{inner}.safetensors"


def _read(path: Path) -> bytes | None:
    """Return the bytes of a file; None if there is none, or only a link, a pipe or a second name of a file."""
    try:
        return bytes(read_regular_file(path.parent, path.name))
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        return None


def _take(path: Path) -> Response:
    """Keep the body as a file. The same again is fine; other bytes under a name that is taken are not."""
    if request.mimetype != m.OCTETS:
        raise m.RefusedError("wrong_content_type", f"the body is to be {m.OCTETS}")
    data, known = request.get_data(cache=True), _read(path)
    if known is not None and known != data:
        raise m.RefusedError("version_not_newer", f"{path.name} is there already, with other bytes")
    if known is None:
        if path.parent.is_symlink() or (path.parent.exists() and not path.parent.is_dir()):
            raise m.RefusedError("unknown", f"{path.name} has no folder of its policy: its name is that of a link")
        try:
            with atomic_write(path) as file:
                file.write(data)
        except OSError as error:
            if not is_full(error):
                raise
            message = f"the coordinator's disk is full: {len(data)} bytes of {path.name} found no room"
            if _FULL_DISK_WARNINGS.pass_s():  # workers try again every second
                logger.warning("%s", message)
            raise m.RefusedError("storage_full", message) from error
    return Response(status=200)


def _give(path: Path, base: Path | None = None) -> Response:
    """Answer with a file, or with its delta to a file `base` that is there as well, if that is shorter."""
    data, old = _read(path), None if base is None else _read(base)
    if data is None:
        raise m.RefusedError("no_file", f"there is no {path.name}")
    if old is not None:
        changes = delta(np.frombuffer(old, np.uint8), np.frombuffer(data, np.uint8))
        data = data if changes is None else changes.tobytes()
    return Response(data, mimetype=m.OCTETS)
