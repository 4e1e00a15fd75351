"""Compute V-trace targets: returns of the policy that learns, from steps of one that is some updates older."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ding_like.errors import SchemaError


class VTrace(NamedTuple):
    """Hold what a critic and an actor learn from; both are [B, T] and mean nothing where steps are not valid."""

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
    _check_sequences(
        reward=reward,
        log_ratio=log_ratio,
        value=value,
        next_value=next_value,
        terminated=terminated,
        done=done,
        valid=reward if valid is None else valid,
    )
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


def _check_sequences(*, reward: Tensor, **tensors: Tensor) -> None:
    for name, tensor in tensors.items():
        if reward.dim() != 2 or tensor.shape != reward.shape:
            raise SchemaError(
                f"{name} has shape {tuple(tensor.shape)} beside a reward of {tuple(reward.shape)}; expected [B, T] for "
                "both: give one number for each step of each sequence"
            )
