"""The messages of protocol dl/4, their routes, their way to JSON and back, and their signatures.

`attempt` is the fencing token of a task: a message of an older attempt is refused with `stale_attempt`. (worker,
channel, number) tells a request from its repetition.

A message is a frozen dataclass, and its annotations are the schema. Unknown or missing keys, wrong types (a bool is not
a number), NaN, numbers and texts out of bounds are refused. Arrays are base64 of little-endian bytes. Nothing that
arrives names a type or a path.

Signatures are HMAC-SHA256. A registered worker signs with a key of its own, made of the role's key and of the secret
that it registered with: the role's key alone speaks for no worker. All other requests are signed with the role's key.
An answer is signed with the key of its request, over its status, its body and the request's signature.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import functools
import hashlib
import hmac
import json
import math
import re
import secrets
import time
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np

from ding_like.errors import CommError
from ding_like.types import Array, Json

PROTOCOL = 4
# A row's id is `serial * ROWS_PER_SEGMENT + row`: the number the coordinator gave its segment, and its place therein.
ROWS_PER_SEGMENT = 2**20
# Files travel as they are.
OCTETS = "application/octet-stream"
MAX_FILE = 64 << 20  # bytes
MAX_BODY = 1 << 20  # of any other request


@dataclass(frozen=True)
class Hello:
    """Reply of GET /v1/hello, which needs no key."""

    protocols: tuple[int, ...]
    epoch: int  # how often this coordinator was started
    server_time: float  # seconds, by which signatures are judged; near those since 1970
    package: str  # version of ding_like
    run_id: Id


@dataclass(frozen=True)
class Register:
    """Request of a worker to register: POST /v1/workers."""

    role: Id  # collector or learner
    host: str
    pid: int
    package: str
    incarnation: Id  # new for every start of the process
    resources: dict[str, float] = field(default_factory=dict)
    secret: str = ""  # hex, drawn by the worker: what it signs is signed with this as well


@dataclass(frozen=True)
class Registered:
    worker_id: Id
    heartbeat_s: float


@dataclass(frozen=True)
class Heartbeat:
    """Report of a worker that is alive: POST /v1/workers/{w}/heartbeat."""

    state: str  # idle, or the kind of its task


@dataclass(frozen=True)
class Command:
    """Command to a worker: 'finish_task' (give the task back, with its result), 'stop' (leave)."""

    name: str
    task_id: Id | None = None


@dataclass(frozen=True)
class PolicyVersion:
    """Version of published weights; pairs (attempt, version) only grow."""

    attempt: int
    version: int  # train_iter at publication
    sha256: str
    nbytes: int


@dataclass(frozen=True)
class HeartbeatReply:
    commands: tuple[Command, ...]
    policies: dict[str, PolicyVersion]


@dataclass(frozen=True)
class Claim:
    """Request for a task: POST /v1/tasks/claim."""

    wait_s: float = 0.0


@dataclass(frozen=True)
class Task:
    """Task of a worker. `cfg` is data; types in it are names of registries."""

    task_id: Id
    attempt: int
    kind: str  # collect, eval or learn
    buffer_id: Id
    policy_id: Id
    cfg: dict[str, Any]
    policy: PolicyVersion | None = None  # the newest weights


@dataclass(frozen=True)
class ClaimReply:
    task: Task | None  # None: nothing to do yet


@dataclass(frozen=True)
class SegmentInfo:
    """Metadata of a segment file; the name is made by the worker agent from worker, incarnation and number."""

    name: Id
    rows: int
    sha256: str
    nbytes: int
    policy_version: int
    env_steps: int  # that were taken for it, dropped ones included
    stats: dict[str, Any] = field(default_factory=dict)
    policy_attempt: int = 0  # of the learn task whose weights acted: (attempt, version) names them


@dataclass(frozen=True)
class SendData:
    """Announcement of segments: POST /v1/tasks/{t}/data."""

    attempt: int
    segments: tuple[SegmentInfo, ...]


@dataclass(frozen=True)
class Rejected:
    name: Id
    code: str


@dataclass(frozen=True)
class SendDataReply:
    accepted: tuple[Id, ...]
    duplicate: tuple[Id, ...]
    rejected: tuple[Rejected, ...]
    credit: int  # rows that this worker may send before it has to ask again; 0: wait
    env_step: int
    policy: PolicyVersion | None
    finish: bool


@dataclass(frozen=True)
class TaskInfo:
    """Report of progress, which may wait up to `wait_s` for credit: POST /v1/tasks/{t}/info."""

    attempt: int
    info: dict[str, Any]
    wait_s: float = 0.0


@dataclass(frozen=True)
class TaskInfoReply:
    finish: bool
    env_step: int
    policy: PolicyVersion | None
    credit: int


@dataclass(frozen=True)
class FinishTask:
    """Result of a task: POST /v1/tasks/{t}/finish."""

    attempt: int
    result: dict[str, Any]


@dataclass(frozen=True)
class FailTask:
    """Failure of a task: POST /v1/tasks/{t}/fail."""

    attempt: int
    message: str


@dataclass(frozen=True)
class EndReply:
    shutdown: bool  # the run is over


@dataclass(frozen=True)
class Sample:
    """Request for batches: POST /v1/buffers/{b}/sample."""

    task_id: Id
    attempt: int
    batch_size: int
    num_batches: int
    cur_learner_iter: int
    have_segments_up_to: int  # serial; 0: none
    wait_s: float = 0.0


@dataclass(frozen=True)
class NewSegment:
    """Segment for the learner to read; segments come in the order of `serial`, without gaps among accepted ones."""

    serial: int
    name: Id
    rows: int
    first_row: int  # place of its first row; they follow each other, modulo the buffer's size
    sha256: str
    nbytes: int


@dataclass(frozen=True)
class Batches:
    """`num_batches` batches one after another; [num_batches * batch_size] each."""

    num_batches: int
    places: Ints  # rows of the learner's mirror
    unique_ids: Ints
    weights: Floats | None  # importance weights; None: all 1


@dataclass(frozen=True)
class SampleReply:
    """`batches` are to be drawn before `new_segments` are taken in by a later reply; None: not enough data yet."""

    batches: Batches | None
    new_segments: tuple[NewSegment, ...]
    env_step: int
    finish: bool


@dataclass(frozen=True)
class Update:
    """Report of updates: POST /v1/buffers/{b}/update."""

    task_id: Id
    attempt: int
    learn_iter: int
    info: dict[str, Any]
    unique_ids: Ints | None = None
    places: Ints | None = None
    priorities: Floats | None = None
    bad_segments: tuple[Id, ...] = ()


@dataclass(frozen=True)
class Publish:
    """Announcement of weights: POST /v1/policies/{p}."""

    task_id: Id
    attempt: int
    version: int
    sha256: str
    nbytes: int


@dataclass(frozen=True)
class Ok:
    pass


@dataclass(frozen=True)
class Leave:
    """Request of a worker to leave: DELETE /v1/workers/{w}."""

    reason: str


@dataclass(frozen=True)
class ErrorBody:
    code: str
    message: str
    retryable: bool


@dataclass(frozen=True)
class ErrorReply:
    error: ErrorBody


class Stamp(NamedTuple):
    """Number of one message of a worker; a repetition of the message has the same stamp.

    A channel has one message in flight at a time, and the numbers of its messages grow by one.
    """

    channel: str  # of one thread of the worker; an id
    number: int  # from 1


class Route(NamedTuple):
    """HTTP route of a message; `{worker}` and `{item}` in its path are ids."""

    method: str
    path: str
    message: Any  # class of the request's body
    reply: Any  # class of the reply's body
    roles: tuple[str, ...]


_WORKERS, _COLLECTOR, _LEARNER = ("collector", "learner"), ("collector",), ("learner",)

ROUTES: dict[str, Route] = {
    "heartbeat": Route("POST", "/v1/workers/{worker}/heartbeat", Heartbeat, HeartbeatReply, _WORKERS),
    "leave": Route("DELETE", "/v1/workers/{worker}", Leave, Ok, _WORKERS),
    "claim": Route("POST", "/v1/tasks/claim", Claim, ClaimReply, _WORKERS),
    "send_data": Route("POST", "/v1/tasks/{item}/data", SendData, SendDataReply, _COLLECTOR),
    "task_info": Route("POST", "/v1/tasks/{item}/info", TaskInfo, TaskInfoReply, _WORKERS),
    "finish_task": Route("POST", "/v1/tasks/{item}/finish", FinishTask, EndReply, _WORKERS),
    "fail_task": Route("POST", "/v1/tasks/{item}/fail", FailTask, EndReply, _WORKERS),
    "sample": Route("POST", "/v1/buffers/{item}/sample", Sample, SampleReply, _LEARNER),
    "update": Route("POST", "/v1/buffers/{item}/update", Update, Ok, _LEARNER),
    "publish": Route("POST", "/v1/policies/{item}", Publish, Ok, _LEARNER),
}


M = TypeVar("M")

# Code -> HTTP status.
STATUS = {
    "malformed": 400,
    "bad_key": 401,
    "bad_clock": 401,
    "wrong_role": 403,
    "unknown": 404,
    "no_file": 404,
    "wrong_method": 405,
    "stale_attempt": 409,
    "stale_epoch": 409,
    "version_not_newer": 409,
    "old_message": 409,
    "name_taken": 409,
    "finished": 410,
    "too_large": 413,
    "wrong_content_type": 415,
    "schema": 422,
    "wrong_protocol": 426,
    "quota": 429,
    "internal": 500,
    "not_ready": 503,
    "storage_full": 503,
}
RETRYABLE = {"quota", "not_ready", "storage_full"}

# Ids and names of tasks, workers, buffers, policies and segments: never a path, whatever a client sends.
ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
MAX_DEPTH = 32
MAX_ITEMS = 4096  # of a list
MAX_TEXT = 65_536  # characters
MAX_INT = 2**62
MAX_COUNT = 2**48


# How fields are annotated: a text that must look like an id, an array int64 [B], one float32 [B] of finite numbers.
Id = Annotated[str, "id"]
Ints = Annotated[Array, "int64"]
Floats = Annotated[Array, "float32"]
_KINDS: dict[type, Any] = {list: list[Any], dict: dict[str, Json]}  # of values whose annotation is Any


class RefusedError(CommError):
    """Refusal of a request by the coordinator; `code` is one of STATUS."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.status, self.message, self.retryable = code, STATUS[code], message, code in RETRYABLE


class UnreachableError(CommError):
    """Failure to reach the coordinator for `retry_s`."""


def encode(message: object) -> bytes:
    """Return the JSON of a message. Raises ValueError for a number that is not finite."""
    return json.dumps(_plain(message), allow_nan=False, separators=(",", ":")).encode()


def decode(cls: type[M], body: bytes) -> M:
    """Return the message of class `cls` that `encode` made. Raises RefusedError 400 for anything else."""
    try:
        data = json.loads(body.decode("utf-8"), object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise RefusedError("malformed", f"the body is no JSON: {_short(error)}") from error
    message: M = _read(cls, data, cls.__name__, 0)
    return message


def check_id(value: str, what: str) -> str:
    """Return `value` if it looks like an id. Raises RefusedError 400."""
    if not ID_PATTERN.fullmatch(value):
        raise RefusedError(
            "malformed", f"{what} is {_short(repr(value))}; expected letters, digits, '.', '_', '-', up to 128"
        )
    return value


def check_count(value: int, what: str) -> None:
    """Raise RefusedError 400 for a number that counts nothing: below 0, or beyond what can be counted to."""
    if not 0 <= value < MAX_COUNT:
        raise RefusedError("malformed", f"{what} is {value}; expected 0 to {MAX_COUNT - 1}")


def printable(text: str, limit: int = 2000) -> str:
    """Return a text of unknown origin for a log or a terminal: on one line, without control characters, not long."""
    clean = "".join(letter if letter.isprintable() else " " for letter in text[:limit])
    return clean if len(text) <= limit else f"{clean}..."


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        kind = "<f4" if value.dtype.kind == "f" else "<i8"
        return base64.b64encode(np.ascontiguousarray(value, kind).tobytes()).decode()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _read(kind: Any, value: Any, where: str, depth: int) -> Any:
    """Return a value of an annotation's kind from plain data, checked."""
    if depth > MAX_DEPTH:
        raise RefusedError("malformed", f"{_short(where)} is nested deeper than {MAX_DEPTH}")
    if kind is Any:
        kind = _KINDS.get(type(value), type(value))
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        (some,) = [each for each in inner if each is not types.NoneType]
        return None if value is None else _read(some, value, where, depth)
    if dataclasses.is_dataclass(kind):
        return _read_message(kind, value, where, depth)
    if kind in (Ints, Floats):
        return _read_array(kind, value, where)
    if kind is Id:
        return check_id(_typed(str, value, where), where)
    if origin in (list, tuple):
        items = _typed(list, value, where)
        if len(items) > MAX_ITEMS and inner[0] is not Any:
            raise RefusedError("too_large", f"{where} has {len(items)} items; at most {MAX_ITEMS}")
        return origin(_read(inner[0], item, f"{where}[{index}]", depth + 1) for index, item in enumerate(items))
    if origin is dict:
        items = _typed(dict, value, where)
        return {
            _typed(str, key, where): _read(inner[1], item, f"{where}.{key}", depth + 1) for key, item in items.items()
        }
    return _typed(kind, value, where)  # a text, a number, true, false, null


def _typed(kind: Any, value: Any, where: str) -> Any:
    """Return a value of one of JSON's types. Raises RefusedError for another type, and for one out of bounds."""
    where = _short(where)
    is_number = kind in (int, float)
    if not isinstance(value, (int, kind) if is_number else kind) or (is_number and isinstance(value, bool)):
        raise RefusedError("malformed", f"{where} is {_short(repr(value))}; expected {kind.__name__}")
    if isinstance(value, str):
        if len(value) > MAX_TEXT:
            raise RefusedError("too_large", f"{where} has {len(value)} characters; at most {MAX_TEXT}")
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise RefusedError("malformed", f"{where} is not a valid text")
    if is_number and isinstance(value, int) and abs(value) > MAX_INT:
        raise RefusedError("malformed", f"{where} is too large a number")
    if is_number and not math.isfinite(value):
        raise RefusedError("malformed", f"{where} is not finite")
    return kind(value) if is_number else value


def _read_message(cls: Any, value: Any, where: str, depth: int) -> Any:
    data, kinds = _typed(dict, value, where), _kinds_of(cls)
    missing = {
        field.name
        for field in dataclasses.fields(cls)
        if field.default is field.default_factory is dataclasses.MISSING and field.name not in data
    }
    faults = [("unknown", data.keys() - kinds.keys()), ("missing", missing)]
    said = [f"{what} {_short(', '.join(sorted(names)))}" for what, names in faults if names]
    if said:
        raise RefusedError("malformed", f"{where}: {'; '.join(said)}")
    return cls(**{name: _read(kinds[name], item, f"{where}.{name}", depth + 1) for name, item in data.items()})


@functools.cache
def _kinds_of(cls: Any) -> dict[str, Any]:
    """Return the annotations of a message's fields by name."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _read_array(kind: Any, value: Any, where: str) -> Array:
    try:
        data = base64.b64decode(value.encode("ascii"), validate=True)
        array: Array = np.frombuffer(data, "<i8" if kind is Ints else "<f4")
    except (AttributeError, UnicodeEncodeError, binascii.Error, ValueError) as error:
        raise RefusedError("malformed", f"{where} is not an array: {_short(error)}") from error
    if kind is Floats and not np.isfinite(array).all():
        raise RefusedError("malformed", f"{where} has numbers that are not finite")
    return array.astype(np.int64 if kind is Ints else np.float32)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."


ANSWER_HEADER = "X-DL-Signature"
_SECRET = re.compile(r"[0-9a-f]{32,128}")

Clock = Callable[[], float]


class Head(NamedTuple):
    """Signed fields of a request."""

    role: str
    ts: int  # seconds of the coordinator's clock
    method: str
    path: str  # with the query
    sha256: str  # of the body, hex
    worker: str  # id of a registered worker, or nothing
    turn: str  # "<channel>:<number>", or nothing

    def signature(self, key: bytes) -> str:
        """Return the signature of these fields, hex."""
        return _hmac(key, "request", *self)


def draw_secret() -> str:
    """Return a new secret of a worker."""
    return secrets.token_hex(32)


def is_secret(text: str) -> bool:
    """Return whether a text can be a worker's secret: hex, and long enough."""
    return _SECRET.fullmatch(text) is not None


def body_hash(body: bytes) -> str:
    """Return the SHA-256 of a body, hex."""
    return hashlib.sha256(body).hexdigest()


def steady_clock(wall: Clock = time.time, monotonic: Clock = time.monotonic) -> Clock:
    """Return a clock that begins with the wall's time and then runs evenly, however the wall's clock is set."""
    start_s = wall() - monotonic()
    return lambda: start_s + monotonic()


def _hmac(key: bytes, *parts: str | int) -> str:
    # JSON keeps parts apart: no part can end early and become the next. The first one names the kind of text.
    return hmac.new(key, json.dumps(parts).encode(), hashlib.sha256).hexdigest()


def own_key(key: bytes, worker: str, secret: str) -> bytes:
    """Return the key that is a worker's alone, from its role's key and its secret."""
    return bytes.fromhex(_hmac(key, "worker", worker, secret))


def answer_signature(key: bytes, worker: str, asked: str, status: int, body: bytes) -> str:
    """Return the signature of an answer; `asked` is the signature of its request."""
    return _hmac(key, "answer", worker, asked, status, body_hash(body))


class Signer:
    """Signer of one client's requests, which also verifies answers. Threads may share one.

    Without a `key` nothing is signed, and every answer is believed. Times are those of `clock`, which only grows, and
    `offset_s`, which a signed hello of the coordinator gives.
    """

    def __init__(self, role: str, key: bytes | None, *, secret: str, clock: Clock = time.monotonic) -> None:
        self._role, self._key, self._secret, self._clock = role, key, secret, clock
        # The coordinator's clock minus ours; None: not known yet.
        self.offset_s: float | None = None if key else 0.0

    def sign(
        self, method: str, path: str, body: bytes, *, turn: str = "", worker: str = ""
    ) -> tuple[dict[str, str], str]:
        """Return (headers, signature) of a request."""
        headers, signature = {"X-DL-Worker": worker, "X-DL-Seq": turn}, ""
        if self._key is not None:
            ts = int(self._clock() + (self.offset_s or 0.0))
            head = Head(self._role, ts, method, path, body_hash(body), worker, turn)
            signature = head.signature(self._key_of(self._key, worker))
            headers["X-DL-SHA256"] = head.sha256
            headers["Authorization"] = f"DL3 key={self._role},ts={ts},sig={signature}"
        return {name: value for name, value in headers.items() if value}, signature

    def is_answer(
        self, signature: str, asked: str, status: int, body: bytes, *, worker: str = "", by_role: bool = False
    ) -> bool:
        """Return whether the coordinator signed an answer, with the worker's own key or, `by_role`, with the role's."""
        if self._key is None:
            return True
        key = self._key if by_role else self._key_of(self._key, worker)
        return hmac.compare_digest(answer_signature(key, worker, asked, status, body), signature)

    def _key_of(self, key: bytes, worker: str) -> bytes:
        return own_key(key, worker, self._secret) if worker else key
