"""Tell a task that no worker can do, which ends the run, from a worker that can do no task."""

from __future__ import annotations

from ding_like.pipeline.parallel.core.tasks import TaskEntry
from ding_like.pipeline.parallel.core.workers import WorkerEntry, WorkerTable


class Failures:
    """Count failures of tasks. Workers are told apart by role and index: one that is started again is the same."""

    def __init__(self, max_failures: int, workers: WorkerTable) -> None:
        self._max = max_failures
        self._workers = workers
        self._in_a_row: list[tuple[str, int]] = []  # at whom, with nothing done by any worker between

    def something_was_done(self) -> None:
        """Count from zero again: the run goes on."""
        self._in_a_row = []

    def count(self, worker: WorkerEntry, task: TaskEntry) -> int:
        """Count a failure; return how many there were if the run is to end: all that are there have tried. Else 0."""
        task.failures += 1
        if worker.index not in task.failed_by:
            task.failed_by.append(worker.index)
        self._in_a_row.append((worker.role, worker.index))
        present = {each.index for each in self._workers.of_role(worker.role)}
        in_a_row = [index for role, index in self._in_a_row if role == worker.role]
        tries = [(task.failures, set(task.failed_by)), (len(in_a_row), set(in_a_row))]
        return max((number for number, who in tries if number >= self._max and present <= who), default=0)

    def hopeful(self, role: str, task: TaskEntry) -> list[WorkerEntry]:
        """Return the workers of a role at which a task has not failed yet."""
        return [each for each in self._workers.of_role(role) if each.index not in task.failed_by]
