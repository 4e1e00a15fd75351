"""The coordinator as its workers see it: one route and one method for each message.

The HTTP client and the coordinator's own service both implement `call`; everything else follows from ROUTES.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from ding_like.comm.rest import messages as m


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
    "heartbeat": Route("POST", "/v1/workers/{worker}/heartbeat", m.Heartbeat, m.HeartbeatReply, _WORKERS),
    "leave": Route("DELETE", "/v1/workers/{worker}", m.Leave, m.Ok, _WORKERS),
    "claim": Route("POST", "/v1/tasks/claim", m.Claim, m.ClaimReply, _WORKERS),
    "send_data": Route("POST", "/v1/tasks/{item}/data", m.SendData, m.SendDataReply, _COLLECTOR),
    "task_info": Route("POST", "/v1/tasks/{item}/info", m.TaskInfo, m.TaskInfoReply, _WORKERS),
    "finish_task": Route("POST", "/v1/tasks/{item}/finish", m.FinishTask, m.EndReply, _WORKERS),
    "fail_task": Route("POST", "/v1/tasks/{item}/fail", m.FailTask, m.EndReply, _WORKERS),
    "sample": Route("POST", "/v1/buffers/{item}/sample", m.Sample, m.SampleReply, _LEARNER),
    "update": Route("POST", "/v1/buffers/{item}/update", m.Update, m.UpdateReply, _LEARNER),
    "publish": Route("POST", "/v1/policies/{item}", m.Publish, m.Ok, _LEARNER),
}


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
        """Register a worker."""

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

    def update(self, worker_id: str, buffer_id: str, message: m.Update) -> m.UpdateReply:
        return self.call("update", worker_id, message, buffer_id)  # type: ignore[no-any-return]

    def publish(self, worker_id: str, policy_id: str, message: m.Publish) -> m.Ok:
        return self.call("publish", worker_id, message, policy_id)  # type: ignore[no-any-return]
