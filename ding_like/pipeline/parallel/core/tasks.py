"""Keep tasks: queued, leased to one worker for a time, finished or failed. The attempt is the fencing token."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import asdict, dataclass, field
from typing import Any

from ding_like.comm.rest.refusal import RefusedError

QUEUED, LEASED, FINISHED, FAILED = "queued", "leased", "finished", "failed"


@dataclass
class TaskEntry:
    """Hold one task; all but times by the coordinator's clock is saved."""

    task_id: str
    kind: str  # collect, eval or learn
    buffer_id: str
    policy_id: str
    cfg: dict[str, Any]
    status: str = QUEUED
    attempt: int = 0  # counts the workers it was given to
    failures: int = 0
    failed_by: list[int] = field(default_factory=list)  # indices of the workers at which it failed
    worker_id: str | None = None
    deadline_s: float = 0.0  # of the lease, by the coordinator's clock
    is_asked_back: bool = False  # the worker is to finish it early
    policy: dict[str, Any] | None = None  # PolicyVersion that an evaluation is of
    leased_s: float = float("-inf")  # when it was given to its worker; not known after a restart

    def to_plain(self) -> dict[str, Any]:
        """Return what is saved."""
        plain = asdict(self)
        del plain["deadline_s"], plain["leased_s"]
        return plain


@dataclass
class TaskTable:
    """Give tasks to workers and take them back."""

    lease_s: float
    tasks: dict[str, TaskEntry] = field(default_factory=dict)

    def add(self, task: TaskEntry) -> None:
        self.tasks[task.task_id] = task

    def claim(
        self,
        worker_id: str,
        kinds: tuple[str, ...],
        now_s: float,
        *,
        is_for: Callable[[TaskEntry], bool] = lambda task: True,
    ) -> TaskEntry | None:
        """Lease the first queued task of these kinds, those of the first kind first. None: there is no such task.

        Tasks that are not for this worker, by `is_for`, are left to others.
        """
        for kind in kinds:
            for task in self.tasks.values():
                if task.status == QUEUED and task.kind == kind and is_for(task):
                    task.status, task.worker_id, task.is_asked_back = LEASED, worker_id, False
                    task.attempt += 1
                    task.deadline_s, task.leased_s = now_s + self.lease_s, now_s
                    return task
        return None

    def check(self, task_id: str, attempt: int, worker_id: str) -> TaskEntry:
        """Return the task if this attempt at it is the current one of this worker. Raises RefusedError."""
        task = self.tasks.get(task_id)
        if task is None:
            raise RefusedError("unknown", f"there is no task {task_id}")
        if attempt != task.attempt or (task.status == LEASED and task.worker_id != worker_id):
            raise RefusedError(
                "stale_attempt",
                f"attempt {attempt} at {task_id} is over; the current one is {task.attempt}",
                details={"attempt": task.attempt},
            )
        if task.status != LEASED:
            code = "finished" if task.status in (FINISHED, FAILED) else "stale_attempt"
            raise RefusedError(code, f"{task_id} is {task.status}")
        return task

    def of_worker(self, worker_id: str) -> list[TaskEntry]:
        """Return the tasks that a worker holds."""
        return [task for task in self.tasks.values() if task.status == LEASED and task.worker_id == worker_id]

    def renew(self, worker_id: str, now_s: float) -> None:
        """Renew the leases of a worker that was heard of."""
        for task in self.of_worker(worker_id):
            task.deadline_s = now_s + self.lease_s

    def release(self, task: TaskEntry) -> None:
        """Put a leased task back into the queue: its worker has gone."""
        task.status, task.worker_id, task.is_asked_back = QUEUED, None, False

    def expired(self, now_s: float) -> list[TaskEntry]:
        """Return the leased tasks whose time is over."""
        return [task for task in self.tasks.values() if task.status == LEASED and task.deadline_s <= now_s]

    def num_open(self, kind: str) -> int:
        """Return how many tasks of a kind are queued or being done."""
        return sum(task.kind == kind and task.status in (QUEUED, LEASED) for task in self.tasks.values())

    def queued(self, kind: str) -> list[TaskEntry]:
        """Return the tasks of a kind that wait for a worker."""
        return [task for task in self.tasks.values() if task.kind == kind and task.status == QUEUED]

    def first(self, kind: str) -> TaskEntry | None:
        """Return the first task of a kind, in whatever state."""
        return next((task for task in self.tasks.values() if task.kind == kind), None)

    def ask_back(self, kind: str, *, among: Container[str] | None = None) -> bool:
        """Ask for the first task of a kind that is being done, unless one is asked for; return whether one is now.

        `among` are the workers that may be asked; None: all.
        """
        leased = [task for task in self.tasks.values() if task.status == LEASED and task.kind == kind]
        may_be = [task for task in leased if among is None or task.worker_id in among]
        if not may_be or any(task.is_asked_back for task in may_be):
            return False
        may_be[0].is_asked_back = True
        return True

    def surplus(self, kind: str, wanted: int) -> list[TaskEntry]:
        """End the queued tasks of a kind beyond `wanted` open ones; return them."""
        extra = self.queued(kind)[: max(self.num_open(kind) - wanted, 0)]
        for task in extra:
            task.status = FINISHED
        return extra

    def forget_done(self, keep: int = 100) -> list[str]:
        """Forget the oldest tasks that have ended, all but `keep`; return their ids."""
        done = [task.task_id for task in self.tasks.values() if task.status in (FINISHED, FAILED)]
        gone = done[: max(len(done) - keep, 0)]
        for task_id in gone:
            del self.tasks[task_id]
        return gone
