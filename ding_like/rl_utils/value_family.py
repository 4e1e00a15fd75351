"""Families of value predictions: how a prediction is read, backed up by a step of reward, and compared.

The update around it is `policy/value_based.py`. A scalar is the expected return itself; a categorical distribution
(`categorical.py`, Bellemare et al. 2017) or quantiles (`quantile.py`, Dabney et al. 2018) are other families, with the
same update. B is the batch, A the number of actions; a prediction [B, A, ...] has one value or distribution for each
action.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from torch import Tensor
from torch.nn.functional import huber_loss, mse_loss

from ding_like.errors import ConfigError, SchemaError
from ding_like.rl_utils.td import legal_value, nstep_td_target
from ding_like.types import Array

LossType = Literal["huber", "mse"]
_ZERO = np.float32(0.0)
# What is predicted: a tensor, or where that is not enough (quantiles and their fractions) a tuple of them.
P = TypeVar("P")


class RowLoss(NamedTuple):
    """Distance of each row's prediction from its target."""

    loss: Tensor  # [B], with a gradient
    priority: Tensor  # [B], without: what rows of a prioritised buffer are drawn by


class LossByHand(NamedTuple):
    """Loss and its gradient, as numbers and arrays."""

    loss: float  # the mean over rows
    grad: Array  # of that by the prediction, in its shape
    priority: Array  # [B]


class ValueFamily(Protocol[P]):
    """What an algorithm needs of a way to predict returns.

    Next values and targets are made without a gradient. They have the shape of what is predicted for a row's action,
    but need not say it the same way: predictions may be logits, say, and targets probabilities.
    """

    # Any: a network with the methods that this family calls, and observations as it takes them.
    def predict(self, model: Any, obs: Any) -> P:
        """Return what a network says of observations [B, O...]."""

    def expected(self, prediction: P) -> Tensor:
        """Return the expected returns [B, A] of a prediction [B, A, ...]."""

    def expected_target(self, target: P) -> Tensor:
        """Return the expected returns [B] of targets or next values [B, ...]."""

    def of_action(self, prediction: P, action: Tensor) -> P:
        """Return what a prediction says of the actions [B]. Raises SchemaError if shapes do not fit."""

    def of_best(self, prediction: P, judge: Tensor, mask: Tensor | Array | None) -> P:
        """Return what a prediction says of the best legal action by `judge` [B, A]: a next value.

        `mask` marks the legal actions (not 0). Where it allows none, as after an end, the return is 0 for certain.
        """

    def backup(self, reward: Tensor, next_value: P, *, discount: Tensor | float, terminated: Tensor) -> P:
        """Return what one more step makes of next values: the target.

        `reward` [B] is the n-step return and `discount` gamma to the number of its steps; nothing follows where
        `terminated` [B], whatever the next value is there.
        """

    def loss(self, chosen: P, target: P) -> RowLoss:
        """Compare the predictions of the actions that were taken with their targets."""


@runtime_checkable
class ByHand(Protocol):
    """Family whose prediction is the network's plain output, so that numpy may run and differentiate it.

    The output is [B, A], or [B, A, N] where N numbers describe the return of an action.
    """

    def expected_by_hand(self, output: Array) -> Array:
        """Do what `expected` does, in numpy: [B, A]."""

    def backup_by_hand(self, reward: Array, next_value: Array, *, discount: Array | float, terminated: Array) -> Array:
        """Do what `backup` does, in numpy."""

    def loss_by_hand(self, output: Array, action: Array, target: Array, *, weight: Array | None) -> LossByHand:
        """Do what `of_action` and `loss` do, in numpy, with the mean of rows times their weights [B]."""


class ScalarValue:
    """Expected return, one number for each action: Q-learning. A model has `q(obs) -> [B, A]`.

    'huber' is `e^2 / 2` of an error up to `delta`, then `delta * (|e| - delta / 2)`, which clips its gradient (Mnih et
    al. 2015); 'mse' is `e^2`. Priorities are absolute errors. A team's predictions are [B, N, A], its actions [B, N].
    Raises ConfigError for another loss.
    """

    def __init__(self, loss: LossType = "huber", *, delta: float = 1.0) -> None:
        if loss not in ("huber", "mse"):
            raise ConfigError(f"the TD loss is {loss!r}; expected 'huber' or 'mse'")
        self._loss, self._delta = loss, delta

    def predict(self, model: Any, obs: Any) -> Tensor:
        q: Tensor = model.q(obs)
        return q

    def expected(self, prediction: Tensor) -> Tensor:
        return prediction

    def expected_target(self, target: Tensor) -> Tensor:
        return target

    def expected_by_hand(self, output: Array) -> Array:
        return output

    def of_action(self, prediction: Tensor, action: Tensor) -> Tensor:
        check_shape("action", action, prediction.shape[:-1])
        return prediction.gather(-1, action.long().unsqueeze(-1)).squeeze(-1)

    def of_best(self, prediction: Tensor, judge: Tensor, mask: Tensor | Array | None) -> Tensor:
        return legal_value(judge, prediction, mask)

    def backup(self, reward: Tensor, next_value: Tensor, *, discount: Tensor | float, terminated: Tensor) -> Tensor:
        return nstep_td_target(reward, next_value, discount=discount, terminated=terminated)

    def backup_by_hand(self, reward: Array, next_value: Array, *, discount: Array | float, terminated: Array) -> Array:
        target: Array = reward + discount * np.where(terminated, _ZERO, next_value)
        return target

    def loss(self, chosen: Tensor, target: Tensor) -> RowLoss:
        check_shape("target", target, chosen.shape)
        target = target.detach()
        if self._loss == "huber":
            each = huber_loss(chosen, target, reduction="none", delta=self._delta)
        else:
            each = mse_loss(chosen, target, reduction="none")
        return RowLoss(each, (chosen.detach() - target).abs())

    def loss_by_hand(self, output: Array, action: Array, target: Array, *, weight: Array | None) -> LossByHand:
        rows = np.arange(len(output))
        error = output[rows, action] - target
        size = np.abs(error)
        if self._loss == "huber":
            # error^2 / 2 within delta, a straight line outside: the gradient is the clipped error.
            # Two calls, as np.clip takes several times longer than both.
            slope = np.minimum(np.maximum(error, -self._delta), self._delta)
            value = slope * (error - 0.5 * slope)
        else:
            slope, value = 2.0 * error, error * error
        if weight is not None:
            slope, value = slope * weight, value * weight
        grad = np.zeros(output.shape, output.dtype)
        grad[rows, action] = slope / len(output)
        return LossByHand(float(np.add.reduce(value)) / len(output), grad, size)


def points_of_action(prediction: Tensor, action: Tensor) -> Tensor:
    """Return the N numbers [B, N] that a prediction [B, A, N] has for the actions [B]; SchemaError for other shapes."""
    check_shape("action", action, prediction.shape[:1])
    place = action.long().view(-1, 1, 1).expand(-1, 1, prediction.shape[-1])
    return prediction.gather(1, place).squeeze(1)


def weighted_mean(loss: Tensor, weight: Tensor | None) -> Tensor:
    """Return the mean of rows' losses [B], each times its importance weight [B] (Schaul et al. 2016).

    Raises SchemaError if shapes do not fit.
    """
    if weight is None:
        return loss.mean()
    check_shape("weight", weight, loss.shape)
    return (weight * loss).mean()


def check_shape(name: str, rows: Tensor, expected: tuple[int, ...]) -> None:
    """Refuse [B, 1] beside [B], which would silently broadcast to [B, B]."""
    if rows.shape != expected:
        raise SchemaError(f"{name} has shape {tuple(rows.shape)}, expected {tuple(expected)}; give one number per row")


EPS = 1e-3  # Kapturowski et al. 2019, section 2.3


def value_rescale(x: Tensor, eps: float = EPS) -> Tensor:
    """Return h of values of any shape."""
    return x.sign() * ((x.abs() + 1.0).sqrt() - 1.0) + eps * x


def value_unscale(x: Tensor, eps: float = EPS) -> Tensor:
    """Return the values that `value_rescale` makes `x` of."""
    above = x.abs() + (1.0 + eps)
    # (sqrt(1 + 4 eps a) - 1) / (2 eps), written so that nothing close to 1 is taken off: in float32 that loses digits.
    root = 2.0 * above / ((1.0 + 4.0 * eps * above).sqrt() + 1.0)
    return x.sign() * (root.square() - 1.0)


class RescaledValue(ScalarValue):
    """h of the expected return, on whose scale large returns are close together (Pohlen et al. 2018, section 3.2).

    Targets are h(reward + discount * h^-1(next value)), with

        h(x)    = sign(x) (sqrt(|x| + 1) - 1) + eps x
        h^-1(x) = sign(x) (((sqrt(1 + 4 eps (|x| + 1 + eps)) - 1) / (2 eps))^2 - 1)
    """

    def backup(self, reward: Tensor, next_value: Tensor, *, discount: Tensor | float, terminated: Tensor) -> Tensor:
        return value_rescale(
            super().backup(reward, value_unscale(next_value), discount=discount, terminated=terminated)
        )
