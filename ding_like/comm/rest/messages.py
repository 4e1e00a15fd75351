"""The messages of protocol dl/4, their routes, and the coordinator as its workers see it.

`attempt` is the fencing token of a task: a message of an older attempt is refused with `stale_attempt`. (worker,
channel, number) tells a request from its repetition.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ding_like.comm.rest.wire import Floats, Id, Ints

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
