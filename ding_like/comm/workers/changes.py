"""Keep what workers were told to change while they work, for those that take over from them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from ding_like.comm.workers.acknowledged import answered
from ding_like.comm.workers.host import Call, WorkerHandle
from ding_like.comm.workers.pool import WorkerPool
from ding_like.errors import CommError


class _Change(NamedTuple):
    number: int
    method: str
    args: tuple[Any, ...]  # Any: arguments of any method


class Changes:
    """Tell the workers of a pool to change something, and tell it again, in order, to each that takes over later.

    Those that take over are told by their method `make_changes`, after what they were called for before; the pool's
    `prepare` calls `catch_up`. A change that a worker refuses, by raising, is not kept. Threads may share it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: list[_Change] = []
        self._newest = 0
        self._had: dict[str, int] = {}  # number of the newest change that a worker was told of

    def tell(self, pool: WorkerPool, method: str, *args: Any, in_turn: bool = False, timeout_s: float = 10.0) -> bool:
        """Call a method of all that work or are about to, and tell whether all returned True; see `acknowledged`."""
        with self._lock:
            self._newest += 1
            change = _Change(self._newest, method, args)
            self._made.append(change)
            taking_over = [call for call in map(self._catch_up, pool.taking_over) if call is not None]
            calls = []
            for worker in pool.workers:
                if self._had.get(worker.name, 0) < change.number:
                    self._had[worker.name] = change.number
                    calls.append((worker.call if in_turn else worker.control)(method, *args))
        try:
            is_done = answered([*calls, *taking_over], method, timeout_s=timeout_s)
        except CommError:  # of one that does not answer: those who come later are told all the same
            raise
        except BaseException:
            self._forget([change])
            raise
        self._forget(self._said_again(change))
        return is_done

    def catch_up(self, worker: WorkerHandle) -> Call | None:
        """Have a worker that takes over make the changes that it was not told of; None: there are none."""
        with self._lock:
            return self._catch_up(worker)

    def _catch_up(self, worker: WorkerHandle) -> Call | None:
        missing = [change for change in self._made if change.number > self._had.get(worker.name, 0)]
        if not missing:
            return None
        self._had[worker.name] = missing[-1].number
        return worker.call("make_changes", [(change.method, change.args) for change in missing])

    def _said_again(self, change: _Change) -> Sequence[_Change]:
        """Return the change right before this one, if it was of the same thing."""
        with self._lock:
            place = self._made.index(change)
            before = self._made[max(place - 1, 0) : place]
        return [each for each in before if (each.method, each.args[:1]) == (change.method, change.args[:1])]

    def _forget(self, changes: Sequence[_Change]) -> None:
        with self._lock:
            self._made = [each for each in self._made if all(each is not other for other in changes)]
