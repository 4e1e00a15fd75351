"""Keep workers: who they are, when they were heard of last, what they were allowed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class WorkerEntry:
    """Hold what is known of a worker."""

    worker_id: str
    role: str
    incarnation: str
    host: str
    deadline_s: float
    stats: dict[str, Any]
    index: int  # the smallest number that no other worker of the role has
    state: str = "new"
    env_steps: int = 0
    policy_version: int = 0  # that it acted with last
    credit: int = 0  # env steps it was allowed and has not sent yet


class WorkerTable(dict[str, WorkerEntry]):
    """Hold workers by id."""

    def join(self, worker_id: str, role: str, incarnation: str, host: str, *, deadline_s: float) -> None:
        """Take a worker in; it gets the smallest index that no other of its role has."""
        taken = {each.index for each in self.values() if each.role == role}
        index = next(number for number in range(len(taken) + 1) if number not in taken)
        self[worker_id] = WorkerEntry(worker_id, role, incarnation, host, deadline_s, {}, index)

    def of_role(self, role: str) -> list[WorkerEntry]:
        """Return the workers of a role."""
        return [each for each in self.values() if each.role == role]

    def credit_of_others(self, worker: WorkerEntry) -> int:
        """Return the env steps that all but one worker were allowed and have not sent yet."""
        return sum(each.credit for each in self.values() if each is not worker)
