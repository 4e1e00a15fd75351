"""Compute temporal-difference targets and losses on torch tensors. B is the batch, A the number of actions."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import huber_loss, mse_loss

from ding_like.errors import ConfigError, SchemaError
from ding_like.types import Array

LossType = Literal["huber", "mse"]


class TDError(NamedTuple):
    """Hold a loss to differentiate and the errors behind it."""

    loss: Tensor  # 0-dim, the mean over the batch
    abs_error: Tensor  # [B], |q - target| without gradient: what priorities are made of


def nstep_td_target(reward: Tensor, next_value: Tensor, *, discount: Tensor | float, terminated: Tensor) -> Tensor:
    """Return `reward + discount * next_value`, without the second part where `terminated` (bool).

    All are [B]; `reward` is the n-step return and `discount` gamma to the number of its steps. A truncated row is not
    terminated and bootstraps. Source: Watkins 1989; Sutton & Barto 2018, eq. 7.1.
    """
    # masked_fill and not a product: the value of a state after the end is never learned, and may be anything.
    return reward + discount * next_value.masked_fill(terminated, 0.0)


def double_q_value(next_q_online: Tensor, next_q_target: Tensor) -> Tensor:
    """Return what the target network [..., A] says of the online network's best action [..., A], as [...].

    Source: van Hasselt et al. 2016, eq. 4.
    """
    best = next_q_online.argmax(dim=-1, keepdim=True)
    return next_q_target.gather(-1, best).squeeze(-1)


def legal_value(judge: Tensor, values: Tensor, mask: Tensor | Array | None) -> Tensor:
    """Return what `values` [..., A] say, as [...], of the legal action that is best by `judge` [..., A].

    `mask` marks the legal actions (not 0); it has the shape of the values, or the same numbers in a row for each of the
    first axis. Where it allows none, as after the end of an episode, the value is 0: nothing can follow. With `judge`
    equal to `values` this is Q-learning, with the online network's it is `double_q_value`.
    """
    if mask is None:
        return double_q_value(judge, values)
    illegal = torch.as_tensor(mask, device=judge.device).reshape(judge.shape) == 0
    # A legal value of minus infinity still beats what is forbidden.
    allowed = judge.clamp_min(torch.finfo(judge.dtype).min).masked_fill(illegal, -torch.inf)
    return double_q_value(allowed, values).masked_fill(illegal.all(dim=-1), 0.0)


def q_td_error(
    q: Tensor,
    action: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    loss: LossType = "huber",
    delta: float = 1.0,
) -> TDError:
    """Return the loss between `q[B, A]` at `action[B]` (int64) and `target[B]`, which is taken as a constant.

    'huber': `e^2 / 2` up to `delta`, then `delta * (|e| - delta / 2)`; 'mse': `e^2`. `weight[B]` multiplies each row's
    loss (importance sampling). Raises SchemaError if shapes do not fit, ConfigError for another loss.
    Source: Mnih et al. 2015 (clipping the error is the Huber loss); Schaul et al. 2016 for the weights.
    """
    _check_rows(q, action=action, target=target, weight=weight)
    chosen = q.gather(1, action.unsqueeze(1)).squeeze(1)
    target = target.detach()
    reduction = "mean" if weight is None else "none"
    if loss == "huber":
        value = huber_loss(chosen, target, reduction=reduction, delta=delta)
    elif loss == "mse":
        value = mse_loss(chosen, target, reduction=reduction)
    else:
        raise ConfigError(f"the TD loss is {loss!r}; expected 'huber' or 'mse'")
    if weight is not None:
        value = (value * weight).mean()
    with torch.no_grad():
        abs_error = (chosen - target).abs()
    return TDError(loss=value, abs_error=abs_error)


def q_td_error_grad(
    q: Array, action: Array, target: Array, *, weight: Array | None = None, loss: LossType = "huber", delta: float = 1.0
) -> tuple[float, Array, Array]:
    """Return what `q_td_error` says of arrays, by hand: (loss, its gradient by `q` [B, A], absolute errors [B])."""
    rows = np.arange(len(q))
    error = q[rows, action] - target
    size = np.abs(error)
    if loss == "huber":
        # error^2 / 2 within delta, a straight line outside: the gradient is the clipped error.
        slope = np.clip(error, -delta, delta)
        value = slope * (error - 0.5 * slope)
    elif loss == "mse":
        slope, value = 2.0 * error, error * error
    else:
        raise ConfigError(f"the TD loss is {loss!r}; expected 'huber' or 'mse'")
    if weight is not None:
        slope, value = slope * weight, value * weight
    grad = np.zeros_like(q)
    grad[rows, action] = slope / len(q)
    return float(np.add.reduce(value)) / len(q), grad, size


def _check_rows(q: Tensor, **rows: Tensor | None) -> None:
    """Refuse [B, 1] beside [B], which would broadcast to [B, B] without a word."""
    for name, tensor in rows.items():
        if tensor is not None and tensor.shape != q.shape[:1]:
            expected = tuple(q.shape[:1])
            raise SchemaError(
                f"{name} has shape {tuple(tensor.shape)}, expected {expected} beside q of shape {tuple(q.shape)}; "
                "give one number per row"
            )
