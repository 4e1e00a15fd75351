"""A DQN that learns from windows: the mean over all rows of all windows."""

from __future__ import annotations

from typing import Any

from ding_like.data.batch import SequenceBatch, TransitionBatch
from ding_like.policy.dqn import DQNPolicy
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("window_dqn")
class WindowDQN(DQNPolicy):
    config: dict[str, Any] = dict(type="window_dqn")
    sample_unit = "window"

    def grad(self, batch: Any) -> tuple[dict[str, Any], Any]:
        assert isinstance(batch, SequenceBatch)
        size, steps = batch["reward"].shape
        columns = {name: column.reshape(size * steps, *column.shape[2:]) for name, column in batch.columns.items()}
        info, priority = super().grad(TransitionBatch(columns))
        return info, None if priority is None else priority.reshape(size, steps).mean(axis=1)
