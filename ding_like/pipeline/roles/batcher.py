"""Decide which requests of an inference server make up a batch, and when it runs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ding_like.comm.channels import Version
from ding_like.comm.zmq.inference_messages import Request

_MAX_ROWS = 1_024  # of a batch: what a network makes of its rows takes memory


class Waiting(NamedTuple):
    """A request, when it came, and where its answer goes."""

    request: Request
    came_s: float
    route: bytes = b""


class Batcher:
    """Keep requests until their batch is due.

    A batch of `batchsize` requests (0: any number) runs when there are as many, a smaller one `delay_s` after its first
    request came. With 0 and 0 what is there runs, but for a moment in which those who were answered last may ask again:
    see `Gather`. A request that wants weights which are not there yet waits for them, at most for `hold_s`.
    """

    def __init__(
        self,
        *,
        batchsize: int = 0,
        delay_s: float = 0.0,
        hold_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._batchsize = math.inf if batchsize == 0 else batchsize
        self._delay_s, self._hold_s = delay_s, hold_s
        self._gather = None if batchsize or delay_s else Gather()
        self._clock = clock
        self._waiting: dict[str, Waiting] = {}  # by client, the oldest first

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: Request, route: bytes = b"") -> None:
        """Take a request in; one that is sent again keeps its place, and a client's newest one is the one it awaits."""
        before = self._waiting.get(request.client)
        order = (request.run_id, request.id)
        if before is None or order > (before.request.run_id, before.request.id):
            self._waiting.pop(request.client, None)
            self._waiting[request.client] = Waiting(request, self._clock(), route)
        elif order == (before.request.run_id, before.request.id):
            self._waiting[request.client] = Waiting(request, before.came_s, route)

    def take(self, version: Version) -> list[Waiting]:
        """Return the requests of a batch that weights of `version` may answer now; none where no batch is due."""
        if not self._waiting or self.wait_s(version) > 0:
            return []
        batch: list[Waiting] = []
        rows = 0
        for each in self._waiting.values():
            fits = len(batch) < self._batchsize and (not batch or rows + each.request.rows <= _MAX_ROWS)
            if fits and _may_answer(each, version):
                batch.append(each)
                rows += each.request.rows
        for each in batch:
            del self._waiting[each.request.client]
        return batch

    def note_batch(self, batch: Sequence[Waiting], took_s: float) -> None:
        """Take note of how long the forward pass of a batch took that is about to be answered."""
        if self._gather is not None:
            self._gather.note({each.request.client for each in batch}, took_s, now_s=self._clock())

    def wait_s(self, version: Version) -> float:
        """Return in how many seconds a batch is due if nothing more comes: 0 now, infinity where there is none."""
        ready = [each for each in self._waiting.values() if _may_answer(each, version)]
        if not ready:
            return math.inf
        if len(ready) >= self._batchsize:
            return 0.0
        now_s = self._clock()
        if self._gather is not None:
            return self._gather.wait_s(ready, now_s=now_s)
        return max(0.0, ready[0].came_s + self._delay_s - now_s)

    def take_overdue(self, version: Version) -> list[Waiting]:
        """Return the requests that have waited for their weights for too long; they are not waited for any more."""
        oldest_s = self._clock() - self._hold_s
        overdue = [each for each in self._waiting.values() if each.came_s < oldest_s and not _may_answer(each, version)]
        for each in overdue:
            del self._waiting[each.request.client]
        return overdue


class Gather:
    """Wait for those who were answered last and may be about to ask again.

    Clients that act in step would else fall apart into groups, of which one is computed while another acts, and a
    network takes less time for a row the more there are in a batch. They are waited for while they keep coming, no
    longer after the last of them than a batch takes (at most `LONGEST_S`) and for `MOST` times that in all. Batches of
    less than `LEAST_S` are not waited for; where less than a quarter came, the next `PAUSE` batches run at once.
    """

    LEAST_S = 0.001  # what sockets wait at least
    LONGEST_S = 0.05  # the first batch of a process, or one in which it was stopped, says nothing of the others
    MOST = 3.0
    PAUSE = 16

    def __init__(self) -> None:
        self._expected: set[str] = set()
        self._took_s = 0.0
        self._answered_s = -math.inf
        self._pause = 0

    def wait_s(self, there: Sequence[Waiting], *, now_s: float) -> float:
        """Return how long to wait for others where these requests, the oldest first, are there."""
        clients = {each.request.client for each in there}
        if self._pause or self._took_s < self.LEAST_S or self._expected <= clients:
            return 0.0
        first_s, last_s = (max(each.came_s, self._answered_s) for each in (there[0], there[-1]))
        left_s = min(last_s + self._took_s, first_s + self.MOST * self._took_s) - now_s
        if left_s <= 0 and 4 * len(self._expected & clients) < len(self._expected):
            self._pause = self.PAUSE
        return max(0.0, left_s)

    def note(self, clients: set[str], took_s: float, *, now_s: float) -> None:
        """Take note of whose requests a batch was made of, and how long it took."""
        self._expected, self._took_s, self._answered_s = clients, min(took_s, self.LONGEST_S), now_s
        self._pause = max(0, self._pause - 1)


def _may_answer(waiting: Waiting, version: Version) -> bool:
    least = waiting.request.least
    return least is None or version >= least
