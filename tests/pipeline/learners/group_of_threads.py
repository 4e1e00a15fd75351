"""A learner group of threads of one process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ding_like.data.batch import TransitionBatch

_WAIT_S = 60.0


class _Hall:
    def __init__(self, world_size: int) -> None:
        self.barrier = threading.Barrier(world_size)
        self.given: list[Any] = [None] * world_size
        self.told: dict[str, str] = {}
        self.changed = threading.Condition()


class ThreadGroup:
    """`LearnerGroup` between threads."""

    def __init__(self, hall: _Hall, rank: int) -> None:
        self._hall = hall
        self.rank = rank
        self.world_size = len(hall.given)
        self.num_calls = 0

    def _exchange(self, value: Any) -> list[Any]:
        self.num_calls += 1
        self._hall.given[self.rank] = value
        self._hall.barrier.wait(_WAIT_S)
        found = list(self._hall.given)
        self._hall.barrier.wait(_WAIT_S)
        return found

    def max_int(self, values: Any) -> np.ndarray:
        return np.max(np.array(self._exchange(list(values)), np.int64), axis=0)

    def sum_int(self, values: Any) -> np.ndarray:
        return np.sum(np.array(self._exchange(list(values)), np.int64), axis=0)

    def all_gather_bytes(self, data: bytes) -> list[bytes]:
        return self._exchange(data)

    def all_gather_columns(self, batch: TransitionBatch) -> TransitionBatch:
        return TransitionBatch.concat(self._exchange(batch))

    def broadcast_json(self, value: Any = None) -> Any:
        return self._exchange(value)[0]

    def broadcast_state(self, state: Any = None) -> Any:
        return self._exchange(state)[0]

    def differing(self, vectors: Any) -> list[int]:
        found = self._exchange([vector.clone() for vector in vectors])
        return [rank for rank, row in enumerate(found) if not all(map(torch.equal, row, found[0]))]

    def announce(self, key: str, value: str = "") -> None:
        with self._hall.changed:
            self._hall.told[key] = value
            self._hall.changed.notify_all()

    def wait_for(self, key: str, *, of: int = 0) -> str:
        with self._hall.changed:
            assert self._hall.changed.wait_for(lambda: key in self._hall.told, _WAIT_S), key
            return self._hall.told[key]


def run_ranks(work: Callable[[ThreadGroup], Any], world_size: int = 2) -> list[Any]:
    """Return what `work` gives on each rank; raise what the first that failed raised."""
    hall = _Hall(world_size)
    results: list[Any] = [None] * world_size
    errors: list[Exception] = []

    def run(rank: int) -> None:
        try:
            results[rank] = work(ThreadGroup(hall, rank))
        except Exception as error:
            errors.append(error)
            hall.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * _WAIT_S)
    if errors:
        raise min(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError))
    return results
