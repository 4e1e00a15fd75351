"""Predict distributions of returns by their quantiles (Dabney et al. 2018)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ding_like.errors import ConfigError
from ding_like.rl_utils.td import best_action, nstep_td_target
from ding_like.rl_utils.value_family import LossByHand, RowLoss, check_shape, points_of_action
from ding_like.types import Array

_ZERO = np.float32(0.0)


class QuantileValue:
    """Predict `num_quantiles` quantiles theta_i, those in the middle of as many equal shares: QR-DQN.

        tau_i = (i + 1/2) / N                                   their fractions, i from 0
        t_j   = R + discount theta_j(next_obs, a*)              the target
        loss  = sum_i mean_j rho_i(t_j - theta_i(obs, action))  algorithm 1
        rho_i(u) = |tau_i - 1[u < 0]| L(u)                      eq. 10
        L(u)  = u^2 / 2 where |u| <= kappa, else kappa (|u| - kappa / 2)

    A model has `quantiles(obs) -> [B, A, N]`. Next values and targets are quantiles [B, N]. Priorities are the losses
    of rows. Raises ConfigError for fewer than 1 quantile or a kappa that is not above 0.
    """

    def __init__(self, num_quantiles: int, *, kappa: float = 1.0) -> None:
        if isinstance(num_quantiles, bool) or not isinstance(num_quantiles, int) or num_quantiles < 1:
            raise ConfigError(f"num_quantiles is {num_quantiles!r}; expected a whole number of 1 or more, such as 32")
        if not (math.isfinite(kappa) and kappa > 0):
            raise ConfigError(f"kappa is {kappa!r}; expected a number above 0: where the loss turns from e^2 to |e|")
        self._num_quantiles, self._kappa = num_quantiles, float(kappa)
        self._tau = (np.arange(num_quantiles) + 0.5) / num_quantiles

    def predict(self, model: Any, obs: Any) -> Tensor:
        quantiles: Tensor = model.quantiles(obs)
        return quantiles

    def expected(self, prediction: Tensor) -> Tensor:
        return prediction.mean(-1)

    def expected_target(self, target: Tensor) -> Tensor:
        return target.mean(-1)

    def expected_by_hand(self, output: Array) -> Array:
        expected: Array = np.add.reduce(output, axis=-1) / output.shape[-1]
        return expected

    def of_action(self, prediction: Tensor, action: Tensor) -> Tensor:
        return points_of_action(prediction, action)

    def of_best(self, prediction: Tensor, judge: Tensor, mask: Tensor | Array | None) -> Tensor:
        action, nothing_legal = best_action(judge, mask)
        best = points_of_action(prediction, action)
        return best if nothing_legal is None else best.masked_fill(nothing_legal.unsqueeze(-1), 0.0)

    def backup(self, reward: Tensor, next_value: Tensor, *, discount: Tensor | float, terminated: Tensor) -> Tensor:
        if isinstance(discount, Tensor):
            discount = discount.unsqueeze(-1)
        return nstep_td_target(reward.unsqueeze(-1), next_value, discount=discount, terminated=terminated.unsqueeze(-1))

    def backup_by_hand(self, reward: Array, next_value: Array, *, discount: Array | float, terminated: Array) -> Array:
        if isinstance(discount, np.ndarray):
            discount = discount[:, None]
        target: Array = reward[:, None] + discount * np.where(terminated[:, None], _ZERO, next_value)
        return target

    def loss(self, chosen: Tensor, target: Tensor) -> RowLoss:
        check_shape("target", target, chosen.shape)
        error = target.detach().unsqueeze(1) - chosen.unsqueeze(2)  # [B, N predicted, N targets]
        tau = torch.as_tensor(self._tau, dtype=error.dtype, device=error.device).unsqueeze(-1)
        each = asymmetric_huber(error, tau, kappa=self._kappa).mean(2).sum(1)
        return RowLoss(each, each.detach())

    def loss_by_hand(self, output: Array, action: Array, target: Array, *, weight: Array | None) -> LossByHand:
        rows = np.arange(len(output))
        with np.errstate(all="ignore"):  # values that are not finite are the optimizer's to find
            each, slope = quantile_huber(output[rows, action], target, tau=self._tau, kappa=self._kappa)
        scale = 1.0 / len(output) if weight is None else (weight / len(output))[:, None]
        grad = np.zeros(output.shape, output.dtype)
        grad[rows, action] = slope * scale
        mean = np.add.reduce(each if weight is None else each * weight) / len(output)
        return LossByHand(float(mean), grad, each.astype(output.dtype))


def asymmetric_huber(error: Tensor, tau: Tensor, *, kappa: float) -> Tensor:
    """Return `rho(error) = |tau - 1[error < 0]| L(error)` of `QuantileValue`, in the shape of errors."""
    small = error.clamp(-kappa, kappa)
    huber = small * (error - 0.5 * small)
    return (tau - (error.detach() < 0).to(error.dtype)).abs() * huber


def quantile_huber(theta: Array, target: Array, *, tau: Array, kappa: float) -> tuple[Array, Array]:
    """Return (`sum_i mean_j rho_i(target_j - theta_i)` [B], its slope by theta [B, N]) in float64.

    Both are [B, N], and `rho_i` is that of `QuantileValue`. It does not compare each with each, N^2 numbers a row:
    either side of Huber's loss is the difference of two squares, `L(u) = (max(u, 0)^2 - max(u - kappa, 0)^2) / 2` for
    u above 0, so that sums over j follow from sums of targets, and of their squares, above a place, which is found in
    the sorted targets. At N = 32 that takes half of the time, at 200 an eighth.
    """
    batch, num = target.shape
    ordered = np.sort(target, axis=1).astype(np.float64)
    # Squares of numbers around 0 keep their digits when they are taken from each other.
    middle = ordered[:, num // 2, None].copy()
    ordered -= middle
    theta = theta - middle
    # A search for places in ascending order takes half of the time, as a processor foresees its branches.
    order = np.argsort(theta, axis=1)
    tau, flat = tau.take(order), order + np.arange(0, batch * num, num)[:, None]
    theta = theta.ravel().take(flat)
    above, below = _beyond(ordered, np.concatenate([theta - kappa, theta, theta + kappa], axis=1))
    # Of |u| first and of u^2 second, between theta and where the loss becomes a straight line.
    above, below = above[:, :, num : 2 * num] - above[:, :, 2 * num :], below[:, :, num : 2 * num] - below[:, :, :num]
    each = np.add.reduce(tau * above[1] + (1.0 - tau) * below[1], axis=1) * (0.5 / num)
    slope = np.empty(theta.shape)
    slope.ravel()[flat] = ((1.0 - tau) * below[0] - tau * above[0]) / num
    return each, slope


def _beyond(ordered: Array, place: Array) -> tuple[Array, Array]:
    """Return the sums over targets t of (max(t - x, 0), its square) [2, B, M], and of (max(x - t, 0), its square).

    `ordered` [B, N] are the targets of each row in ascending order, `place` [B, M] the x.
    """
    batch, num = ordered.shape
    # Of the targets from each one on, and of their squares: after[:, b, n] sums ordered[b, n:].
    after = np.zeros((2, batch, num + 1))
    np.cumsum(ordered[:, ::-1], axis=1, out=after[0, :, -2::-1])
    np.cumsum(np.square(ordered)[:, ::-1], axis=1, out=after[1, :, -2::-1])
    first = torch.searchsorted(torch.from_numpy(ordered), torch.from_numpy(place)).numpy()  # numpy has it for one row
    count = num - first
    first += np.arange(0, batch * (num + 1), num + 1)[:, None]
    above, below = np.empty((2, *place.shape)), np.empty((2, *place.shape))
    total = after[0].ravel().take(first)
    np.subtract(total, count * place, out=above[0])
    np.subtract(after[1].ravel().take(first), place * (total + above[0]), out=above[1])
    # What is above minus what is below is the sum over all targets.
    every, squares = after[0, :, :1], after[1, :, :1]
    np.subtract(above[0], every - num * place, out=below[0])
    np.subtract(squares + place * (num * place - 2.0 * every), above[1], out=below[1])
    return above, below
