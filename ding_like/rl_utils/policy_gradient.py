"""Losses of policy gradients: PPO (on torch tensors, or by hand on arrays), A2C, and the targets of V-trace.

B is the batch, T the steps of a sequence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ding_like.errors import SchemaError
from ding_like.types import Array, State


class PPOPolicyLoss(NamedTuple):
    """Loss to differentiate, and how far the policy has moved; all are 0-dim."""

    loss: Tensor
    approx_kl: Tensor  # KL(old, new), estimated by mean((r - 1) - log r), which is never negative
    clip_fraction: Tensor  # share of rows whose ratio lies outside the clip range


def ppo_policy_loss(
    log_prob: Tensor,
    old_log_prob: Tensor,
    advantage: Tensor,
    *,
    clip_ratio: float,
    dual_clip: float | None = None,
    kl_beta: float = 0.0,
) -> PPOPolicyLoss:
    """Return the clipped surrogate loss; all tensors are [B], and only `log_prob` has a gradient.

    With r = exp(log_prob - old_log_prob), a row counts `-min(r A, clip(r, 1 - clip_ratio, 1 + clip_ratio) A)`. With
    clip_ratio 0.2: r 1.5, A 2 gives -2.4; r 1.5, A -2 gives 3.0, as nothing limits a move that made it worse. With
    `dual_clip` c > 1 a row with A < 0 counts at most -c A. `kl_beta` is the weight of KL(old, new), of which a row
    adds (r - 1) - log r: under the old policy its mean and that of its gradient are the KL's own. Raises SchemaError if
    shapes differ.
    Source: Schulman et al. 2017, eq. 7 and 8; Ye et al. 2020 for the dual clip; Schulman 2020, "Approximating KL
    divergence".
    """
    _check_rows(log_prob, old_log_prob=old_log_prob, advantage=advantage)
    log_ratio = log_prob - old_log_prob
    ratio = log_ratio.exp()
    gain = ratio * advantage
    with torch.no_grad():  # where the clipped side is the smaller one it is a constant
        inside = ratio.clamp(1.0 - clip_ratio, 1.0 + clip_ratio)
        clipped = inside * advantage
        approx_kl = (ratio - 1.0 - log_ratio).mean()
        clip_fraction = (inside != ratio).float().mean()
        moves = gain <= clipped
    surrogate = torch.where(moves, gain, clipped)
    if dual_clip is not None:
        surrogate = torch.where(advantage < 0, torch.maximum(surrogate, dual_clip * advantage), surrogate)
    loss = -surrogate.mean()
    if kl_beta:
        loss = loss + kl_beta * (ratio - 1.0 - log_ratio).mean()
    return PPOPolicyLoss(loss, approx_kl, clip_fraction)


def ppo_value_loss(value: Tensor, return_: Tensor, *, old_value: Tensor, value_clip: float | None = None) -> Tensor:
    """Return the mean squared error of `value` [B] to `return_` [B].

    With `value_clip` c, the worse of `value` and `old_value + clip(value - old_value, -c, c)` counts in each row.
    Raises SchemaError if shapes differ. Source: Schulman et al. 2017, eq. 9; the clip is from their implementation.
    """
    _check_rows(value, return_=return_, old_value=old_value)
    if value_clip is None:
        return F.mse_loss(value, return_)
    clipped = old_value + (value - old_value).clamp(-value_clip, value_clip)
    return torch.maximum((value - return_).square(), (clipped - return_).square()).mean()


class LossByHand(NamedTuple):
    """Loss of arrays, and its gradient."""

    loss: float
    grad: Array  # [B], by log_prob or value


def ppo_policy_loss_by_hand(
    log_prob: Array,
    old_log_prob: Array,
    advantage: Array,
    *,
    clip_ratio: float,
    dual_clip: float | None = None,
    kl_beta: float = 0.0,
) -> tuple[LossByHand, float, float]:
    """Return (what `ppo_policy_loss` says of arrays, the approximate KL, the clip fraction)."""
    log_ratio = log_prob - old_log_prob
    ratio = np.exp(log_ratio)
    gain = ratio * advantage
    clipped = np.clip(ratio, 1.0 - clip_ratio, 1.0 + clip_ratio) * advantage
    moves = gain <= clipped  # where the surrogate is the unclipped one, whose slope is the ratio times A
    surrogate = np.where(moves, gain, clipped)
    if dual_clip is not None:
        bound = dual_clip * advantage
        is_bound = (advantage < 0) & (surrogate < bound)
        surrogate, moves = np.where(is_bound, bound, surrogate), moves & ~is_bound
    moved = ratio - 1.0
    loss, slope, approx_kl = -_mean(surrogate), -gain * moves, _mean(moved - log_ratio)
    if kl_beta:
        loss, slope = loss + kl_beta * approx_kl, slope + kl_beta * moved
    return LossByHand(loss, slope * (1.0 / len(gain))), approx_kl, _mean(np.abs(moved) > clip_ratio)


def ppo_value_loss_by_hand(
    value: Array, return_: Array, *, old_value: Array, value_clip: float | None = None
) -> LossByHand:
    """Return what `ppo_value_loss` says of arrays."""
    error = value - return_
    slope = error
    if value_clip is not None:
        moved = value - old_value
        clipped = old_value + np.clip(moved, -value_clip, value_clip) - return_
        is_worse = np.square(clipped) > np.square(error)
        error = np.where(is_worse, clipped, error)
        slope = np.where(is_worse & (np.abs(moved) > value_clip), 0.0, error)
    return LossByHand(_mean(np.square(error)), slope * np.float32(2.0 / len(value)))


def _mean(x: Array) -> float:
    return float(np.add.reduce(x)) / len(x)


TensorOrArray = TypeVar("TensorOrArray", Tensor, Array)


def normalise(x: TensorOrArray) -> TensorOrArray:
    """Return `x` shifted and scaled to mean 0 and standard deviation 1; a constant becomes 0."""
    if isinstance(x, np.ndarray):
        centred = x - _mean(x)
        return centred / (math.sqrt(_mean(centred * centred)) + 1e-8)
    std, mean = torch.std_mean(x, correction=0)
    return (x - mean) / (std + 1e-8)


@dataclass
class RunningStd:
    """Standard deviation of all numbers seen so far (Chan et al. 1983); 1 before the first."""

    _count: int = 0
    _mean: float = 0.0
    _square_sum: float = 0.0  # of deviations from the mean

    def update(self, values: Array) -> None:
        """Take in more numbers [N]."""
        new = len(values)
        mean = float(values.mean(dtype=np.float64))
        square_sum = float(np.square(values - mean, dtype=np.float64).sum())
        total, shift = self._count + new, mean - self._mean
        self._square_sum += square_sum + shift**2 * self._count * new / total
        self._mean += shift * new / total
        self._count = total

    @property
    def std(self) -> float:
        """Return the standard deviation; 1 as long as there is none to speak of."""
        variance = self._square_sum / max(self._count, 1)
        return variance**0.5 if variance > 1e-12 else 1.0

    def state_dict(self) -> State:
        """Return three 0-dim tensors in full precision, which travel as weights do."""
        return {
            "count": torch.tensor(self._count, dtype=torch.int64),
            "mean": torch.tensor(self._mean, dtype=torch.float64),
            "square_sum": torch.tensor(self._square_sum, dtype=torch.float64),
        }

    @classmethod
    def from_state(cls, state: State) -> RunningStd:
        """Return what `state_dict` was called of; the state may hold tensors, arrays or numbers."""
        return cls(int(state["count"]), float(state["mean"]), float(state["square_sum"]))


class A2CLoss(NamedTuple):
    """The two losses to differentiate; both are 0-dim."""

    policy: Tensor
    value: Tensor


def a2c_loss(log_prob: Tensor, value: Tensor, *, advantage: Tensor, return_: Tensor) -> A2CLoss:
    """Return `-mean(log_prob * advantage)` and `mean((value - return_)^2)`.

    All tensors are [B]; `advantage` and `return_` are constants. Raises SchemaError if shapes differ.
    Source: Mnih et al. 2016, section 4.2 and algorithm S3.
    """
    _check_rows(log_prob, value=value, advantage=advantage, return_=return_)
    return A2CLoss(policy=-(log_prob * advantage).mean(), value=(value - return_).square().mean())


class VTrace(NamedTuple):
    """What a critic and an actor learn from; both are [B, T] and mean nothing where steps are not valid."""

    target: Tensor  # v_s, what the value is moved towards
    advantage: Tensor  # rho_s (r_s + gamma v_(s+1) - V(x_s)), the weight of the log probability's gradient


def vtrace(
    log_ratio: Tensor,
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    done: Tensor,
    *,
    gamma: float,
    lambda_: float = 1.0,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
    rho_pg_clip: float = 1.0,
    valid: Tensor | None = None,
) -> VTrace:
    """Return V-trace targets and advantages of sequences, walking each backwards; all tensors are [B, T].

    `log_ratio` is log pi(a|x) - log mu(a|x), of the policy that learns and the one that acted. With
    rho_t = min(rho_clip, pi / mu) and c_t = lambda_ min(c_clip, pi / mu):

        v_s = V(x_s) + sum_(t >= s) gamma^(t - s) (c_s ... c_(t-1)) rho_t (r_t + gamma V(x_(t+1)) - V(x_t))

    `next_value[t]` is the value of the true next observation: where an episode is truncated, or a sequence ends,
    v_(t+1) is that value, and where it terminated 0. `done` cuts the sum in both cases, and so does a step that is not
    `valid`; what stands there (NaN too) changes nothing. With one step of reward 1, V 0 and next value 4, gamma 0.5
    and log_ratio log(1/2): target 0.5 (1 + 2) = 1.5, advantage 1.5.

    Raises SchemaError if shapes differ. Source: Espeholt et al. 2018, equation 1 and remarks 1 and 2.
    """
    given = reward if valid is None else valid
    _check_rows(reward, 2, log_ratio=log_ratio, value=value, next_value=next_value, terminated=terminated, valid=given)
    _check_rows(reward, 2, done=done)
    ratio = log_ratio.exp()
    next_value = next_value.masked_fill(terminated, 0.0)
    delta = ratio.clamp(max=rho_clip) * (reward + gamma * next_value - value)
    goes_on = ~done
    if valid is not None:
        delta = delta.masked_fill(~valid, 0.0)
        goes_on = goes_on & valid
    decay = (gamma * lambda_ * ratio.clamp(max=c_clip)).masked_fill(~goes_on, 0.0)
    # v_s - V(x_s) = delta_s + gamma c_s (v_(s+1) - V(x_(s+1)))
    running = torch.zeros_like(reward[:, 0])
    beyond = []  # v_(s+1) - V(x_(s+1)), of the last step first
    for delta_t, decay_t in zip(reversed(delta.unbind(1)), reversed(decay.unbind(1)), strict=True):
        beyond.append(running)
        running = torch.addcmul(delta_t, decay_t, running)
    correction = torch.stack([running, *reversed(beyond)], dim=1)
    next_target = next_value + correction[:, 1:].masked_fill(~goes_on, 0.0)
    advantage = ratio.clamp(max=rho_pg_clip) * (reward + gamma * next_target - value)
    return VTrace(value + correction[:, :-1], advantage)


def _check_rows(first: Tensor, num_axes: int = 1, **others: Tensor) -> None:
    """Refuse [B, 1] beside [B], which would silently broadcast to [B, B]."""
    axes, what = ("[B]", "row") if num_axes == 1 else ("[B, T]", "step of each sequence")
    for name, tensor in others.items():
        if first.dim() != num_axes or tensor.shape != first.shape:
            raise SchemaError(
                f"{name} has shape {tuple(tensor.shape)} beside {tuple(first.shape)}; expected {axes} for both: give "
                f"one number per {what}"
            )
