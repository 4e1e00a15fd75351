"""Families of value predictions: how a prediction is read, backed up by a step of reward, and compared.

The update around it is `policy/value_based.py`. A scalar is the expected return itself; a categorical distribution
(the probabilities of fixed returns, the atoms, Bellemare et al. 2017) or quantiles (at fixed fractions, QR-DQN, drawn
ones, IQN, or proposed ones, FQF) are other families, with the same update. B is the batch, A the number of actions; a
prediction [B, A, ...] has one value or distribution for each action.

The quantile of a return Z at a fraction t is the value that it stays below with probability t. Sources:
QR-DQN, Dabney et al. 2018; IQN, Dabney et al. 2018b, "Implicit quantile networks for
distributional reinforcement learning"; FQF, Yang et al. 2019, "Fully parameterized quantile function for distributional
reinforcement learning".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import huber_loss, mse_loss

from ding_like.errors import ConfigError, SchemaError
from ding_like.rl_utils.distributions import log_softmax_by_hand
from ding_like.rl_utils.td import best_action, legal_value, nstep_td_target
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
        return cast(Tensor, model.q(obs))

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
        return cast(Array, reward + discount * np.where(terminated, _ZERO, next_value))

    def loss(self, chosen: Tensor, target: Tensor) -> RowLoss:
        check_shape("target", target, chosen.shape)
        target = target.detach()
        compare = partial(huber_loss, delta=self._delta) if self._loss == "huber" else mse_loss
        each = compare(chosen, target, reduction="none")
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
        following = value_unscale(next_value)
        return value_rescale(super().backup(reward, following, discount=discount, terminated=terminated))


_TINY = np.finfo(np.float32).tiny


class DistributionValue:
    """What distributions that N numbers [B, A, N] describe have in common."""

    # Of each the family's own: `backup`, and the three below.
    backup: Callable[..., Tensor]

    def _as_target(self, chosen: Tensor) -> Tensor:
        """Return the distributions [B, N] of predictions of one action, as targets are said."""
        return chosen

    def _compare(self, chosen: Array, target: Array) -> tuple[Array, Array, Array]:
        """Return (loss [B], priority [B], the slope of the loss by `chosen` [B, N]); `chosen` may be written over."""
        raise NotImplementedError

    def of_action(self, prediction: Tensor, action: Tensor) -> Tensor:
        return points_of_action(prediction, action)

    def of_best(self, prediction: Tensor, judge: Tensor, mask: Tensor | Array | None) -> Tensor:
        action, nothing_legal = best_action(judge, mask)
        best = self._as_target(points_of_action(prediction, action))
        if nothing_legal is None:
            return best
        end = torch.ones_like(nothing_legal[:1])
        nothing = self.backup(best.new_zeros(1), best[:1], discount=0.0, terminated=end)
        return torch.where(nothing_legal.unsqueeze(-1), nothing, best)

    def loss_by_hand(self, output: Array, action: Array, target: Array, *, weight: Array | None) -> LossByHand:
        rows = np.arange(len(output))
        with np.errstate(all="ignore"):  # values that are not finite are the optimizer's to find
            each, priority, slope = self._compare(output[rows, action], target)
        grad = np.zeros(output.shape, output.dtype)
        grad[rows, action] = slope * (1.0 / len(output) if weight is None else (weight / len(output))[:, None])
        mean = np.add.reduce(each if weight is None else each * weight) / len(output)
        return LossByHand(float(mean), grad, priority.astype(output.dtype, copy=False))


class CategoricalValue(DistributionValue):
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
        return cast(Tensor, model.logits(obs))

    def expected(self, prediction: Tensor) -> Tensor:
        return prediction.softmax(-1) @ self._atoms_like(prediction)

    def expected_target(self, target: Tensor) -> Tensor:
        return target @ self._atoms_like(target)

    def expected_by_hand(self, output: Array) -> Array:
        share = np.exp(output - np.maximum.reduce(output, axis=-1, keepdims=True))
        sums = share.dot(self._atoms_and_ones)
        return cast(Array, sums[..., 0] / sums[..., 1])

    def _as_target(self, chosen: Tensor) -> Tensor:
        return chosen.softmax(-1)

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

    def _compare(self, chosen: Array, target: Array) -> tuple[Array, Array, Array]:
        log_p, share = log_softmax_by_hand(chosen)
        each = -np.add.reduce(target * log_p, axis=1)
        # A share of 0 adds nothing to the entropy; the smallest number keeps its logarithm finite.
        divergence = each + np.add.reduce(target * np.log(np.maximum(target, _TINY)), axis=1)
        # As the m_i add up to 1, the slope by a logit is p_i - m_i.
        return each, np.maximum(divergence, 0.0), share - target

    def _atoms_like(self, like: Tensor) -> Tensor:
        if (self._atoms.dtype, self._atoms.device) != (like.dtype, like.device):
            self._atoms = torch.linspace(self._v_min, self._v_max, self._num_atoms, dtype=like.dtype).to(like.device)
        return self._atoms


class QuantileValue(DistributionValue):
    """`num_quantiles` quantiles theta_i of returns, those in the middle of as many equal shares: QR-DQN.

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
        return cast(Tensor, model.quantiles(obs))

    def expected(self, prediction: Tensor) -> Tensor:
        return prediction.mean(-1)

    def expected_target(self, target: Tensor) -> Tensor:
        return target.mean(-1)

    def expected_by_hand(self, output: Array) -> Array:
        return cast(Array, np.add.reduce(output, axis=-1) / output.shape[-1])

    def backup(self, reward: Tensor, next_value: Tensor, *, discount: Tensor | float, terminated: Tensor) -> Tensor:
        if isinstance(discount, Tensor):
            discount = discount.unsqueeze(-1)
        return nstep_td_target(reward.unsqueeze(-1), next_value, discount=discount, terminated=terminated.unsqueeze(-1))

    def backup_by_hand(self, reward: Array, next_value: Array, *, discount: Array | float, terminated: Array) -> Array:
        if isinstance(discount, np.ndarray):
            discount = discount[:, None]
        return cast(Array, reward[:, None] + discount * np.where(terminated[:, None], _ZERO, next_value))

    def loss(self, chosen: Tensor, target: Tensor) -> RowLoss:
        check_shape("target", target, chosen.shape)
        error = target.detach().unsqueeze(1) - chosen.unsqueeze(2)  # [B, N predicted, N targets]
        tau = torch.as_tensor(self._tau, dtype=error.dtype, device=error.device).unsqueeze(-1)
        each = asymmetric_huber(error, tau, kappa=self._kappa).mean(2).sum(1)
        return RowLoss(each, each.detach())

    def _compare(self, chosen: Array, target: Array) -> tuple[Array, Array, Array]:
        each, slope = quantile_huber(chosen, target, tau=self._tau, kappa=self._kappa)
        return each, each, slope


def asymmetric_huber(error: Tensor, tau: Tensor, *, kappa: float) -> Tensor:
    """Return `rho(error) = |tau - 1[error < 0]| L(error)` of `QuantileValue`, in the shape of errors."""
    small = error.clamp(-kappa, kappa)
    huber = small * (error - 0.5 * small)
    return (tau - (error.detach() < 0).to(error.dtype)).abs() * huber


def quantile_huber(theta: Array, target: Array, *, tau: Array, kappa: float) -> tuple[Array, Array]:
    """Return (`sum_i mean_j rho_i(target_j - theta_i)` [B], its slope by theta [B, N]) in float64.

    `theta` is [B, N], targets [B, K], and `rho_i` is that of `QuantileValue`. Not each is compared with each: either
    side of Huber's loss is the difference of two squares, `L(u) = (max(u, 0)^2 - max(u - kappa, 0)^2) / 2` for u above
    0, so that sums over j follow from sums of targets, and of their squares, above a place, which is found in the
    sorted targets. At N = K = 32 that takes half of the time, at 200 an eighth.
    """
    batch, num = target.shape
    size = theta.shape[1]
    ordered = np.sort(target, axis=1).astype(np.float64)
    # Squares of numbers around 0 keep their digits when they are taken from each other.
    middle = ordered[:, num // 2, None].copy()
    ordered -= middle
    theta = theta - middle
    # A search for places in ascending order takes half of the time, as a processor foresees its branches.
    order = np.argsort(theta, axis=1)
    tau, flat = tau.take(order), order + np.arange(0, batch * size, size)[:, None]
    theta = theta.ravel().take(flat)
    above, below = _beyond(ordered, np.concatenate([theta - kappa, theta, theta + kappa], axis=1))
    # Of |u| first and of u^2 second, between theta and where the loss becomes a straight line.
    above, below = above[:, :, size:-size] - above[:, :, -size:], below[:, :, size:-size] - below[:, :, :size]
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


class Quantiles(NamedTuple):
    """Values of returns at N fractions; the first axis of `fractions` and `weights` may be 1: the same for all."""

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
    """Quantiles at any fractions: a model has `quantiles(obs, fractions [B, N]) -> [B, A, N]`.

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
        nothing = None if nothing_legal is None else nothing_legal.unsqueeze(1)
        return best if nothing is None else best._replace(values=best.values.masked_fill(nothing, 0.0))

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
    """Quantiles at the middles of proposed parts of [0, 1], each for as much as its part is wide.

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
