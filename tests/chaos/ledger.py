"""Workers that write down, before they go on, what the coordinator acknowledged and what they were given to learn."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from ding_like.comm import messages as m
from ding_like.data.batch import TransitionBatch
from ding_like.pipeline.parallel.comm_collector import FlaskFileSystemCollector
from ding_like.pipeline.parallel.comm_learner import FlaskFileSystemLearner
from ding_like.pipeline.parallel.zergling import Order, PolicyUpdate
from ding_like.utils.registries import COMM_COLLECTOR_REGISTRY, COMM_LEARNER_REGISTRY
from tests.chaos.counting_env import num_doubled, recognise

FOLDER = "DING_CHAOS_LEDGER"  # environment variable


class Ledger:
    """Append lines to a file of this process's own; each is on disk before `write` returns."""

    def __init__(self, role: str) -> None:
        self._path = Path(os.environ[FOLDER], f"{role}-{os.getpid()}.jsonl")

    def write(self, **values: Any) -> None:
        with open(self._path, "ab") as file:
            file.write(json.dumps({"t": time.time(), "pid": os.getpid(), **values}).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def read_ledgers(folder: Path, role: str) -> list[dict[str, Any]]:
    """Return the lines of all processes of a role, in the order of time; a killed process may have left half a line."""
    lines = [line for path in folder.glob(f"{role}-*.jsonl") for line in path.read_bytes().splitlines(keepends=True)]
    return sorted((json.loads(line) for line in lines if line.endswith(b"\n")), key=lambda each: each["t"])


@COMM_COLLECTOR_REGISTRY.register("ledger")
class LedgerCollector(FlaskFileSystemCollector):
    """Note each acknowledged segment, and each version of the weights that was loaded."""

    _ledger: Ledger | None = None

    def _note_down(self, **values: Any) -> None:
        if self._ledger is None:
            self._ledger = Ledger("collector")
        self._ledger.write(**values)

    def send_metadata(self, metadata: m.SegmentInfo) -> Order:
        waiting = [*self.deal_with_collector_data(), metadata]
        order = super().send_metadata(metadata)
        task = self._task
        for each in waiting:
            self._note_down(
                kind="ack", name=each.name, rows=each.rows, task=task.task_id, attempt=task.attempt,
                worker=self.collector_uid,
            )  # fmt: skip
        return order

    def get_policy_update_info(self, path: str) -> PolicyUpdate | None:
        found = super().get_policy_update_info(path)
        if found is not None and self._task.kind == "collect":
            self._note_down(kind="weights", version=list(self._loaded or ()), worker=self.collector_uid)
        return found


@COMM_LEARNER_REGISTRY.register("ledger")
class LedgerLearner(FlaskFileSystemLearner):
    """Look at every training batch, and note how learning goes on."""

    _ledger: Ledger | None = None
    _batches = _torn = _doubled = 0
    _noted_s = 0.0

    def _share(self, batch: TransitionBatch) -> TransitionBatch:
        found = recognise({name: np.asarray(batch[name]) for name in ("obs", "next_obs", "action", "reward")})
        self._batches += 1
        self._torn += found.torn
        self._doubled += num_doubled(found.keys)
        now = time.monotonic()
        if self._ledger is None or found.torn or now - self._noted_s > 0.1:
            self._ledger = self._ledger or Ledger("learner")
            self._noted_s = now
            task, learner = self._started()
            self._ledger.write(
                kind="batch", iter=learner.train_iter, attempt=task.attempt, batches=self._batches, torn=self._torn,
                doubled=self._doubled, saved=self._saved_iter(),
            )  # fmt: skip
        return super()._share(batch)

    def _saved_iter(self) -> int:
        folder = Path(self._store.folder)
        names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
        return max((int(name) for name in names if name.isdecimal()), default=0)
