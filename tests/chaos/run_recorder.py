"""Note what the driver of a run is handed, draws and stores: each row in the buffer once, each batch applied once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ding_like.comm.channels import Segment
from ding_like.pipeline import rows as queue
from ding_like.pipeline import training_loop
from ding_like.types import Array
from tests.chaos.counting_env import num_doubled, recognise
from tests.chaos.counting_policy import marks_of


class Recorder:
    """Note what the driver is handed, draws and stores, and end its run when all is done."""

    def __init__(self) -> None:
        self.handed_over: list[Array] = []  # keys of each segment
        self.env_steps = 0
        self.torn = 0
        self.drawn: list[Array] = []  # the gradient that each batch should have
        self.stored = np.zeros(0, np.dtype((np.void, 32)))
        self._lock = threading.Lock()
        self._limits: list[Any] = []
        self._rows: list[Any] = []

    def hand_over(self, segment: Segment) -> None:
        found = recognise(segment.batch.columns)  # type: ignore[union-attr]  # DQN's rows stack
        with self._lock:
            self.handed_over.append(found.keys)
            self.env_steps += segment.env_steps
            self.torn += found.torn

    def install(self) -> None:
        """Have the driver's parts report here."""
        recorder, rows, run = self, queue.RowQueue, training_loop.TrainingLoop
        make_rows, draw = rows.__init__, rows.next  # type: ignore[misc]
        make_run, train = run.__init__, run.run  # type: ignore[misc]

        def keep_rows(self: Any, *args: Any, **named: Any) -> None:
            make_rows(self, *args, **named)
            recorder._rows.append(self)

        def note_batch(self: Any) -> Any:
            batch = draw(self)
            if batch is not None:
                recorder.drawn.append(marks_of({"obs": np.asarray(batch["obs"])}).mean(0))
            return batch

        def keep_limits(self: Any, *args: Any, **named: Any) -> None:
            make_run(self, *args, **named)
            recorder._limits.append(self._limits)

        def look_at_rows(self: Any) -> Any:
            result = train(self)
            (kept,) = recorder._rows
            recorder.stored = recognise(kept._buffer.state_dict()["data"]).keys
            return result

        for owner, name, method in (
            (rows, "__init__", keep_rows),
            (rows, "next", note_batch),
            (run, "__init__", keep_limits),
            (run, "run", look_at_rows),
        ):
            setattr(owner, name, method)

    def end_run(self) -> None:
        """Let the run end as if it had reached its limit of env steps."""
        for limits in self._limits:
            object.__setattr__(limits, "max_env_step", 0)


class Rows(NamedTuple):
    """Numbers of the rows that workers handed over, and of the faults among them."""

    handed_over: int
    stored: int
    lost: int  # handed over before others that are stored, and not stored
    waiting: int  # handed over last, when the run had ended
    doubled: int  # stored more than once
    unknown: int  # stored, and handed over by no worker


class Updates(NamedTuple):
    """Numbers of the batches that were drawn, and of the faults among them."""

    drawn: int
    applied: int
    lost: int  # drawn and never applied, as a whole or in part
    repeated: int  # applied more often than drawn, or a gradient that no batch has


def audit_rows(handed_over: Sequence[Array], stored: Array) -> Rows:
    """Compare rows by their keys: those of each segment [B] in the order in which they came, and the buffer's [N]."""
    found = set(stored.tolist())
    is_stored = [np.fromiter((key in found for key in keys.tolist()), bool, len(keys)) for keys in handed_over]
    last = max((number for number, each in enumerate(is_stored) if each.any()), default=-1)
    lost = sum(int((~each).sum()) for each in is_stored[: last + 1])
    waiting = sum(len(each) for each in is_stored[last + 1 :])
    known = set(np.concatenate(handed_over).tolist()) if handed_over else set()
    total = sum(map(len, handed_over))
    return Rows(total, len(stored), lost, waiting, num_doubled(stored), len(found - known))


def audit_updates(drawn: Array, applied: Array) -> Updates:
    """Compare the gradients that batches should have with those that were applied, both [N, 16], in any order."""
    wanted, found = (Counter(map(bytes, np.ascontiguousarray(each + 0.0))) for each in (drawn, applied))
    return Updates(len(drawn), len(applied), (wanted - found).total(), (found - wanted).total())
