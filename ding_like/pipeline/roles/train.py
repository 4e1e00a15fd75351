"""Learn from what a source brings, and send out what was learned."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from ding_like.comm.channels import Batch, BatchSource, Receipt, Version, WeightPublisher, Weights
from ding_like.comm.weights.extract import state_of
from ding_like.errors import CommError, SchemaError
from ding_like.types import Array, State
from ding_like.worker import BaseLearner

_LOOK_S = 1.0  # between two looks at whether to go on waiting for a batch
NO_DATA_S = 600.0  # without a batch for so long, the learner gives up


class TrainRole:
    """Train a learner on a source's batches, report each update, and publish the weights.

    Whoever runs the loop chooses the way: `train_ready` trains on all batches that there are, and `next_batch` waits
    for one, which the caller trains on and reports. `acting_state` returns all that an actor needs; without a
    `publisher` collectors share the policy. Weights are due after `publish_interval_s`, or when `is_awaited` says that
    someone waits for the weights of this iteration.
    """

    def __init__(
        self,
        learner: BaseLearner,
        source: BatchSource | None = None,
        *,
        with_priority: bool = False,
        publisher: WeightPublisher | None = None,
        acting_state: Callable[[], State] = dict,
        policy_id: str = "policy",
        attempt: int = 0,
        publish_interval_s: float = 0.0,
        is_awaited: Callable[[int], bool] = lambda train_iter: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._learner = learner
        self.source = source  # may come later: weights go out before batches come in
        self._with_priority = with_priority
        self._publisher = publisher
        self._acting_state = acting_state
        self._policy_id = policy_id
        self._attempt = attempt
        self._publish_interval_s = publish_interval_s
        self._is_awaited = is_awaited
        self._clock = clock
        self._published = -1  # iteration whose weights went out last
        self._published_s = -math.inf

    # --- batches in

    def train_ready(self, *, is_leaving: Callable[[], bool] = lambda: False) -> bool:
        """Train on every batch that can be had without waiting; False: `is_leaving` ended that after a batch."""
        while self.train_next():
            if is_leaving():
                return False
        return True

    def train_next(self) -> bool:
        """Train on a batch if one can be had without waiting, and tell whether there was one."""
        learner, source = self._learner, self._opened()
        batch = source.next(timeout_s=0.0)
        if batch is None:
            return False
        learner.train(batch, source.env_step)
        priority = self._priority() if self._with_priority else None
        source.feedback(learner.train_iter, priority=priority, info=self._averages)
        if self._publisher is not None and self.publishing_is_due:
            self.publish()
        return True

    def next_batch(self, *, go_on: Callable[[], bool] = lambda: True) -> Batch | None:
        """Publish what is due and wait for the next batch; None: there is none to come, or `go_on` says no.

        Raises CommError if none comes for ten minutes.
        """
        if self._publisher is not None and self.publishing_is_due:
            self.publish()
        source, deadline = self._opened(), self._clock() + NO_DATA_S
        while go_on():
            batch = source.next(timeout_s=_LOOK_S)
            if batch is not None:
                self._learner.collector_envstep = source.env_step
                return batch
            if source.finished:
                break
            if self._clock() > deadline:
                raise CommError(f"no batch has come for {NO_DATA_S:g} s: no collector sends data.")
        return None

    def report(self, train_iter: int, *, priority: Array | None) -> None:
        """Report an update with the batch that came last: its rows' priorities [B] and what the learner logs."""
        self._opened().feedback(train_iter, priority=priority, info=self._averages)

    def _opened(self) -> BatchSource:
        if self.source is None:
            raise CommError("no batches were asked for: open a source first, in DI-engine's style with get_data.")
        return self.source

    def _priority(self) -> Array:
        priority: Array | None = self._learner.priority_info.get("priority")
        if priority is None:
            raise SchemaError(
                "policy.priority is True, but the policy gave no priorities: return them as the second value of "
                "`grad` (in DI-engine's style, as 'priority'), or set policy.priority=False."
            )
        return priority

    def _averages(self) -> Mapping[str, Any]:
        monitor = self._learner.monitor
        return {} if monitor is None else {name: float(value) for name, value in monitor.averages().items()}

    # --- weights out

    @property
    def version(self) -> Version:
        """Return the version of the learner's weights as they are now."""
        return Version(self._attempt, self._learner.train_iter)

    @property
    def publishing_is_due(self) -> bool:
        """Tell whether it is time, or someone waits for the weights of this very iteration."""
        if self._learner.train_iter <= self._published:
            return False
        is_late = self._clock() - self._published_s >= self._publish_interval_s
        return is_late or self._is_awaited(self._learner.train_iter)

    def publish(self, state: Mapping[str, Any] | None = None, *, wait_s: float | None = None) -> Receipt:
        """Publish the weights as they are now, unless these were published before.

        `state` stands in place of the acting state.
        """
        if self._publisher is None or self._learner.train_iter <= self._published:
            return Receipt()
        self._published, self._published_s = self._learner.train_iter, self._clock()
        weights = Weights(self._policy_id, self.version, state_of(self._acting_state() if state is None else state))
        return self._publisher.publish(weights, wait_s=wait_s)
