"""A DQN whose training rows are sequences of steps of one lane, [T, ...]; it learns from each step of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ding_like.data.batch import TransitionBatch
from ding_like.data.rollout import Rollout
from ding_like.policy.dqn import DQNPolicy
from ding_like.types import Array
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("sequence_dqn")
class SequenceDQN(DQNPolicy):
    """Learn from rows of `collect.unroll_len` steps, which may cross the ends of episodes."""

    config: dict[str, Any] = dict(type="sequence_dqn", collect=dict(unroll_len=4))

    @classmethod
    def check_config(cls, cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        return ()

    def segment(self, rollout: Rollout) -> tuple[TransitionBatch, Array]:
        steps, lanes = self._unroll_len, rollout.as_lanes()
        rows = [
            lanes.row[: length // steps * steps, lane].reshape(-1, steps) for lane, length in enumerate(lanes.length)
        ]
        return TransitionBatch(rollout.columns()).take(np.concatenate(rows)), lanes.length % steps

    def num_ready(self, length: Array, ended: Array) -> int:
        return int((length // self._unroll_len).sum())

    def grad(self, batch: TransitionBatch) -> tuple[dict[str, Any], Array | None]:
        assert batch["reward"].shape[1:] == (self._unroll_len,)
        flat = {name: column.reshape(-1, *column.shape[2:]) for name, column in batch.columns.items()}
        return super().grad(TransitionBatch(flat))
