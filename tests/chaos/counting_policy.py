"""A policy whose gradients say which rows they are of, exactly: who lost a batch, or learned one twice, is found out.

Each row has 16 whole numbers, made of who made it; a minibatch's gradient is their mean. Of 64 rows, or of shares of
them, that is exact in float32, in whatever order it is added up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ding_like.data.batch import TransitionBatch
from ding_like.policy.dqn import DQNPolicy
from ding_like.types import Array
from ding_like.utils.registries import POLICY_REGISTRY
from tests.chaos.counting_env import numbers_of

MARKS = 16  # numbers of a row
UPDATE_S = 0.1  # of SlowPolicy
_FACTORS = np.array([0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F], np.uint64)


def marks_of(columns: Mapping[str, Any]) -> Array:
    """Return the numbers [B, 16] of rows, whole and from -8 to 7."""
    mixed = (numbers_of(columns["obs"])[:, :4] * _FACTORS).sum(-1, dtype=np.uint64)  # wraps around
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    digits = (mixed[:, None] >> (np.uint64(4) * np.arange(MARKS, dtype=np.uint64))) & np.uint64(15)
    return digits.astype(np.float64) - 8.0


class Applied:
    """Gradients that were applied in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._gradients: list[Array] = []

    def add(self, gradient: Array) -> None:
        with self._lock:
            self._gradients.append(gradient)

    def all(self) -> Array:
        """Return them [N, 16], in the order of the updates."""
        with self._lock:
            return np.array(self._gradients, np.float64).reshape(-1, MARKS)


APPLIED = Applied()


@POLICY_REGISTRY.register("counting")
class CountingPolicy(DQNPolicy):
    """Act as DQN does, learn nothing of use, and note each gradient that is applied."""

    config: dict[str, Any] = dict(type="counting")

    def grad(self, batch: TransitionBatch) -> tuple[dict[str, Any], None]:
        columns = {"obs": torch.as_tensor(batch["obs"]).cpu().numpy()}
        gradient = self._params.grad_vector
        gradient.zero_()
        gradient[:MARKS] = torch.as_tensor(marks_of(columns).mean(0), dtype=gradient.dtype)
        self._params.loss.zero_()
        zeros = torch.zeros(len(batch))
        return {
            "cur_lr": self._optimizer.learning_rate,
            "total_loss": torch.zeros(()),
            "q_value": zeros,
            "target_q_value": zeros,
        }, None

    def apply(self) -> None:
        APPLIED.add(self._params.grad_vector[:MARKS].double().numpy().copy())
        super().apply()


@POLICY_REGISTRY.register("slow")
class SlowPolicy(DQNPolicy):
    """Learn as DQN does, with a gradient that takes UPDATE_S more."""

    config: dict[str, Any] = dict(type="slow")

    def grad(self, batch: TransitionBatch) -> Any:
        time.sleep(UPDATE_S)
        return super().grad(batch)
