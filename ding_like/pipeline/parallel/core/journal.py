"""Last answer to each thread of each worker: a repeated message gets it again, and changes nothing."""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.messages import Stamp
from ding_like.comm.rest.refusal import RefusedError
from ding_like.comm.rest.wire import MAX_COUNT, check_id, decode, encode
from ding_like.pipeline.parallel.core.state import StateStore

logger = logging.getLogger(__name__)

_CHANNELS = 32  # of one worker; the one that was silent longest makes room
_GONE_KEPT = 256  # workers that have left
_REPLIES: dict[str, Any] = {
    each.__name__: each
    for each in (
        m.ClaimReply, m.TaskInfoReply, m.EndReply, m.SendDataReply, m.SampleReply, m.UpdateReply, m.HeartbeatReply,
        m.Ok, m.ErrorBody,
    )
}  # fmt: skip


@dataclass
class Answer:
    """Answer to one message: a reply, or the reason why it was refused."""

    number: int
    reply: Any
    is_restored: bool = False  # from the state file: nothing has come on this channel since

    def repeat(self) -> Any:
        """Return the reply again, or raise the RefusedError again."""
        if isinstance(self.reply, m.ErrorBody):
            body = self.reply
            raise RefusedError(body.code, body.message, retry_after_s=body.retry_after_s, details=body.details)
        return self.reply


class Journal:
    """Answers by (worker, channel), each saved in the transaction of the message that it answers."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._answers: dict[str, OrderedDict[str, Answer]] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()  # workers that have left, the first first
        self.num_gaps = 0  # channels on which the state file does not know of messages that were answered

    def find(self, worker_id: str, stamp: Stamp) -> Answer | None:
        """Return the answer that this message had, None for a new one. Raises RefusedError `old_message` for older."""
        check_id(stamp.channel, "the channel")
        if not 1 <= stamp.number < MAX_COUNT:
            raise RefusedError("malformed", f"the number of a message is from 1 to {MAX_COUNT - 1}")
        last = self._answers.get(worker_id, OrderedDict()).get(stamp.channel)
        if last is None:
            return None
        if stamp.number < last.number:
            raise RefusedError(
                "old_message", f"message {stamp.number} of {stamp.channel} is older than {last.number}, the last"
            )
        if stamp.number == last.number:
            return last
        is_gap, last.is_restored = last.is_restored and stamp.number > last.number + 1, False
        self.num_gaps += is_gap
        if is_gap and self.num_gaps == 1:  # the others have the same cause
            logger.error(
                "the state file knows of %s's messages up to %d, and %d has come: what was answered between is lost. "
                "The file, or its write-ahead log, is older than when the coordinator was stopped.",
                worker_id, last.number, stamp.number,
            )  # fmt: skip
        return None

    def keep(self, worker_id: str, stamp: Stamp, reply: Any) -> None:
        """Save the answer to a message, a RefusedError too."""
        if isinstance(reply, RefusedError):
            reply = m.ErrorBody(reply.code, reply.message, reply.retryable, reply.retry_after_s, reply.details)
        answers = self._answers.setdefault(worker_id, OrderedDict())
        answers[stamp.channel] = Answer(stamp.number, reply)
        answers.move_to_end(stamp.channel)
        plain = {"number": stamp.number, "kind": type(reply).__name__, "body": encode(reply).decode()}
        self._store.put("answer", _key(worker_id, stamp.channel), plain)
        if len(answers) > _CHANNELS:
            oldest, _ = answers.popitem(last=False)
            self._store.delete("answer", _key(worker_id, oldest))

    def has_channel(self, worker_id: str, channel: str) -> bool:
        """Tell whether an answer is kept on a channel."""
        return channel in self._answers.get(worker_id, ())

    def come(self, worker_id: str) -> None:
        """Keep the answers to a worker as long as it is there."""
        self._gone.pop(worker_id, None)

    def go(self, worker_id: str) -> list[str]:
        """Keep the answers to a worker that has left for a while; return those whose time is over."""
        self._gone[worker_id] = None
        self._gone.move_to_end(worker_id)
        over = []
        while len(self._gone) > _GONE_KEPT:
            gone, _ = self._gone.popitem(last=False)
            over.append(gone)
            for channel in self._answers.pop(gone, {}):
                self._store.delete("answer", _key(gone, channel))
        return over

    @property
    def workers(self) -> list[str]:
        """Return whose answers are kept."""
        return list(self._answers)

    def restore(self) -> None:
        """Take over the saved answers."""
        for key, plain in self._store.items("answer"):
            worker_id, _, channel = key.partition("/")
            reply = decode(_REPLIES[plain["kind"]], plain["body"].encode())
            answer = Answer(plain["number"], reply, is_restored=True)
            self._answers.setdefault(worker_id, OrderedDict())[channel] = answer


def _key(worker_id: str, channel: str) -> str:
    return f"{worker_id}/{channel}"  # ids have no slash
