"""Sink of a collector's segments: they are written as files, then announced to the coordinator."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ding_like.comm.channels import Order, Segment, Version
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.worker_link import TaskUser, WorkerLink
from ding_like.data.batch import TransitionBatch
from ding_like.data.segment_file import SegmentMeta, remove_segments, write_segment
from ding_like.errors import CommError, ConfigError


class RestRowSink(TaskUser):
    """Sink of a collector's segments, for one task after another; `begin` comes first.

    A segment that is written but could not be announced is announced with the next one, by the next task if need be.
    """

    def __init__(self, link: WorkerLink) -> None:
        super().__init__(link)
        self._num_segments = 0  # of the worker's whole life: it is in their names
        self._waiting: deque[m.SegmentInfo] = deque()

    @property
    def waiting(self) -> list[m.SegmentInfo]:
        """Return what is written and still to be announced, the oldest first."""
        return list(self._waiting)

    def drop_waiting(self) -> None:
        """Delete segments that were not announced: on-policy, rows of old weights, which are not wanted any more."""
        names = [each.name for each in self._waiting]
        self._waiting.clear()
        remove_segments(self._link.files.segments, names)

    def put(self, segment: Segment) -> Order:
        """Write a segment, announce it, and return what is to be done next.

        Raises SegmentError where the disk stays full for ten minutes, CommError if the coordinator refuses it.
        """
        self.queue(self.write(self.next_name(), segment))
        return self.send(self.waiting)

    def next_name(self) -> str:
        """Return the name of the next segment, a new one with each call."""
        number, self._num_segments = self._num_segments, self._num_segments + 1
        return f"{self._link.agent.worker_id}.{number:08d}"

    def write(self, name: str, segment: Segment) -> m.SegmentInfo:
        """Write a segment where the learner finds it; return what is announced about it.

        Raises ConfigError for rows that do not stack, SegmentError where the disk stays full for ten minutes.
        """
        (task, _), files = self._begun(), self._link.files
        if not isinstance(segment.batch, TransitionBatch):
            raise ConfigError("the policy gives rows that do not stack; mode parallel needs rows of equal shapes.")
        columns = segment.batch.columns
        meta = SegmentMeta(
            task_id=task.task_id,
            attempt=task.attempt,
            worker_id=self._link.agent.worker_id,
            number=int(name.rpartition(".")[2]),
            policy_version=segment.version.update,
            env_steps=segment.env_steps,
            policy_attempt=segment.version.attempt,
            observed=segment.observed,
        )
        written = self._link.when_there_is_room(task, lambda: write_segment(files.segments, name, columns, meta))
        files.share_segment(name)
        return m.SegmentInfo(
            **written._asdict(),
            policy_version=segment.version.update,
            env_steps=segment.env_steps,
            stats=dict(segment.stats),
            policy_attempt=segment.version.attempt,
        )

    def queue(self, info: m.SegmentInfo) -> None:
        """Queue what is announced of a segment; a failed `send` leaves it in the queue."""
        self._waiting.append(info)

    def send(self, infos: Sequence[m.SegmentInfo]) -> Order:
        """Announce segments, which empties the queue, and return the next order."""
        task, _ = self._begun()
        message = m.SendData(task.attempt, tuple(infos))
        reply = self._link.coordinator.send_data(self._link.agent.worker_id, task.task_id, message)
        self._waiting.clear()
        for rejected in reply.rejected:
            raise CommError(f"the coordinator refuses segment {rejected.name}: {rejected.code}.")
        return self._order(reply)

    def order(self, *, timeout_s: float) -> Order:
        """Return what is to be done next, after a wait of `timeout_s` at most for rows that may be collected."""
        _, handle = self._begun()
        reply = self._link.ask_task(self.task, wait_s=timeout_s)
        if reply.credit == 0 and not reply.finish:
            handle.pause()  # the coordinator may be too busy to let anyone wait
        return self._order(reply)

    def _order(self, reply: m.TaskInfoReply | m.SendDataReply) -> Order:
        """Return the order in an answer; a heartbeat may have brought the wish to end the task."""
        _, handle = self._begun()
        handle.note(reply.policy)
        finish = reply.finish or handle.finish_asked
        newest = None if reply.policy is None else Version(reply.policy.attempt, reply.policy.version)
        return Order(finish, 0 if finish else reply.credit, reply.env_step, newest)
