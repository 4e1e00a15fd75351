"""Slow, obvious versions of families of values: the target of a row, and how far a prediction is from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# What follows a row is None after an end, else what the family says of one action; Any: of each family its own.


@dataclass(frozen=True)
class SlowScalar:
    """Expected return, compared by 'mse' or 'huber'."""

    loss: str = "mse"
    delta: float = 1.0

    def target(self, following: float | None, reward: float, discount: float) -> float:
        return reward + discount * (0.0 if following is None else following)

    def compare(self, chosen: Tensor, target: Any) -> tuple[Tensor, float]:
        """Return (loss, absolute error) of a row."""
        error = chosen - float(target)
        size = error.abs()
        is_square = self.loss == "mse" or float(size.detach()) <= self.delta
        each = (1.0 if self.loss == "mse" else 0.5) * error**2 if is_square else self.delta * (size - 0.5 * self.delta)
        return each, float(size.detach())


@dataclass(frozen=True)
class SlowCategorical:
    """Probabilities of evenly spaced returns (Bellemare et al. 2017, algorithm 1)."""

    atoms: Sequence[float]

    def target(self, following: Sequence[float] | None, reward: float, discount: float) -> list[float]:
        outcomes = [(reward, 1.0)]
        if following is not None:
            outcomes = [(reward + discount * z, p) for z, p in zip(self.atoms, following, strict=True)]
        target, gap = [0.0] * len(self.atoms), self.atoms[1] - self.atoms[0]
        for value, prob in outcomes:
            value = min(max(value, self.atoms[0]), self.atoms[-1])
            below = min(int((value - self.atoms[0]) / gap), len(self.atoms) - 2)
            target[below] += prob * (self.atoms[below + 1] - value) / gap
            target[below + 1] += prob * (value - self.atoms[below]) / gap
        return target

    def compare(self, chosen: Tensor, target: Any) -> tuple[Tensor, float]:
        """Return (cross entropy, KL divergence) of a row, atom by atom; `chosen` are logits."""
        cross = torch.zeros((), dtype=chosen.dtype)
        for m, log_p in zip(map(float, target), chosen.log_softmax(0), strict=True):
            cross = cross - m * log_p
        return cross, float(cross.detach()) + sum(m * math.log(m) for m in map(float, target) if m > 0)


@dataclass(frozen=True)
class SlowQuantiles:
    """Quantiles in the middle of equal shares (Dabney et al. 2018, algorithm 1 and eq. 9 and 10)."""

    num: int
    kappa: float = 1.0

    def target(self, following: Sequence[float] | None, reward: float, discount: float) -> list[float]:
        after = [0.0] * self.num if following is None else following
        return [reward + discount * value for value in after]

    def compare(self, chosen: Tensor, target: Any) -> tuple[Tensor, float]:
        """Return the loss of a row, twice, pair by pair."""
        total = torch.zeros((), dtype=chosen.dtype)
        for i, predicted in enumerate(chosen):
            for wanted in map(float, target):
                u = wanted - predicted
                size = u.abs()
                is_square = float(size.detach()) <= self.kappa
                huber = 0.5 * u * u if is_square else self.kappa * (size - 0.5 * self.kappa)
                total = total + abs((i + 0.5) / self.num - float(u.detach() < 0)) * huber / self.num
        return total, float(total.detach())
