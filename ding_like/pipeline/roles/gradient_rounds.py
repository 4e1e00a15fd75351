"""Have all gradient workers compute one minibatch together, in rounds with a deadline."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ding_like.comm.local import LocalRows
from ding_like.errors import ConfigError, TrainingError
from ding_like.pipeline.roles.gradient_workers import Computed, GradientTask, GradientWorkers
from ding_like.pipeline.roles.measured_rows import MeasuredRows
from ding_like.policy import Policy
from ding_like.policy.sharing import Part, check_sharing, joined_info, joined_priority, mean_gradient, parts_of
from ding_like.types import Array, Info
from ding_like.worker import BaseLearner

logger = logging.getLogger(__name__)

STALENESS = ("drop", "down_weight")


@dataclass(frozen=True)
class GradientSettings:
    """Say how long gradients are waited for, in seconds, and how old they may be, in updates.

    Raises ConfigError, with every fault, for what makes no sense.
    """

    min_workers: int = 1  # parts of a minibatch that are enough when a round's time is over
    round_timeout_s: float = 60.0
    step_timeout_s: float = 120.0  # a worker that does not answer for so long is lost
    max_staleness: int | None = None  # None: of any age
    staleness: str = "drop"  # older ones are computed again; "down_weight": they count 1 / (1 + updates)
    compare_every: int = 1000  # updates between two looks at whether all ranks have the same weights

    def __post_init__(self) -> None:
        faults = [
            f"{name} is {value!r}; give {wanted}."
            for name, value, wanted, is_fine in (
                ("min_workers", self.min_workers, "at least 1", self.min_workers >= 1),
                ("round_timeout_s", self.round_timeout_s, "seconds above 0", self.round_timeout_s > 0),
                ("step_timeout_s", self.step_timeout_s, "seconds above 0", self.step_timeout_s > 0),
                ("max_staleness", self.max_staleness, "at least 0, or None", (self.max_staleness or 0) >= 0),
                ("staleness", self.staleness, f"one of {', '.join(STALENESS)}", self.staleness in STALENESS),
                ("compare_every", self.compare_every, "at least 1", self.compare_every >= 1),
            )
            if not is_fine
        ]
        if faults:
            raise ConfigError("the settings of gradients: " + " ".join(faults))


@dataclass(frozen=True)
class Driver:
    """Hold what a run learns with in the process that has its rows, and `collect`, which puts those of one turn.

    What `collect` returns is said of the turn. `policy` is the learner's.
    """

    learner: BaseLearner
    policy: Policy
    rows: LocalRows
    collect: Callable[[], Mapping[str, Any]]  # Any: numbers, in nested mappings
    with_priority: bool = False  # rows are drawn by priority, which the policy gives
    settings: GradientSettings = field(default_factory=GradientSettings)


class Gradients(Protocol):
    """Be how a scheme learns, chosen once for a learner that stands where the run begins or goes on."""

    def train_ready(self, *, is_leaving: Callable[[], bool] = lambda: False) -> int:
        """Train on every batch that can be had without waiting; return the number of updates that were applied.

        Once `is_leaving` it ends after the batch under way.
        """

    def settle(self) -> None:
        """Apply what is under way, and have in this process all that was learned."""

    def measures(self) -> Mapping[str, float]:
        """Return recent means of PolicyLag and GradientAsynchrony, in updates, and counts of what was left out."""

    def close(self) -> None:
        """End what was begun; parts and workers are their owners'."""


def check_words(execution: str, communication: str, *, decentralized: bool, num_workers: int) -> None:
    """Raise ConfigError, with the reason, for words of a pattern that are unknown or exclude each other."""
    if execution not in ("Central", "Parallel", "Parallelised"):
        raise ConfigError(f"grad_execution is {execution!r}; expected 'Central', or 'Parallel' ('Parallelised').")
    if communication not in ("synchronous", "asynchronous"):
        raise ConfigError(f"grad_communication is {communication!r}; expected 'synchronous' or 'asynchronous'.")
    if decentralized and (execution == "Central" or communication == "asynchronous"):
        raise ConfigError(
            "decentralised updates are made by all gradient workers together: they need grad_execution='Parallel' and "
            "grad_communication='synchronous'."
        )
    if execution != "Central" and not num_workers:
        raise ConfigError("gradients in parallel need workers: give at least one, or grad_execution='Central'.")


def train_by(learner: BaseLearner, **fields: Callable[..., Any]) -> None:  # Any: of a learn mode's fields
    """Have a learner train by other functions of its mode; its counts and its monitor stay."""
    state = learner.state_dict()
    learner.policy = learner.policy._replace(**fields)
    learner.load_state_dict(state)


class GradientRounds:
    """Fill a policy's gradient with the mean of what workers find, each of its part of the minibatch.

    A part whose worker is lost is given to another one; none is applied twice. When a round's time is over, the mean
    over the parts that came counts if these are `min_workers`: the others' rows are counted and not learned from.
    Raises ConfigError for a policy whose minibatches cannot be shared by so many workers as there are.
    """

    def __init__(
        self,
        workers: GradientWorkers,
        settings: GradientSettings,
        rows: MeasuredRows,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._workers = workers
        self._settings = settings
        self._rows = rows
        self._clock = clock
        self._num_parts = max(1, len(workers.pool.workers))
        self._num_tasks = 0
        check_sharing(workers.policy, self._num_parts)

    def grad(self, minibatch: Any) -> tuple[Info, Array | None]:  # Any: rows of any kind, of which some are refused
        """Do what a policy's `grad` does. Raises TrainingError for a round with too few parts, and what workers do."""
        parts = parts_of(self._workers.policy, minibatch, self._num_parts)
        found = self._gather(parts)
        present = [(part, each) for part, each in zip(parts, found, strict=True) if each is not None]
        if len(present) < min(self._settings.min_workers, len(parts)):
            raise TrainingError(
                f"{len(present)} of {len(parts)} parts of a minibatch were computed within grad.round_timeout_s="
                f"{self._settings.round_timeout_s:g} s, fewer than grad.min_workers={self._settings.min_workers}: see "
                "what holds the gradient workers up, or give a round more time."
            )
        weights = [part.weight for part, _ in present]
        gradients = [each.gradient for _, each in present if each.gradient is not None]
        self._workers.policy.load_gradient(mean_gradient(gradients, weights))
        infos = [each.info for _, each in present if each.info is not None]
        info = joined_info(infos, [len(part.rows) for part, _ in present], weights)
        self._rows.note_applied(0)
        if len(present) < len(parts):
            missing = sum(len(part.rows) for part, each in zip(parts, found, strict=True) if each is None)
            self._rows.rows_not_learned += missing
            logger.warning("a round of gradients was over without %d rows, which it does not learn from.", missing)
        return info, _priority(parts, found)

    def _gather(self, parts: Sequence[Part]) -> list[Computed | None]:
        """Return what was found of each part, None where nothing came in time."""
        workers, begun, end_s = self._workers, self._workers.begun, self._clock() + self._settings.round_timeout_s
        first, self._num_tasks = self._num_tasks, self._num_tasks + len(parts)
        waiting = deque(GradientTask(first + place, part, begun) for place, part in enumerate(parts))
        found: dict[int, Computed] = {}
        while len(found) < len(parts) and (left_s := end_s - self._clock()) > 0:
            for worker in workers.idle[: len(waiting)]:
                workers.begin(worker, waiting.popleft())
            for each in workers.ready(timeout_s=left_s):
                if each.task.number < first:
                    continue  # of a round that is over
                if each.gradient is None:
                    waiting.appendleft(each.task)
                else:
                    found[each.task.number - first] = each
        return [found.get(place) for place in range(len(parts))]


def _priority(parts: Sequence[Part], found: Sequence[Computed | None]) -> Array | None:
    """Return a minibatch's priorities [B]; rows that were not learned from have the largest, to be drawn again soon."""
    known = joined_priority([each.priority for each in found if each is not None])
    if known is None:
        return None
    largest = known.max()
    return joined_priority(
        [
            np.full(len(part.rows), largest, known.dtype) if each is None else each.priority
            for part, each in zip(parts, found, strict=True)
        ]
    )
