"""Keep tasks: queued, leased to one worker for a time, finished or failed. The attempt is the fencing token."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from ding_like.comm.refusal import RefusedError

QUEUED, LEASED, FINISHED, FAILED = "queued", "leased", "finished", "failed"


@dataclass
class TaskEntry:
    """Hold one task; all but `deadline_s` is saved."""

    task_id: str
    kind: str  # collect, eval or learn
    buffer_id: str
    policy_id: str
    cfg: dict[str, Any]
    status: str = QUEUED
    attempt: int = 0  # counts the workers it was given to
    failures: int = 0
    worker_id: str | None = None
    deadline_s: float = 0.0  # of the lease, by the coordinator's clock
    is_asked_back: bool = False  # the worker is to finish it early
    policy: dict[str, Any] | None = None  # PolicyVersion that an evaluation is of

    def to_plain(self) -> dict[str, Any]:
        """Return what is saved."""
        plain = asdict(self)
        del plain["deadline_s"]
        return plain


@dataclass
class TaskTable:
    """Give tasks to workers and take them back."""

    lease_s: float
    tasks: dict[str, TaskEntry] = field(default_factory=dict)

    def add(self, task: TaskEntry) -> None:
        self.tasks[task.task_id] = task

    def claim(self, worker_id: str, kinds: tuple[str, ...], now_s: float) -> TaskEntry | None:
        """Lease the first queued task of these kinds, those of the first kind first. None: there is no such task."""
        for kind in kinds:
            for task in self.tasks.values():
                if task.status == QUEUED and task.kind == kind:
                    task.status, task.worker_id, task.is_asked_back = LEASED, worker_id, False
                    task.attempt += 1
                    task.deadline_s = now_s + self.lease_s
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
        """Let the leases of a worker that was heard of run anew."""
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

    def is_queued(self, kind: str) -> bool:
        """Tell whether a task of a kind waits for a worker."""
        return any(task.kind == kind and task.status == QUEUED for task in self.tasks.values())

    def ask_back(self, kind: str) -> bool:
        """Ask for the first task of a kind that is being done, unless one is asked for; return whether one is now."""
        leased = [task for task in self.tasks.values() if task.status == LEASED and task.kind == kind]
        if not leased or any(task.is_asked_back for task in leased):
            return False
        leased[0].is_asked_back = True
        return True

    def surplus(self, kind: str, wanted: int) -> list[TaskEntry]:
        """End the queued tasks of a kind beyond `wanted` open ones; return them."""
        queued = [task for task in self.tasks.values() if task.kind == kind and task.status == QUEUED]
        extra = queued[: max(self.num_open(kind) - wanted, 0)]
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
