"""Saved state of a coordinator, prepared to be resumed: of a run that is over, or whose files are gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ding_like.comm.rest.worker import host_name
from ding_like.comm.weights.files import weights_file
from ding_like.data.segment_file import segment_file
from ding_like.pipeline.parallel.core.state import StateStore
from ding_like.pipeline.parallel.core.tasks import FAILED, FINISHED, QUEUED, TaskEntry
from ding_like.utils.processes import runs_with

STATE_FILE = "coordinator.sqlite"
WORKERS_CONFIG = "parallel_config.py"  # by which workers on this machine are started


class SavedRun:
    """State file of a run that no coordinator has open, until `close`.

    Raises CheckpointError for a file that cannot be used.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._store = StateStore(self._folder / STATE_FILE)
        self._run: dict[str, Any] = dict(self._store.items("run")).get("run", {})

        book = self._run.get("book", {})
        self.has_begun = bool(self._run)  # whether the coordinator saved anything of the run
        self.is_over = bool(self._run.get("is_over"))  # or failed
        self.failure: str | None = self._run.get("failure")
        self.env_step = int(book.get("env_step", 0))
        self.train_iter = int(self._run.get("learn_iter", 0))  # updates that the learner has reported
        self.close = self._store.close  # may be called again

    def workers_here(self) -> list[int]:
        """Return the ids of the run's workers that still live on this machine."""
        known = [worker["pid"] for _, worker in self._store.items("worker") if worker["host"] == host_name()]
        config = f"{self._folder.resolve().name}/{WORKERS_CONFIG}"  # another process may have the id by now
        return [pid for pid in known if runs_with(pid, config)]

    def reopen(self, *, data: Path, policy: Path) -> int:
        """Let the run continue with other workers, from the files that are there; return how many rows are lost.

        A run that is over is so no longer; weights and rows whose files are gone are forgotten.
        """
        assert self._run, "there is a run to resume"
        with self._store.transaction():
            self._forget_workers()
            lost = self._forget_rows(data)
            self._forget_weights(policy)
            if self._run["is_over"]:
                self._run.update(is_over=False, failure=None)
                self._run["commander"].update(stop=False, final_policy=None, unconfirmed=None, learn_result=None)
            self._queue_tasks()
            self._store.put("run", "run", self._run)
        return lost

    def _forget_workers(self) -> None:
        for kind in ("worker", "secret", "answer"):
            for key, _ in self._store.items(kind):
                self._store.delete(kind, key)

    def _forget_rows(self, data: Path) -> int:
        """Forget all segments if the files of all are gone; those of some are found out, and left out, by the run."""
        segments = self._store.items("segment")
        if any(segment_file(data, entry["name"]).exists() for _, entry in segments):
            return 0
        for key, _ in segments:
            self._store.delete("segment", key)
        self._run["book"]["once"] = {}  # segments are numbered from 1 again
        return sum(entry["rows"] for _, entry in segments)

    def _forget_weights(self, policy: Path) -> None:
        for policy_id, version in self._store.items("policy"):
            if not weights_file(policy, policy_id, version["attempt"], version["version"]).exists():
                self._store.delete("policy", policy_id)

    def _queue_tasks(self) -> None:
        """Queue all tasks; the next learner knows by the attempt that it continues from what an earlier one saved."""
        has_learner = False
        for task_id, plain in self._store.items("task"):
            task = TaskEntry(**plain)
            if task.status in (FINISHED, FAILED) or task.kind == "eval":  # of weights that may be gone
                self._store.delete("task", task_id)
                continue
            has_learner |= task.kind == "learn"
            task.status, task.worker_id, task.is_asked_back, task.failures, task.failed_by = QUEUED, None, False, 0, []
            self._store.put("task", task_id, task.to_plain())
        if has_learner:
            return
        self._run["_num_tasks"] += 1
        task_id = f"learn-{self._run['_num_tasks']}"
        task = TaskEntry(task_id, "learn", "buffer", "policy", {}, attempt=max(self._run["book"]["learner_attempt"], 1))
        self._store.put("task", task_id, task.to_plain())
