"""Keep workers: who they are, when each sent its last message, how many rows it may collect."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

_LEFT_KEPT = 64


@dataclass
class WorkerEntry:
    """Hold what is known of a worker."""

    worker_id: str
    role: str
    host: str
    pid: int
    deadline_s: float
    stats: dict[str, Any]
    index: int  # the smallest number that no other worker of the role has
    joined_s: float = 0.0
    state: str = "new"
    env_steps: int = 0
    policy_version: int = 0  # that it acted with last
    credit: int = 0  # rows it was allowed and has not sent yet
    waits_since_s: float | None = None  # for such an allowance
    heard_s: float = 0.0  # when it asked for one last
    has_worked: bool = False  # rows of its were taken, or batches given to it

    def to_plain(self) -> dict[str, Any]:
        """Return what is saved."""
        return {"role": self.role, "host": self.host, "pid": self.pid, "index": self.index}


class WorkerTable(dict[str, WorkerEntry]):
    """Hold workers by id."""

    def __init__(self) -> None:
        super().__init__()
        # (host, pid) of the last that left after they had done something.
        self._left: deque[tuple[str, int]] = deque(maxlen=_LEFT_KEPT)

    def remove(self, worker_id: str) -> None:
        """Forget a worker, but for whether it had done anything."""
        worker = self.pop(worker_id)
        if worker.has_worked:
            self._left.append((worker.host, worker.pid))

    def had_worked(self, host: str, pid: int) -> bool:
        """Tell whether a process that has left had done anything."""
        return (host, pid) in self._left

    def join(
        self, worker_id: str, role: str, host: str, pid: int, *, now_s: float, lease_s: float, index: int | None = None
    ) -> WorkerEntry:
        """Take a worker in; without an `index` it gets the smallest that no other of its role has."""
        if index is None:
            taken = {each.index for each in self.values() if each.role == role}
            index = next(number for number in range(len(taken) + 1) if number not in taken)
        self[worker_id] = WorkerEntry(worker_id, role, host, pid, now_s + lease_s, {}, index, now_s)
        return self[worker_id]

    def find(self, host: str, pid: int) -> WorkerEntry | None:
        """Return the worker that is a process of a host."""
        return next((each for each in self.values() if (each.host, each.pid) == (host, pid)), None)

    def of_role(self, role: str) -> list[WorkerEntry]:
        """Return the workers of a role."""
        return [each for each in self.values() if each.role == role]

    def credit_of_others(self, worker: WorkerEntry) -> int:
        """Return the rows that all but one worker were allowed and have not sent yet."""
        return sum(each.credit for each in self.values() if each is not worker)
