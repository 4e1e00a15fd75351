"""Predict returns by quantiles at fractions that are drawn (IQN) or proposed by a network (FQF).

The quantile of a return Z at a fraction t is the value that it stays below with probability t. A prediction is
`Quantiles`: values at N fractions, and the share of the distribution that each of them stands for. B is the batch, A
the number of actions. Sources: IQN, Dabney et al. 2018b, "Implicit quantile networks for distributional reinforcement
learning"; FQF, Yang et al. 2019, "Fully parameterized quantile function for distributional reinforcement learning".
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ding_like.errors import ConfigError
from ding_like.rl_utils.quantile import asymmetric_huber
from ding_like.rl_utils.td import best_action, nstep_td_target
from ding_like.rl_utils.value_family import RowLoss, check_shape, points_of_action
from ding_like.types import Array


class Quantiles(NamedTuple):
    """Hold what a return is at N fractions; the first axis of `fractions` and `weights` may be 1: the same for all."""

    values: Tensor  # [B, A, N]; of the rows' actions, or of targets, [B, N]
    fractions: Tensor  # [B, N], in (0, 1)
    weights: Tensor  # [B, N], the share of the distribution that each stands for; their sum is 1


def quantile_huber_loss(chosen: Quantiles, target: Quantiles, *, kappa: float) -> Tensor:
    """Return the loss [B]: over predicted quantiles i the sum, over targets j the mean, of what both differ by.

    It is `|t_i - 1{d < 0}| * H(d) / kappa` of `d = target_j - value_i`, where H is Huber's loss, `d^2 / 2` up to kappa
    and `kappa (|d| - kappa / 2)` beyond. The mean over targets takes each by its weight. Source: Dabney et al. 2018b,
    eq. 3.
    """
    difference = target.values.detach().unsqueeze(1) - chosen.values.unsqueeze(2)  # [B, N, N']
    each = asymmetric_huber(difference, chosen.fractions.unsqueeze(2), kappa=kappa) * target.weights.unsqueeze(1)
    return each.sum(2).sum(1) / kappa


def quantile_huber_by_hand(
    values: Array, fractions: Array, target: Array, target_weights: Array, *, kappa: float
) -> tuple[Array, Array]:
    """Return (what `quantile_huber_loss` returns [B], its gradient by the values [B, N]), in numpy."""
    difference = target[:, None] - values[:, :, None]
    # Two calls, as np.clip takes several times longer than both.
    slope = np.minimum(np.maximum(difference, -kappa), kappa)
    huber = slope * (difference - 0.5 * slope)
    side = np.abs(fractions[:, :, None] - (difference < 0))
    side *= target_weights[:, None]
    side /= kappa
    huber *= side
    slope *= side
    return np.add.reduce(huber, axis=(1, 2)), -np.add.reduce(slope, axis=2)


class ImplicitQuantiles:
    """Predict quantiles at any fractions: a model has `quantiles(obs, fractions [B, N]) -> [B, A, N]`.

    `predict` asks for those at the model's own `midpoints() -> [1, K]`, and draws no random numbers: the mean of these
    quantiles is the expected return, to the accuracy of the midpoint rule. Priorities are the rows' losses. Raises
    ConfigError for a kappa that is not above 0.
    """

    def __init__(self, *, kappa: float = 1.0) -> None:
        if kappa <= 0:
            raise ConfigError(f"kappa, where the quantile loss turns from a square into a line, is {kappa}; give > 0")
        self.kappa = kappa

    # Any: a model, and observations as it takes them.
    def predict(self, model: Any, obs: Any) -> Quantiles:
        return self.predict_at(model, obs, model.midpoints())

    def predict_at(self, model: Any, obs: Any, fractions: Tensor) -> Quantiles:
        """Return what a network says of observations [B, O...] at fractions, [B, N] or [1, N] for all rows."""
        weights = torch.full_like(fractions, 1.0 / fractions.shape[1])
        return Quantiles(model.quantiles(obs, fractions), fractions, weights)

    def expected(self, prediction: Quantiles) -> Tensor:
        return (prediction.values * prediction.weights.unsqueeze(1)).sum(-1)

    def expected_target(self, target: Quantiles) -> Tensor:
        return (target.values * target.weights).sum(-1)

    def of_action(self, prediction: Quantiles, action: Tensor) -> Quantiles:
        return prediction._replace(values=points_of_action(prediction.values, action))

    def of_best(self, prediction: Quantiles, judge: Tensor, mask: Tensor | Array | None) -> Quantiles:
        action, nothing_legal = best_action(judge, mask)
        best = self.of_action(prediction, action)
        if nothing_legal is None:
            return best
        return best._replace(values=best.values.masked_fill(nothing_legal.unsqueeze(1), 0.0))

    def backup(
        self, reward: Tensor, next_value: Quantiles, *, discount: Tensor | float, terminated: Tensor
    ) -> Quantiles:
        by_row = discount.unsqueeze(1) if isinstance(discount, Tensor) else discount
        values = nstep_td_target(
            reward.unsqueeze(1), next_value.values, discount=by_row, terminated=terminated.unsqueeze(1)
        )
        return next_value._replace(values=values)

    def loss(self, chosen: Quantiles, target: Quantiles) -> RowLoss:
        check_shape("target", target.values[:, 0], chosen.values.shape[:1])
        each = quantile_huber_loss(chosen, target, kappa=self.kappa)
        return RowLoss(each, each.detach())


class ProposedQuantiles(ImplicitQuantiles):
    """Predict quantiles at the middles of proposed parts of [0, 1], each for as much as its part is wide.

    A model has `predict(obs)`, which returns these quantiles [B, A, N] and the proposal, with `midpoints` and `widths`
    of the parts [B, N].
    """

    def predict(self, model: Any, obs: Any) -> Quantiles:
        values, fractions = model.predict(obs)
        return Quantiles(values, fractions.midpoints, fractions.widths)


# Any: both tensors, or both arrays.
def fraction_gradient(at_bounds: Any, at_midpoints: Any) -> Any:
    """Return the derivative of the 1-Wasserstein error by the inner bounds of the parts, [B, N - 1].

    The error is that of replacing a quantile function F, on each part of [0, 1], by its value at the part's middle:
    the sum over i of the integral of `|F(w) - F(mid_i)|` over the part. `at_bounds` [B, N - 1] and `at_midpoints`
    [B, N] are values of F. By bound i the derivative is `2 F(bound_i) - F(mid_i) - F(mid_{i-1})`, of an F that
    nowhere decreases. Source: Yang et al. 2019, proposition 1.
    """
    return 2.0 * at_bounds - at_midpoints[:, 1:] - at_midpoints[:, :-1]


def fraction_loss(bounds: Tensor, slope: Tensor, entropy: Tensor, *, entropy_weight: float) -> Tensor:
    """Return a loss [B] whose gradient by `bounds` [B, N - 1] is `slope`, less a bonus for `entropy` [B] of the widths.

    Its value says nothing: the error itself is an integral that is never computed.
    """
    return (bounds * slope.detach()).sum(-1) - entropy_weight * entropy
