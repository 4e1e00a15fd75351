"""HTTP client of a coordinator, and the files of a run: in common folders, or sent through the coordinator.

A file of weights, `{folder}/{policy_id}/{attempt}-{version}.safetensors`, holds the whole state of a policy's collect
mode, flattened and encoded by `comm/tensors.py`; it is replaced as a whole. Files are written whole but not durably: a
power cut may take the newest with it. That loses nothing: a run resumes from the learner's own saved points, and its
next attempt publishes before it trains.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
import random
import re
import secrets
import shutil
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

import ding_like
from ding_like.comm.channels import Version
from ding_like.comm.rest import messages as m
from ding_like.comm.tensors import Encoded, FlatState, apply_delta, decode_weights, is_delta, weights_name_of
from ding_like.data.segment_file import SegmentError
from ding_like.errors import CommError
from ding_like.types import Json
from ding_like.utils.files import atomic_write, read_regular_file, when_there_is_room
from ding_like.utils.processes import make_own_folder

M = TypeVar("M")

_CONNECT_S = 2.0
_READ_S = 3.0  # beyond the time that the answer may wait
_JSON = "application/json"
_MIN_WAIT_S, _MAX_WAIT_S = 0.1, 2.0
_HURRY_S = 5.0  # for the last requests of a worker that ends
_NEVER = threading.Event()
_MAX_ANSWER = m.MAX_FILE  # bytes
_SLOWEST = 256 * 1024.0  # bytes a second, of a file that is brought
# Refusals that cannot be signed, and are believed as long as no signed answer has come: the worker has a wrong key, or
# another protocol.
_AT_START = ("bad_key", "wrong_protocol")


class CoordinatorService(ABC):
    """Base of the HTTP client and of the coordinator's service.

    `worker_id` is the worker that sends the message. Every method raises RefusedError for a message that the
    coordinator does not accept.
    """

    @abstractmethod
    def call(self, name: str, worker_id: str, message: Any, item: str = "") -> Any:
        """Send the message of a route and return its reply; `item` is the id of its task, buffer or policy."""

    @abstractmethod
    def hello(self) -> m.Hello:
        """Return which run, protocol and package the coordinator has."""

    @abstractmethod
    def register(self, message: m.Register) -> m.Registered:
        """m.Register a worker."""

    def heartbeat(self, worker_id: str, message: m.Heartbeat) -> m.HeartbeatReply:
        return self.call("heartbeat", worker_id, message)  # type: ignore[no-any-return]

    def leave(self, worker_id: str, message: m.Leave) -> m.Ok:
        return self.call("leave", worker_id, message)  # type: ignore[no-any-return]

    def claim(self, worker_id: str, message: m.Claim) -> m.ClaimReply:
        return self.call("claim", worker_id, message)  # type: ignore[no-any-return]

    def send_data(self, worker_id: str, task_id: str, message: m.SendData) -> m.SendDataReply:
        return self.call("send_data", worker_id, message, task_id)  # type: ignore[no-any-return]

    def task_info(self, worker_id: str, task_id: str, message: m.TaskInfo) -> m.TaskInfoReply:
        return self.call("task_info", worker_id, message, task_id)  # type: ignore[no-any-return]

    def finish_task(self, worker_id: str, task_id: str, message: m.FinishTask) -> m.EndReply:
        return self.call("finish_task", worker_id, message, task_id)  # type: ignore[no-any-return]

    def fail_task(self, worker_id: str, task_id: str, message: m.FailTask) -> m.EndReply:
        return self.call("fail_task", worker_id, message, task_id)  # type: ignore[no-any-return]

    def sample(self, worker_id: str, buffer_id: str, message: m.Sample) -> m.SampleReply:
        return self.call("sample", worker_id, message, buffer_id)  # type: ignore[no-any-return]

    def update(self, worker_id: str, buffer_id: str, message: m.Update) -> m.Ok:
        return self.call("update", worker_id, message, buffer_id)  # type: ignore[no-any-return]

    def publish(self, worker_id: str, policy_id: str, message: m.Publish) -> m.Ok:
        return self.call("publish", worker_id, message, policy_id)  # type: ignore[no-any-return]


class _TryAgainError(CommError):
    """The request may work a little later."""


class _UnsignedError(_TryAgainError):
    """The answer is not the coordinator's."""


class _BadClockError(_TryAgainError):
    """The coordinator's clock has jumped."""


class _Request(NamedTuple):
    """One request, sent until it is answered; `worker` signs it with its own key, `turn` numbers it."""

    method: str
    path: str
    turn: str
    body: bytes = b""
    content_type: str = _JSON
    wait_s: float = _READ_S
    worker: str = ""


class _Connection:
    """Connection of one thread, and the channels on which it numbers its requests."""

    def __init__(self) -> None:
        self.session = requests.Session()
        self.session.trust_env = False  # no proxies: a coordinator is asked directly
        self._channel, self._numbers = secrets.token_hex(8), dict[str, int]()

    def turn(self, kind: str) -> str:
        """Return the next number of the channel of a kind of requests, of which one is in flight at a time."""
        self._numbers[kind] = self._numbers.get(kind, 0) + 1
        return f"{self._channel}.{kind}:{self._numbers[kind]}"


class HttpCoordinator(CoordinatorService):
    """HTTP client of the coordinator at `url`; requests are signed with the key of a role and retried for `retry_s`.

    Once the event `is_hurried` is set, by any thread, it gives up soon, requests under way included. Raises
    RefusedError for what the coordinator refuses, UnreachableError if it cannot be reached, or if what is reached does
    not hold the key: answers that it has not signed are not believed. Threads may share one. `clock` only grows.
    """

    def __init__(
        self, url: str, *, role: str, key: bytes | None, retry_s: float = 30.0, clock: m.Clock = time.monotonic
    ) -> None:
        self.retry_s, self.is_hurried = retry_s, threading.Event()
        self._url, self._role, self._clock = url.rstrip("/"), role, clock
        self._secret = m.draw_secret()
        self._signer = m.Signer(role, key, secret=self._secret, clock=clock)
        self._is_believed = False  # a signed answer has come
        self._worker = ""  # as it was registered
        self._of_thread = threading.local()
        self._sessions: list[requests.Session] = []

    def hello(self) -> m.Hello:
        """Return who answers, after taking its clock. Raises CommError for another protocol or package."""
        found, own = self._repeat(self._greet), ding_like.__version__
        if m.PROTOCOL not in found.protocols:
            theirs, ours, fix = f"speaks protocol {found.protocols}", str(m.PROTOCOL), "version of ding_like on both"
        elif found.package != own:
            theirs, ours, fix = f"has ding_like {found.package}", own, "version on both"
        else:
            return found
        raise CommError(f"the coordinator at {self._url} {theirs}, this worker {ours}: install the same {fix}.")

    def register(self, message: m.Register) -> m.Registered:
        """Register with this client's secret. Raises CommError if another name is given than was asked for."""
        message = dataclasses.replace(message, secret=self._secret)
        found = self._ask("POST", "/v1/workers", m.Registered, message=message)
        if found.worker_id != f"{message.role}-{message.incarnation}":
            raise CommError(f"the coordinator at {self._url} calls {message.incarnation} by another's name.")
        self._worker = found.worker_id
        return found

    def call(self, name: str, worker_id: str, message: Any, item: str = "") -> Any:
        """Send the message of a route and return its reply."""
        route = m.ROUTES[name]
        path = route.path.format(worker=worker_id, item=item)
        return self._ask(route.method, path, route.reply, message=message, worker=worker_id)

    def status(self) -> dict[str, Json]:
        """Return a description of the run."""
        return self._ask("GET", "/v1/status", dict[str, Json])

    def put_file(self, path: str, data: bytes) -> None:
        """Bring a file to the coordinator, under a path of its file routes. Raises RefusedError for one too large."""
        if len(data) > m.MAX_FILE:
            raise m.RefusedError(
                "too_large",
                f"{path} has {len(data)} bytes; at most {m.MAX_FILE} go by the coordinator. Larger ones need folders "
                "that all hosts share: set system.path_data and system.path_policy.",
            )
        wait_s = _READ_S + len(data) / _SLOWEST
        turn = self._connection.turn("files")
        self._send(_Request("PUT", path, turn, data, m.OCTETS, wait_s, self._worker))

    def get_file(self, path: str) -> bytes:
        """Fetch a file from the coordinator."""
        return self._send(_Request("GET", path, self._connection.turn("files"), worker=self._worker))

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

    @property
    def _connection(self) -> _Connection:
        if not hasattr(self._of_thread, "connection"):
            self._of_thread.connection = _Connection()
            self._sessions.append(self._of_thread.connection.session)
        found: _Connection = self._of_thread.connection
        return found

    def _ask(self, method: str, path: str, reply: type[M], *, message: Any = None, worker: str = "") -> M:
        """Send one message and return its reply; a repetition keeps its number."""
        body = b"" if message is None else m.encode(message)
        if len(body) > m.MAX_BODY:
            raise m.RefusedError("too_large", f"the message has {len(body)} bytes; at most {m.MAX_BODY}")
        wait_s = _READ_S + float(getattr(message, "wait_s", 0.0))
        turn = self._connection.turn("messages" if worker else "requests")
        return m.decode(reply, self._send(_Request(method, path, turn, body, wait_s=wait_s, worker=worker)))

    def _send(self, asked: _Request) -> bytes:
        """Send a request until it is answered, and return the answer's body."""
        return self._repeat(lambda: self._send_once(asked))

    def _repeat(self, send: Callable[[], M]) -> M:
        """Send a request, again and again while that may help, after random waits: many workers must not come at once.

        Waits are up to 0.1 s at first and 2 s in the end.
        """
        started_s, most_s = time.monotonic(), _MIN_WAIT_S
        while True:
            try:
                return send()
            except _TryAgainError as error:
                is_hurried = self.is_hurried.is_set()
                retry_s = min(self.retry_s, _HURRY_S) if is_hurried else self.retry_s
                left_s = started_s + retry_s - time.monotonic()
                if left_s <= 0:
                    raise m.UnreachableError(self._give_up(error, retry_s)) from error
                if isinstance(error, _BadClockError):
                    self._signer.offset_s = None
            most_s = min(2 * most_s, _MAX_WAIT_S)
            (_NEVER if is_hurried else self.is_hurried).wait(min(random.uniform(_MIN_WAIT_S / 2, most_s), left_s))

    def _give_up(self, error: _TryAgainError, retry_s: float) -> str:
        """Return the message for a coordinator that has not answered for `retry_s`."""
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
        sent_s = self._clock()
        found = m.decode(m.Hello, self._exchange(_Request("GET", "/v1/hello", f"{secrets.token_hex(8)}:1")))
        self._signer.offset_s = found.server_time - (sent_s + self._clock()) / 2
        return found

    def _send_once(self, asked: _Request) -> bytes:
        """Send a request once, when the coordinator's clock is known, and return the body of its answer."""
        if self._signer.offset_s is None:
            self._greet()
        try:
            return self._exchange(asked)
        except m.RefusedError as error:
            if error.code == "bad_key" and self._is_believed:
                # The key is right: this request was changed on its way. Another signature will do.
                raise _TryAgainError(error.message) from error
            raise

    def _exchange(self, asked: _Request) -> bytes:
        """Send a request, and return the body of an answer that is believed. Raises CommError for a refusal."""
        signed, signature = self._signer.sign(
            asked.method, asked.path, asked.body, turn=asked.turn, worker=asked.worker
        )
        own = {"Accept-Encoding": "identity", "Content-Type": asked.content_type, "X-DL-Protocol": str(m.PROTOCOL)}
        try:
            with self._connection.session.request(
                asked.method, self._url + asked.path, data=asked.body, headers={**own, **signed},
                timeout=(_CONNECT_S, asked.wait_s), allow_redirects=False, stream=True,
            ) as response:  # fmt: skip
                body: bytes = response.raw.read(_MAX_ANSWER + 1)  # as it is: nothing is unpacked
        except (requests.RequestException, HTTPError) as error:  # unreachable, too slow, or gone in the middle
            raise _TryAgainError(_reason(error)) from error
        if len(body) > _MAX_ANSWER:
            raise _UnsignedError(f"the answer is longer than {_MAX_ANSWER} bytes")
        refusal = None if response.status_code == 200 else _refusal_of(response.status_code, body)
        answer = response.headers.get(m.ANSWER_HEADER, ""), signature, response.status_code, body
        if not self._is_signed(answer, asked.worker, refusal):
            raise _UnsignedError(f"its answer is not signed with that key{'' if refusal is None else f' ({refusal})'}")
        if refusal is not None:
            raise refusal
        return body

    def _is_signed(self, answer: tuple[str, str, int, bytes], worker: str, refusal: CommError | None) -> bool:
        """Return whether the coordinator signed an answer, or cannot have."""
        if self._signer.is_answer(*answer, worker=worker):
            self._is_believed = True
            return True
        code = refusal.code if isinstance(refusal, m.RefusedError) else ""
        # Of a worker whose own key it does not have, the coordinator can say so with the role's key.
        is_unknown = code == "unknown" and self._signer.is_answer(*answer, worker=worker, by_role=True)
        return is_unknown or (code in _AT_START and not self._is_believed)


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


def _refusal_of(status: int, body: bytes) -> CommError:
    try:
        error = m.decode(m.ErrorReply, body).error
    except m.RefusedError:
        return CommError(f"the coordinator answered with status {status} and no reason.")
    if error.code not in m.STATUS:
        return CommError(f"the coordinator refused for an unknown reason: {m.printable(error.message)}")
    if error.code == "bad_clock":
        return _BadClockError(error.message)
    if error.retryable:
        return _TryAgainError(error.message)
    return m.RefusedError(error.code, error.message)


logger = logging.getLogger(__name__)

_MEMORY = Path("/dev/shm")


class SharedFiles:
    """Folders of segments and weights that all processes of a run see: there is nothing to transfer."""

    def __init__(self, segments: Path, weights: Path) -> None:
        self.segments, self.weights = segments, weights

    def share(self, path: Path) -> None:
        """Let other processes read a segment or weights that were written."""

    def fetch_segment(self, name: str) -> None:
        """Bring a segment that will be read."""

    def fetch_weights(self, policy_id: str, attempt: int, version: int, *, sha256: str) -> None:
        """Bring weights that will be read. Raises WeightsGoneError if they are not kept any more."""

    def forget_segment(self, name: str) -> None:
        """Delete this process's own copy of a segment."""

    def close(self) -> None:
        """Delete all copies."""


class StreamedFiles(SharedFiles):
    """Files that travel through the coordinator, by way of a temporary folder of this process's own."""

    def __init__(
        self, client: HttpCoordinator, *, folder: str | os.PathLike[str] | None = None, asks_for_delta: bool = False
    ) -> None:
        """Make the folder: below `folder`, else in memory where the system has such a place.

        With `asks_for_delta` requests name the version of weights that is here, and the coordinator may answer with
        what has changed since.
        """
        self._client, self._asks_for_delta = client, asks_for_delta
        where = folder or (_MEMORY if _MEMORY.is_dir() else None)
        self._folder = make_own_folder("ding-files-", where=where)
        self._clean = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        super().__init__(self._folder / "segments", self._folder / "weights")
        self._held: dict[str, Path] = {}  # weights that are here, one version of a policy

    def share(self, path: Path) -> None:
        self._client.put_file(self._route(path), path.read_bytes())
        path.unlink()

    def fetch_segment(self, name: str) -> None:
        path = self._segment(name)
        data = self._get(self._route(path))
        if data is None:
            raise SegmentError("missing", f"the coordinator has no segment {name}")
        self._keep(path, data)

    def fetch_weights(self, policy_id: str, attempt: int, version: int, *, sha256: str) -> None:
        old, new = self._held.pop(policy_id, None), weights_file(self.weights, policy_id, attempt, version)
        data = None
        try:
            if old is not None and self._asks_for_delta:
                data = self._get_by_delta(old, new, sha256=sha256)
            if data is None:
                data = self._get(self._route(new))
        finally:
            if old is not None:
                old.unlink(missing_ok=True)
        if data is None:
            raise WeightsGoneError(f"the coordinator has no weights {attempt}-{version} of {policy_id}")
        self._keep(new, data)
        self._held[policy_id] = new

    def _get(self, route: str) -> bytes | None:
        """Return a file of the coordinator's; None if it has none."""
        try:
            return self._client.get_file(route)
        except m.RefusedError as error:
            if error.code != "no_file":
                raise
            return None

    def _get_by_delta(self, old: Path, new: Path, *, sha256: str) -> bytes | None:
        """Return the whole file, made from an older one if the answer is a delta; None if that does not make it."""
        data = self._get(f"{self._route(new)}?have={old.stem}")
        if data is None or not is_delta(np.frombuffer(data, np.uint8)):
            return data
        try:
            before = np.frombuffer(read_regular_file(old.parent, old.name), np.uint8)
            whole = apply_delta(before, np.frombuffer(data, np.uint8)).tobytes()
            if hashlib.sha256(whole).hexdigest() != sha256:
                raise CommError("the delta made other weights")
        except (CommError, OSError) as error:
            logger.warning("weights %s are fetched whole: %s", new.stem, error)
            return None
        return whole

    def _route(self, path: Path) -> str:
        """Return the route of a file: /v1/segments/NAME, /v1/weights/POLICY/VERSION."""
        return f"/v1/{path.relative_to(self._folder).with_suffix('')}"

    def forget_segment(self, name: str) -> None:
        self._segment(name).unlink(missing_ok=True)

    def close(self) -> None:
        self._clean()

    def _segment(self, name: str) -> Path:
        return self.segments / f"{m.check_id(name, 'name')}.safetensors"

    def _keep(self, path: Path, data: bytes) -> None:
        """Write a file, waiting for room on a full disk as long as this worker stays."""

        def write() -> None:
            with atomic_write(path) as file:
                file.write(data)

        when_there_is_room(write, report=logger.warning, wait=self._client.is_hurried.wait)


_KEEP = 8  # versions: a collector may be loading one while the next are published
# No more digits than a number of a message may have: other files in the folder are not ours.
_NAME = re.compile(r"(\d{1,15})-(\d{1,15})\.safetensors")


class WeightsGoneError(CommError):
    """Weights that were deleted because newer ones were published."""


def write_weights(folder: str | os.PathLike[str], encoded: Encoded) -> m.PolicyVersion:
    """Write encoded weights as a file of their own; return what is announced of them."""
    policy_id, version = weights_name_of(encoded)
    with atomic_write(weights_file(folder, policy_id, *version)) as file:
        file.write(encoded.data)
    return m.PolicyVersion(*version, hashlib.sha256(encoded.data).hexdigest(), encoded.size)


def prune_weights(folder: str | os.PathLike[str], policy_id: str, keep: Container[tuple[int, int]]) -> None:
    """Delete all but the newest few versions and those to `keep`, pairs (attempt, version).

    Files with other names are not ours: they are neither counted nor deleted.
    """
    found = []
    for path in Path(folder, m.check_id(policy_id, "policy_id")).glob("*.safetensors"):
        name = _NAME.fullmatch(path.name)
        if name is not None:
            found.append(((int(name[1]), int(name[2])), path))
    for order, old in sorted(found)[:-_KEEP]:
        if order not in keep:
            old.unlink(missing_ok=True)


def read_weights(
    folder: str | os.PathLike[str], policy_id: str, attempt: int, version: int, *, sha256: str
) -> FlatState:
    """Return the flat state that was published.

    Raises WeightsGoneError for a file that is missing, CommError for one that is not as announced.
    """
    path = weights_file(folder, policy_id, attempt, version)
    called = f"weights {path.name} of {policy_id}"
    try:
        data = read_regular_file(path.parent, path.name)
    except FileNotFoundError as error:
        raise WeightsGoneError(f"{called} are not there any more.") from error
    except OSError as error:
        raise CommError(f"{called} cannot be read: {error.strerror or error}") from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise CommError(f"{called} have another hash than was announced: the file was changed or damaged.")
    try:
        weights = decode_weights(np.frombuffer(data, np.uint8))
    except CommError as error:
        raise CommError(f"{called} cannot be parsed: {error}") from error
    if weights[:2] != (policy_id, Version(attempt, version)):
        raise CommError(f"{called} cannot be parsed: they are {weights.policy_id[:80]!r}, version {weights.version}.")
    return dict(weights.state)


def weights_file(folder: str | os.PathLike[str], policy_id: str, attempt: int, version: int) -> Path:
    """Return where weights are. Raises CommError for numbers that name none."""
    name = f"{attempt}-{version}.safetensors"
    if _NAME.fullmatch(name) is None:
        raise CommError(f"attempt {str(attempt)[:40]} and version {str(version)[:40]} name no weights.")
    return Path(folder) / m.check_id(policy_id, "policy_id") / name
