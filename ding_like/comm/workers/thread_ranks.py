"""Let the ranks of one process average what they have: what a process group is to those of several."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from weakref import WeakValueDictionary

import torch

from ding_like.errors import CommError

_meetings: WeakValueDictionary[str, _Meeting] = WeakValueDictionary()
_guard = threading.Lock()  # of the meetings


class ThreadRanks:
    """Be one of `world_size` ranks of this process that meet by a name; it has `LearnerGroup`'s `average`.

    All ranks make the same calls in the same order, each in a thread of its own. Sums are taken in the order of the
    ranks, so that all have the same bits. Raises CommError where a rank has left or does not come within `timeout_s`.
    """

    def __init__(self, name: str, *, rank: int, world_size: int, timeout_s: float = 60.0) -> None:
        self.rank, self.world_size = rank, world_size
        self._timeout_s = timeout_s
        with _guard:
            found = _meetings.get(name)
            self._meeting = _Meeting(world_size) if found is None else found
            _meetings[name] = self._meeting

    def average(self, vectors: Iterable[torch.Tensor], *, weight: float) -> None:
        """Put the mean over all ranks in the place of each vector; this one counts `weight`, all together 1."""
        own = list(vectors)
        slots = self._meeting.slots
        slots[self.rank] = [vector * weight for vector in own]
        self._meet()
        for place, vector in enumerate(own):
            total = slots[0][place].clone()
            for others in slots[1:]:
                total.add_(others[place])
            vector.copy_(total)
        self._meet()  # before anyone brings the next ones

    def _meet(self) -> None:
        try:
            self._meeting.barrier.wait(self._timeout_s)
        except threading.BrokenBarrierError as error:
            raise CommError(
                f"rank {self.rank} of {self.world_size} waits in vain: another one has left, or has not come within "
                f"{self._timeout_s:g} s."
            ) from error

    def close(self, reason: str = "") -> None:
        """Leave, so that those who wait for this rank do not; may be called again."""
        self._meeting.barrier.abort()


class _Meeting:
    def __init__(self, world_size: int) -> None:
        self.barrier = threading.Barrier(world_size)
        self.slots: list[list[torch.Tensor]] = [[] for _ in range(world_size)]
