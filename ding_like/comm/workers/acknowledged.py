"""Tell workers something, and know that they have taken it in."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from ding_like.comm.workers.host import Call, WorkerHandle, WorkerLostError
from ding_like.errors import CommError


def acknowledged(
    workers: Iterable[WorkerHandle], method: str, *args: Any, in_turn: bool = False, timeout_s: float = 10.0
) -> bool:
    """Call a method of each worker, and tell whether all that live returned True.

    It is called beside what they do, or `in_turn`: after the calls that are under way. Raises what one raised, and
    CommError, naming them, where some do not answer in time.
    """
    calls = [(worker.call if in_turn else worker.control)(method, *args) for worker in workers]
    return answered(calls, method, timeout_s=timeout_s)


def answered(calls: Sequence[Call], method: str, *, timeout_s: float) -> bool:
    """Wait for calls, and tell whether all whose workers live returned True. Raises as `acknowledged` does."""
    done: SimpleQueue[None] = SimpleQueue()
    for call in calls:
        call.on_done(lambda: done.put(None))
    end_s = time.monotonic() + timeout_s
    for number in range(len(calls)):
        try:
            done.get(timeout=max(end_s - time.monotonic(), 0.0))
        except Empty:
            raise CommError(
                f"{len(calls) - number} of {len(calls)} workers have not answered '{method}' within {timeout_s:g} s: "
                f"{', '.join(call.worker.name for call in calls)}."
            ) from None
    answers = []
    for call in calls:
        try:
            answers.append(bool(call.result()))
        except WorkerLostError:
            continue  # whoever replaces it is told by `Changes`
    return all(answers)
