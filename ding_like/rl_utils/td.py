"""Compute temporal-difference targets on torch tensors. B is the batch, A the number of actions."""

from __future__ import annotations

import torch
from torch import Tensor

from ding_like.types import Array


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
    action, nothing_legal = best_action(judge, mask)
    assert nothing_legal is not None, "there is a mask"
    return values.gather(-1, action.unsqueeze(-1)).squeeze(-1).masked_fill(nothing_legal, 0.0)


def best_action(judge: Tensor, mask: Tensor | Array | None) -> tuple[Tensor, Tensor | None]:
    """Return (the legal action [...] that is best by `judge` [..., A], where `mask` allows none [...] or None).

    `mask` is that of `legal_value`; without one every action is legal.
    """
    if mask is None:
        return judge.argmax(dim=-1), None
    illegal = torch.as_tensor(mask, device=judge.device).reshape(judge.shape) == 0
    # A legal value of minus infinity still beats what is forbidden.
    allowed = judge.clamp_min(torch.finfo(judge.dtype).min).masked_fill(illegal, -torch.inf)
    return allowed.argmax(dim=-1), illegal.all(dim=-1)
