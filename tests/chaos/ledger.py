"""Workers that write down, before they go on, what the coordinator acknowledged and what they were given to learn."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from ding_like.comm import messages as m
from ding_like.data.batch import TransitionBatch
from ding_like.data.segment_file import WrittenSegment
from ding_like.pipeline.parallel.comm_collector import FlaskFileSystemCollector
from ding_like.pipeline.parallel.comm_learner import FlaskFileSystemLearner
from ding_like.pipeline.parallel.zergling import Order, PolicyUpdate, StepData
from ding_like.types import Array
from ding_like.utils.registries import COMM_COLLECTOR_REGISTRY, COMM_LEARNER_REGISTRY
from tests.chaos.counting_env import num_doubled, pack_keys, recognise

FOLDER = "DING_CHAOS_LEDGER"  # environment variable


class Ledger:
    """Append lines to a file of this process's own; each is on disk before `write` returns.

    Beside the time of day, which may be made to jump, a line has that of the machine's monotonic clock.
    """

    def __init__(self, role: str) -> None:
        self._path = Path(os.environ[FOLDER], f"{role}-{os.getpid()}.jsonl")

    def write(self, **values: Any) -> None:
        line = {"t": time.clock_gettime(time.CLOCK_REALTIME), "at": time.monotonic(), "pid": os.getpid(), **values}
        with open(self._path, "ab") as file:
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def read_ledgers(folder: Path, role: str) -> list[dict[str, Any]]:
    """Return the lines of all processes of a role, in the order of time; a killed process may have left half a line."""
    lines = [line for path in folder.glob(f"{role}-*.jsonl") for line in path.read_bytes().splitlines(keepends=True)]
    return sorted((json.loads(line) for line in lines if line.endswith(b"\n")), key=lambda each: each["t"])


@COMM_COLLECTOR_REGISTRY.register("ledger")
class LedgerCollector(FlaskFileSystemCollector):
    """Note each segment that was written, each that was acknowledged, and each version of the weights."""

    _ledger: Ledger | None = None

    def _note_down(self, **values: Any) -> None:
        if self._ledger is None:
            self._ledger = Ledger("collector")
        self._ledger.write(**values)

    def send_stepdata(self, path: str, stepdata: StepData) -> WrittenSegment:  # type: ignore[override]
        self._note_down(
            kind="written", name=path, acted=list(self._loaded or ()), env_steps=stepdata.env_steps,
            keys=pack_keys(stepdata.batch.columns),
        )  # fmt: skip
        return super().send_stepdata(path, stepdata)

    def send_metadata(self, metadata: m.SegmentInfo) -> Order:
        waiting = [*self.deal_with_collector_data(), metadata]
        order = super().send_metadata(metadata)
        task = self._task
        for each in waiting:
            self._note_down(
                kind="ack", name=each.name, rows=each.rows, task=task.task_id, attempt=task.attempt,
                worker=self.collector_uid, env_steps=each.env_steps,
            )  # fmt: skip
        return order

    def get_policy_update_info(self, path: str) -> PolicyUpdate | None:
        found = super().get_policy_update_info(path)
        if found is not None and self._task.kind == "collect":
            self._note_down(kind="weights", version=list(self._loaded or ()), worker=self.collector_uid)
        return found


class _CountingCoordinator:
    """Pass everything on to a coordinator, and tell of each answer to a `sample`."""

    def __init__(self, coordinator: Any, tell: Callable[[m.SampleReply], None]) -> None:
        self._coordinator = coordinator
        self._tell = tell

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coordinator, name)

    def sample(self, *arguments: Any, **named: Any) -> m.SampleReply:
        reply: m.SampleReply = self._coordinator.sample(*arguments, **named)
        self._tell(reply)
        return reply


@COMM_LEARNER_REGISTRY.register("ledger")
class LedgerLearner(FlaskFileSystemLearner):
    """Look at every training batch and segment, and note how learning goes on.

    `received` and `drawn` are batches of this attempt, `learned` the updates of the learner's whole life, `begun` those
    that it had when the attempt began.
    """

    _ledger: Ledger | None = None
    _batches = _torn = _doubled = 0
    _noted_s = 0.0
    _received = _drawn = _begun = _learned = 0

    def start(self) -> None:
        super().start()
        self._names: dict[int, str] = {}  # serial -> segment
        self._batch_segments: deque[list[str]] = deque()  # of batches that came and were not drawn yet
        self._link.coordinator = cast(Any, _CountingCoordinator(self._link.coordinator, self._note_sample))

    def get_data(self, batch_size: int) -> Callable[[], TransitionBatch | None]:
        _, learner = self._started()
        self._begun = self._learned = learner.train_iter
        self._received = self._drawn = 0
        self._batch_segments.clear()
        self._note_down("begin")
        return super().get_data(batch_size)

    def send_learn_info(self, learn_info: Mapping[str, Any]) -> None:
        super().send_learn_info(learn_info)
        self._learned = int(learn_info["learner_step"])

    def close(self) -> None:
        if self._ledger is not None and self._learner is not None:
            self._note_down("end")
        super().close()

    def _note_sample(self, reply: m.SampleReply) -> None:
        """Remember of which segments the batches of an answer are; called by the thread that asked."""
        self._names.update({each.serial: each.name for each in reply.new_segments})
        if reply.batches is not None:
            self._received += reply.batches.num_batches
            for ids in reply.batches.unique_ids.reshape(reply.batches.num_batches, -1):
                serials = np.unique(ids // m.ROWS_PER_SEGMENT)
                self._batch_segments.append([self._names.get(int(each), "") for each in serials])

    def _read(self, segment: m.NewSegment) -> dict[str, Array]:
        columns = super()._read(segment)
        self._torn += recognise(columns).torn
        return columns

    def _share(self, batch: TransitionBatch) -> TransitionBatch:
        found = recognise({name: np.asarray(batch[name]) for name in ("obs", "next_obs", "action", "reward")})
        self._batches += 1
        self._drawn += 1
        self._torn += found.torn
        self._doubled += num_doubled(found.keys)
        segments = self._batch_segments.popleft() if self._batch_segments else []
        if self._main.policy.on_policy:
            self._note_down("batch", segments=segments)
        elif self._ledger is None or found.torn or time.monotonic() - self._noted_s > 0.1:
            self._note_down("batch")
        return super()._share(batch)

    def _note_down(self, kind: str, **values: Any) -> None:
        self._ledger = self._ledger or Ledger("learner")
        self._noted_s = time.monotonic()
        task, learner = self._started()
        self._ledger.write(
            kind=kind, iter=learner.train_iter, attempt=task.attempt, batches=self._batches, torn=self._torn,
            doubled=self._doubled, saved=self._saved_iter(), received=self._received, drawn=self._drawn,
            begun=self._begun, learned=self._learned, **values,
        )  # fmt: skip

    def _saved_iter(self) -> int:
        folder = Path(self._store.folder)
        names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
        return max((int(name) for name in names if name.isdecimal()), default=0)
