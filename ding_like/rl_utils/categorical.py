"""Distributions of returns by probabilities of fixed returns, the atoms (Bellemare et al. 2017)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ding_like.errors import ConfigError
from ding_like.rl_utils.td import best_action
from ding_like.rl_utils.value_family import LossByHand, RowLoss, check_shape, points_of_action
from ding_like.types import Array

_TINY = np.finfo(np.float32).tiny


class CategoricalValue:
    """Probabilities of `n_atom` returns, evenly spaced from `v_min` to `v_max`: C51.

        z_i = v_min + i (v_max - v_min) / (n_atom - 1)          the atoms
        m_i = sum_j p_j(next_obs, a*) h_i(R + discount z_j)     the target; h_i is 1 at z_i and falls to 0 at its
                                                                neighbours, so that a return between two atoms is shared
                                                                between them; what is beyond the ends counts as the end
        loss = -sum_i m_i log p_i(obs, action)

    A model has `logits(obs) -> [B, A, N]`. Predictions are logits, next values and targets probabilities [B, N].
    Priorities are the KL divergence of target and prediction: the loss without the target's own entropy, which no
    learning removes (Hessel et al. 2018). Raises ConfigError for a support that is none.
    """

    def __init__(self, v_min: float, v_max: float, n_atom: int) -> None:
        if isinstance(n_atom, bool) or not isinstance(n_atom, int) or n_atom < 2:
            raise ConfigError(f"n_atom is {n_atom!r}; expected a whole number of 2 or more returns, such as 51")
        if not (math.isfinite(v_min) and math.isfinite(v_max) and v_min < v_max):
            raise ConfigError(
                f"v_min is {v_min} and v_max is {v_max}; expected the smallest and the largest return of the env, "
                "discounted: of rewards from 0 to 1 and a discount_factor of 0.99 these are 0 and 100"
            )
        self._v_min, self._v_max, self._num_atoms = float(v_min), float(v_max), n_atom
        self._per_unit = (n_atom - 1) / (self._v_max - self._v_min)  # atoms in a return of 1
        self._atoms = torch.linspace(self._v_min, self._v_max, n_atom)
        # Beside each other, so that one product gives the sum of shares times atoms and that of shares.
        self._atoms_and_ones = np.stack([self._atoms.numpy(), np.ones(n_atom, np.float32)], axis=1)

    def predict(self, model: Any, obs: Any) -> Tensor:
        logits: Tensor = model.logits(obs)
        return logits

    def expected(self, prediction: Tensor) -> Tensor:
        return prediction.softmax(-1) @ self._atoms_like(prediction)

    def expected_target(self, target: Tensor) -> Tensor:
        return target @ self._atoms_like(target)

    def expected_by_hand(self, output: Array) -> Array:
        share = np.exp(output - np.maximum.reduce(output, axis=-1, keepdims=True))
        sums = share.dot(self._atoms_and_ones)
        expected: Array = sums[..., 0] / sums[..., 1]
        return expected

    def of_action(self, prediction: Tensor, action: Tensor) -> Tensor:
        return points_of_action(prediction, action)

    def of_best(self, prediction: Tensor, judge: Tensor, mask: Tensor | Array | None) -> Tensor:
        action, nothing_legal = best_action(judge, mask)
        best = points_of_action(prediction, action).softmax(-1)
        if nothing_legal is None:
            return best
        end = torch.ones_like(nothing_legal[:1])
        nothing = self.backup(best.new_zeros(1), best[:1], discount=0.0, terminated=end)
        return torch.where(nothing_legal.unsqueeze(-1), nothing, best)

    def backup(self, reward: Tensor, next_value: Tensor, *, discount: Tensor | float, terminated: Tensor) -> Tensor:
        # After an end all atoms land on R, so that any probabilities will do there, if they are some: the prediction
        # of a state after the end is never learned, and may be anything.
        next_value = next_value.masked_fill(terminated.unsqueeze(-1), 1.0 / self._num_atoms)
        following = (discount * ~terminated).unsqueeze(-1)
        place = (reward.unsqueeze(-1) + following * self._atoms_like(next_value) - self._v_min) * self._per_unit
        place = place.clamp_(0.0, self._num_atoms - 1.0)
        # The last atom is reached from the one before it, whose share is 0 then. No place is beyond the ends, but one
        # that is not a number may be called anything.
        lower = place.long().clamp_(0, self._num_atoms - 2)
        upper_share = (place - lower) * next_value
        target = torch.zeros_like(next_value)
        target.scatter_add_(-1, lower, next_value - upper_share)
        return target.scatter_add_(-1, lower + 1, upper_share)

    def backup_by_hand(self, reward: Array, next_value: Array, *, discount: Array | float, terminated: Array) -> Array:
        # torch adds at places faster than numpy does.
        target: Array = self.backup(
            torch.from_numpy(reward),
            torch.from_numpy(next_value),
            discount=torch.as_tensor(discount),
            terminated=torch.from_numpy(terminated),
        ).numpy()
        return target

    def loss(self, chosen: Tensor, target: Tensor) -> RowLoss:
        check_shape("target", target, chosen.shape)
        target = target.detach()
        each = -(target * chosen.log_softmax(-1)).sum(-1)
        divergence = each.detach() + torch.xlogy(target, target).sum(-1)
        return RowLoss(each, divergence.clamp_min(0.0))  # below 0 by rounding alone

    def loss_by_hand(self, output: Array, action: Array, target: Array, *, weight: Array | None) -> LossByHand:
        rows = np.arange(len(output))
        with np.errstate(all="ignore"):  # values that are not finite are the optimizer's to find
            each, priority, slope = cross_entropy(output[rows, action], target)
        scale = np.float32(1.0 / len(output)) if weight is None else (weight / len(output))[:, None]
        grad = np.zeros(output.shape, output.dtype)
        grad[rows, action] = slope * scale
        mean = np.add.reduce(each if weight is None else each * weight) / len(output)
        return LossByHand(float(mean), grad, priority)

    def _atoms_like(self, like: Tensor) -> Tensor:
        if (self._atoms.dtype, self._atoms.device) != (like.dtype, like.device):
            self._atoms = torch.linspace(self._v_min, self._v_max, self._num_atoms, dtype=like.dtype).to(like.device)
        return self._atoms


def cross_entropy(logits: Array, target: Array) -> tuple[Array, Array, Array]:
    """Return (cross entropy [B], KL divergence [B], slope of the first by the logits [B, N]).

    `target` [B, N] are probabilities. The logits are written over.
    """
    log_p = logits
    log_p -= np.maximum.reduce(logits, axis=1, keepdims=True)
    share = np.exp(log_p)
    total = np.add.reduce(share, axis=1, keepdims=True)
    log_p -= np.log(total)
    each = -np.add.reduce(target * log_p, axis=1)
    # A share of 0 adds nothing to the entropy; the smallest number keeps its logarithm finite.
    divergence = each + np.add.reduce(target * np.log(np.maximum(target, _TINY)), axis=1)
    # As the m_i add up to 1, the slope by a logit is p_i - m_i.
    return each, np.maximum(divergence, 0.0), share / total - target
