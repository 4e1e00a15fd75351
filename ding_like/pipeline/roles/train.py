"""Learn from what a source brings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ding_like.comm.local import LocalRows
from ding_like.errors import SchemaError
from ding_like.types import Array
from ding_like.worker import BaseLearner


class TrainRole:
    """Training on the batches of a source, without waiting for them."""

    def __init__(self, learner: BaseLearner, source: LocalRows, *, with_priority: bool = False) -> None:
        """With `with_priority` each update reports the priorities of its rows [B]."""
        self._learner = learner
        self._source = source
        self._with_priority = with_priority

    def train_ready(self, *, is_leaving: Callable[[], bool] = lambda: False) -> bool:
        """Train on every batch that can be had without waiting; False: `is_leaving` ended that after a batch."""
        while self.train_next():
            if is_leaving():
                return False
        return True

    def train_next(self) -> bool:
        """Train on a batch if one can be had without waiting, and tell whether there was one."""
        learner, source = self._learner, self._source
        batch = source.next(timeout_s=0.0)
        if batch is None:
            return False
        learner.train(batch, source.env_step)
        priority = priority_of(learner) if self._with_priority else None
        source.feedback(learner.train_iter, priority=priority, info=self._averages)
        return True

    def _averages(self) -> Mapping[str, Any]:
        monitor = self._learner.monitor
        return {} if monitor is None else {name: float(value) for name, value in monitor.averages().items()}


def priority_of(learner: BaseLearner) -> Array:
    """Return the priorities of the rows of the last update. Raises SchemaError if the policy gave none."""
    priority: Array | None = learner.priority_info.get("priority")
    if priority is None:
        raise SchemaError(
            "policy.priority is True, but the policy gave no priorities: return them as the second value of "
            "`grad` (in DI-engine's style, as 'priority'), or set policy.priority=False."
        )
    return priority
