"""Decide which requests of an inference server make up a batch, and when it runs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

from ding_like.comm.channels import Version
from ding_like.comm.zmq.inference_messages import Request

_MAX_ROWS = 1_024  # of a batch: what a network makes of its rows takes memory


class Waiting(NamedTuple):
    """Hold a request, and when it came."""

    request: Request
    came_s: float


class Batcher:
    """Keep requests until their batch is due.

    A batch of `batchsize` requests (0: any number) runs when there are as many, or one of each of the `num_clients`
    that are at work; a smaller one `delay_s` after its first request came. With no delay whatever is there runs at
    once. A request that wants weights which are not there yet waits for them, at most for `hold_s`.
    """

    def __init__(
        self,
        *,
        batchsize: int = 0,
        delay_s: float = 0.0,
        hold_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.num_clients = math.inf  # each of which has one request under way: there is nobody else to wait for
        self._batchsize = math.inf if batchsize == 0 else batchsize
        self._delay_s, self._hold_s = delay_s, hold_s
        self._clock = clock
        self._waiting: list[Waiting] = []  # the oldest first

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: Request) -> None:
        """Take a request in."""
        self._waiting.append(Waiting(request, self._clock()))

    def take(self, version: Version) -> list[Waiting]:
        """Return the requests of a batch that weights of `version` may answer now; none where no batch is due."""
        if not self._waiting or self.wait_s(version) > 0:
            return []
        batch: list[Waiting] = []
        left: list[Waiting] = []
        rows = 0
        for each in self._waiting:
            fits = len(batch) < self._batchsize and (not batch or rows + each.request.rows <= _MAX_ROWS)
            if fits and _may_answer(each, version):
                batch.append(each)
                rows += each.request.rows
            else:
                left.append(each)
        self._waiting = left
        return batch

    def wait_s(self, version: Version) -> float:
        """Return in how many seconds a batch is due if nothing more comes: 0 now, infinity where there is none."""
        ready = [each for each in self._waiting if _may_answer(each, version)]
        if not ready:
            return math.inf
        if len(ready) >= min(self._batchsize, self.num_clients):
            return 0.0
        return max(0.0, ready[0].came_s + self._delay_s - self._clock())

    def take_overdue(self, version: Version) -> list[Request]:
        """Return the requests that have waited for their weights for too long; they are not waited for any more."""
        oldest_s = self._clock() - self._hold_s
        overdue = [each for each in self._waiting if each.came_s < oldest_s and not _may_answer(each, version)]
        if overdue:
            self._waiting = [each for each in self._waiting if all(each is not other for other in overdue)]
        return [each.request for each in overdue]


def _may_answer(waiting: Waiting, version: Version) -> bool:
    least = waiting.request.least
    return least is None or version >= least
