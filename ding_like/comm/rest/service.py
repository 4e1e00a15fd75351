"""What the coordinator offers to workers; the HTTP server calls it, the HTTP client has the same methods.

Every method takes and returns messages of `messages`, and raises RefusedError for what it does not accept.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from ding_like.comm.rest import messages as m


class Stamp(NamedTuple):
    """Tell one message of a worker from all its others; a repetition of the message has the same stamp.

    A channel has one message on its way at a time, and the numbers of its messages grow by one.
    """

    channel: str  # of one thread of the worker; an id
    number: int  # from 1


class CoordinatorService(Protocol):
    """Serve workers. `worker_id` is who asks, checked already."""

    def hello(self) -> m.Hello: ...

    def register(self, message: m.Register) -> m.Registered: ...

    def heartbeat(self, worker_id: str, message: m.Heartbeat) -> m.HeartbeatReply: ...

    def leave(self, worker_id: str, message: m.Leave) -> m.Ok: ...

    def claim(self, worker_id: str, message: m.Claim) -> m.ClaimReply: ...

    def send_data(self, worker_id: str, task_id: str, message: m.SendData) -> m.SendDataReply: ...

    def task_info(self, worker_id: str, task_id: str, message: m.TaskInfo) -> m.TaskInfoReply: ...

    def finish_task(self, worker_id: str, task_id: str, message: m.FinishTask) -> m.EndReply: ...

    def fail_task(self, worker_id: str, task_id: str, message: m.FailTask) -> m.EndReply: ...

    def sample(self, worker_id: str, buffer_id: str, message: m.Sample) -> m.SampleReply: ...

    def update(self, worker_id: str, buffer_id: str, message: m.Update) -> m.UpdateReply: ...

    def publish(self, worker_id: str, policy_id: str, message: m.Publish) -> m.Ok: ...

    def status(self) -> dict[str, Any]: ...


class StampedService(CoordinatorService, Protocol):
    """Serve workers whose messages may come twice: each is acted on once, and its repetition gets the same answer."""

    def answer(self, name: str, worker_id: str, ids: tuple[str, ...], message: Any, stamp: Stamp | None) -> Any:
        """Answer `message` by the method `name`, or repeat the answer that the same stamp of this worker had.

        Raises RefusedError with code `old_message` for a number below the last of its channel.
        """

    def secret_of(self, worker_id: str) -> str | None:
        """Return the secret that a worker registered with; None for a worker that is not there."""
