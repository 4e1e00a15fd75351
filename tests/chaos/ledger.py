"""Workers that write down, before they go on, what the coordinator acknowledged and what they were given to learn."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from ding_like.comm.channels import CollectRequest, Segment, Version, Weights
from ding_like.comm.rest import messages as m
from ding_like.data.batch import TransitionBatch
from ding_like.pipeline.collect import UNTRAINED
from ding_like.pipeline.parallel.comm_collector import FlaskFileSystemCollector
from ding_like.pipeline.parallel.comm_learner import FlaskFileSystemLearner
from ding_like.utils.registries import COMM_COLLECTOR_REGISTRY, COMM_LEARNER_REGISTRY, COMMANDER_REGISTRY
from ding_like.worker.commander import NaiveCommander, RunView
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

    def send_stepdata(self, path: str, stepdata: Segment) -> m.SegmentInfo:  # type: ignore[override]
        acted = [] if stepdata.version == UNTRAINED else list(stepdata.version)
        self._note_down(
            kind="written", name=path, acted=acted, env_steps=stepdata.env_steps,
            torn=recognise(stepdata.batch.columns).torn, keys=pack_keys(stepdata.batch.columns),
        )  # fmt: skip
        return super().send_stepdata(path, stepdata)

    def send_metadata(self, metadata: m.SegmentInfo) -> CollectRequest:
        waiting = [*self.deal_with_collector_data(), metadata]
        order = super().send_metadata(metadata)
        task, _ = self._link.job
        for each in waiting:
            self._note_down(
                kind="ack", name=each.name, rows=each.rows, task=task.task_id, attempt=task.attempt,
                worker=self.collector_uid, env_steps=each.env_steps,
            )  # fmt: skip
        return order

    def newest(self, policy_id: str, *, newer_than: Version | None = None, timeout_s: float = 0.0) -> Weights | None:
        found = super().newest(policy_id, newer_than=newer_than, timeout_s=timeout_s)
        if found is not None and self._link.job[0].kind == "collect":
            self._note_down(kind="weights", version=list(found.version), worker=self.collector_uid)
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


@dataclass
class _Counts:
    """Counters that a learner records; all but the first six are reset with each attempt."""

    batches: int = 0
    torn: int = 0
    doubled: int = 0
    attempt: int = 0
    iter: int = 0
    learned: int = 0  # updates of the learner's whole life
    begun: int = 0  # those that it had when the attempt began
    received: int = 0  # batches
    drawn: int = 0


@COMM_LEARNER_REGISTRY.register("ledger")
class LedgerLearner(FlaskFileSystemLearner):
    """Look at every training batch, and note how learning goes on."""

    _ledger: Ledger | None = None
    _has_ended = False
    _noted_s = 0.0

    def start(self) -> None:
        super().start()
        self._counts = _Counts()
        self._told: dict[int, str] = {}  # serial -> segment
        self._awaited: deque[list[str]] = deque()  # segments of batches that came and were not drawn yet
        self._link.coordinator = cast(Any, _CountingCoordinator(self._link.coordinator, self._note_sample))

    def get_data(self, batch_size: int) -> Callable[[], TransitionBatch | None]:
        task, learner = self.task, self.learner
        if self._ledger is not None:
            self._note_down("left")  # the attempt before
        done, now = self._counts, learner.train_iter
        self._counts = _Counts(done.batches, done.torn, done.doubled, task.attempt, now, learned=now, begun=now)
        self._awaited.clear()
        self._note_down("begin")
        next_batch = super().get_data(batch_size)

        def look() -> TransitionBatch | None:
            batch = next_batch()
            if batch is not None:
                self._look_at(batch)
            return batch

        return look

    def send_learn_info(self, learn_info: Mapping[str, Any]) -> None:
        super().send_learn_info(learn_info)
        self._counts.learned = int(learn_info["learner_step"])

    def close(self) -> None:
        super().close()
        if self._ledger is not None and not self._has_ended:
            self._has_ended = True  # closed again where it is deleted
            self._note_down("end")

    def _note_sample(self, reply: m.SampleReply) -> None:
        """Remember of which segments the batches of an answer are; called by the thread that asked."""
        self._told.update({each.serial: each.name for each in reply.new_segments})
        if reply.batches is not None:
            self._counts.received += reply.batches.num_batches
            for ids in reply.batches.unique_ids.reshape(reply.batches.num_batches, -1):
                serials = np.unique(ids // m.ROWS_PER_SEGMENT)
                self._awaited.append([self._told.get(int(each), "") for each in serials])

    def _look_at(self, batch: TransitionBatch) -> None:
        found = recognise({name: np.asarray(batch[name]) for name in ("obs", "next_obs", "action", "reward")})
        counts = self._counts
        counts.iter = self.learner.train_iter
        counts.batches += 1
        counts.drawn += 1
        counts.torn += found.torn
        counts.doubled += num_doubled(found.keys)
        segments = self._awaited.popleft() if self._awaited else []
        if self._cfg["main"].policy.on_policy:
            self._note_down("batch", segments=segments)
        elif found.torn or time.monotonic() - self._noted_s > 0.1:
            self._note_down("batch")

    def _note_down(self, kind: str, **values: Any) -> None:
        self._ledger = self._ledger or Ledger("learner")
        self._noted_s = time.monotonic()
        self._ledger.write(kind=kind, saved=self._saved_iter(), **vars(self._counts), **values)

    def _saved_iter(self) -> int:
        folder = Path(self._cfg["main"].exp_name, "learner_state")
        names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
        return max((int(name) for name in names if name.isdecimal()), default=0)


END = "DING_CHAOS_END"  # environment variable: a path; the run is to end once it is there


@COMMANDER_REGISTRY.register("ending")
class EndingCommander(NaiveCommander):
    """Command a run until the file is there."""

    def is_to_end(self, run: RunView) -> bool:
        path = os.environ.get(END)
        return super().is_to_end(run) or (path is not None and Path(path).exists())
