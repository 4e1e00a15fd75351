"""Details of a run beside its progress: its processes, failures, and rows that were lost, as each mode reports them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ding_like.comm.workers.failures import FailureLog, FailureRow

# "silent": on another machine, without a message for long; it may be paused, lost, or cut off.
ProcessState = Literal["starting", "running", "paused", "silent", "lost", "ended"]


@dataclass(frozen=True)
class ProcessReport:
    """Process of a run, as the run's own process knows it; None is what it does not know."""

    name: str
    pid: int | None = None
    host: str = ""  # "": this machine
    state: ProcessState = "running"
    heartbeat_s: float | None = None  # since its last message
    env_steps: int | None = None  # that it has collected, all in all
    rows: int | None = None
    env_steps_per_s: float | None = None
    rows_per_s: float | None = None
    policy_lag: float | None = None  # updates that its policy was behind the learner's
    note: str = ""  # what it does, or how it was lost


@dataclass(frozen=True)
class Failure:
    """Loss of a worker, and its cause."""

    worker: str
    time: str  # of day
    cause: str
    rows_lost: int = 0
    outcome: str = ""  # "replaced after 120 ms", for example

    @classmethod
    def of(cls, row: FailureRow) -> Failure:
        """Return what a row of the log of failures has."""
        cause = f"{row.how} ({row.detail})" if row.detail else row.how
        outcome = "" if row.replaced_ms is None else f"replaced after {row.replaced_ms:,.0f} ms"
        return cls(row.worker, row.time, cause, row.rows_lost, outcome)


def time_of_day(wall_s: float) -> str:
    """Return a time as the log of failures has it, with the date and the zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S%z", time.localtime(wall_s))


@dataclass(frozen=True)
class BufferUse:
    """Use of a replay buffer."""

    rows: int
    capacity: int
    size_bytes: int = 0


@dataclass(frozen=True)
class Details:
    """Details of a run beside its progress."""

    processes: Sequence[ProcessReport] = ()
    failures: Sequence[Failure] = ()  # the oldest first
    lost_rows: Mapping[str, int] = field(default_factory=dict)  # by the reason
    policy_lag: float | None = None  # in updates, a mean over the last rows
    data_age_s: float | None = None  # of rows when they were stored, a mean over the last rows
    buffer: BufferUse | None = None

    def beside(self, log: FailureLog, processes: Sequence[ProcessReport]) -> Details:
        """Return these details with processes, and the failures of a log."""
        lost = sum(row.rows_lost for row in log.rows)
        return replace(
            self,
            processes=processes,
            failures=[Failure.of(row) for row in log.rows],
            lost_rows={**self.lost_rows, **({"lost with their worker": lost} if lost else {})},
        )
