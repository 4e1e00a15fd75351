"""Tasks and workers of a run: leases, attempts, failures, bounds of results. The attempt is the fencing token."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from ding_like.comm.rest.messages import MAX_COUNT, RefusedError
from ding_like.errors import SchemaError
from ding_like.types import Json

QUEUED, LEASED, FINISHED, FAILED = "queued", "leased", "finished", "failed"


@dataclass
class TaskEntry:
    """One task; all but times by the coordinator's clock is saved."""

    task_id: str
    kind: str  # collect, eval or learn
    buffer_id: str
    policy_id: str
    cfg: dict[str, Json]
    status: str = QUEUED
    attempt: int = 0  # counts the workers it was given to
    failures: int = 0
    failed_by: list[int] = field(default_factory=list)  # indices of the workers at which it failed
    worker_id: str | None = None
    deadline_s: float = 0.0  # of the lease, by the coordinator's clock
    is_asked_back: bool = False  # the worker is to finish it early
    policy: dict[str, Json] | None = None  # PolicyVersion that an evaluation is of
    leased_s: float = float("-inf")  # when it was given to its worker; not known after a restart

    def to_plain(self) -> dict[str, Json]:
        """Return what is saved."""
        return {name: value for name, value in vars(self).items() if name not in ("deadline_s", "leased_s")}

    @property
    def is_open(self) -> bool:
        """Whether the task is queued or being done."""
        return self.status in (QUEUED, LEASED)


class TaskTable(dict[str, TaskEntry]):
    """Tasks by id, with their leases."""

    def check(self, task_id: str, attempt: int, worker_id: str) -> TaskEntry:
        """Return the task if this attempt at it is the current one of this worker. Raises RefusedError."""
        task = self.get(task_id)
        if task is None:
            raise RefusedError("unknown", f"there is no task {task_id}")
        if attempt != task.attempt or (task.status == LEASED and task.worker_id != worker_id):
            why = f"attempt {attempt} at {task_id} is over; the current one is {task.attempt}"
            raise RefusedError("stale_attempt", why)
        if task.status != LEASED:
            raise RefusedError("stale_attempt" if task.is_open else "finished", f"{task_id} is {task.status}")
        return task

    def of_worker(self, worker_id: str) -> list[TaskEntry]:
        """Return the tasks that a worker holds."""
        return [task for task in self.values() if task.status == LEASED and task.worker_id == worker_id]

    def release(self, task: TaskEntry) -> None:
        """Put a leased task back into the queue: its worker has gone."""
        task.status, task.worker_id, task.is_asked_back = QUEUED, None, False

    def num_open(self, kind: str) -> int:
        """Return how many tasks of a kind are queued or being done."""
        return sum(task.kind == kind and task.is_open for task in self.values())

    def queued(self, kind: str) -> list[TaskEntry]:
        """Return the tasks of a kind that wait for a worker."""
        return [task for task in self.values() if task.kind == kind and task.status == QUEUED]

    def first(self, kind: str) -> TaskEntry | None:
        """Return the first task of a kind, in whatever state."""
        return next((task for task in self.values() if task.kind == kind), None)

    def ask_back(self, kind: str, *, among: Container[str] | None = None) -> bool:
        """Ask for the first task of a kind that is being done, unless one is asked for; return whether one is now.

        `among` are the workers that may be asked; None: all.
        """
        leased = [task for task in self.values() if task.status == LEASED and task.kind == kind]
        may_be = [task for task in leased if among is None or task.worker_id in among]
        if not may_be or any(task.is_asked_back for task in may_be):
            return False
        may_be[0].is_asked_back = True
        return True


@dataclass
class WorkerEntry:
    """One registered worker."""

    worker_id: str
    role: str
    host: str
    pid: int
    index: int  # the smallest number that no other worker of the role has
    deadline_s: float = 0.0  # by which it must be heard of
    stats: dict[str, Json] = field(default_factory=dict)
    state: str = "new"
    env_steps: int = 0
    policy_version: int = 0  # that it acted with last
    credit: int = 0  # rows it was allowed and has not sent yet
    waits_since_s: float | None = None  # for such an allowance
    heard_s: float = 0.0  # when it asked for one last
    has_worked: bool = False  # rows of its were taken, or batches given to it

    def to_plain(self) -> dict[str, Json]:
        """Return what is saved."""
        return {"role": self.role, "host": self.host, "pid": self.pid, "index": self.index}


# Between two reports of a learner; what is longer was spent waiting for data.
_LONGEST_S = 5.0


class SilenceWatch:
    """Watch over the seconds in which updates were reported and no newer weights published."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start over: weights were published, or another attempt has begun."""
        self.silent_s = 0.0
        self._learn_iter = -1
        self._reported_s: float | None = None

    def report(self, learn_iter: int, now_s: float) -> None:
        """Take the news of updates up to `learn_iter`."""
        if learn_iter <= self._learn_iter:
            return
        if self._reported_s is not None:
            self.silent_s += min(now_s - self._reported_s, _LONGEST_S)
        self._learn_iter, self._reported_s = learn_iter, now_s


# --- what workers report, against what they can have done

_MAX_RETURN = 1e30  # of an episode: sums and squares of many stay finite
_SLACK_S = 5.0  # by which the duration of an evaluation may exceed its lease: clocks differ, and processes are paused
_MAX_STATS = 64  # numbers that a worker shows beside its work
_LISTS = ("returns", "lengths", "eval_value_raw", "eval_lengths")  # of a result, a number for each episode


def check_evaluation(result: Mapping[str, Json], *, n_episode: int, version: int | None, leased_s: float) -> None:
    """Raise SchemaError unless a result is that of an evaluation of `n_episode` episodes with these weights."""
    for name in ("returns", "lengths"):
        values = result.get(name)
        if not isinstance(values, (list, tuple)) or len(values) != n_episode:
            raise SchemaError(f"a result of {n_episode} episodes has {name} {values!r:.80}.")
    _check_numbers(result, returns=-_MAX_RETURN, lengths=0)
    least, most = (0, MAX_COUNT) if version is None else (version, version)
    if not _is_number(result.get("version"), least, most):
        raise SchemaError(f"an evaluation is of version {result.get('version')!r:.80}; expected {version}.")
    if not _is_number(result.get("duration_s"), 0.0, leased_s + _SLACK_S):
        raise SchemaError(
            f"an evaluation took {result.get('duration_s')!r:.80} s (duration_s); it was given {leased_s:.1f} s ago."
        )


def check_learned(result: Mapping[str, Json]) -> None:
    """Raise SchemaError unless a learner's result has numbers where they are expected."""
    _check_numbers(
        result, eval_value_raw=-_MAX_RETURN, eval_lengths=0, eval_value=-_MAX_RETURN, train_iter=0, last_iter=0,
        judge_s=0, train_s=0,
    )  # fmt: skip


def _check_numbers(result: Mapping[str, Json], **least: float) -> None:
    """Raise SchemaError unless what `result` has of these names is a number, or a list of such, from their `least` on.

    Metrics of envs, which are numbers by name, are checked too.
    """
    for name, bound in least.items():
        value = result.get(name, [] if name in _LISTS else bound)
        is_list = isinstance(value, (list, tuple))
        values = value if is_list else [value]
        if is_list != (name in _LISTS) or not all(_is_number(each, bound, _MAX_RETURN) for each in values):
            raise SchemaError(f"a result has {name} {value!r:.80}; expected numbers from {bound:g}.")
    for name in ("metrics", "eval_metrics"):
        metrics = result.get(name, {})
        is_short = isinstance(metrics, Mapping) and len(metrics) <= _MAX_STATS
        if not is_short or not all(_is_number(value, -_MAX_RETURN, _MAX_RETURN) for value in metrics.values()):
            raise SchemaError(f"a result has {name} {metrics!r:.80}; expected up to {_MAX_STATS} numbers by name.")


def bounded_stats(stats: Mapping[str, Json]) -> dict[str, Json]:
    """Return what of a worker's numbers is shown: so many, and those of which means can be taken."""
    kept: dict[str, Json] = {}
    for name, value in stats.items():
        if len(kept) < _MAX_STATS and (
            not isinstance(value, (int, float)) or _is_number(value, -_MAX_RETURN, _MAX_RETURN)
        ):
            kept[name] = value
    return kept


def _is_number(value: Any, least: float, most: float) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # Not math.isfinite: an int of 400 digits has no float.
    return is_number and least <= value <= most and abs(value) != math.inf
