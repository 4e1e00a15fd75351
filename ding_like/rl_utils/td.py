"""Temporal-difference targets and soft values on torch tensors. B is the batch, A the number of actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ding_like.errors import SchemaError
from ding_like.rl_utils.distributions import allowed_logits
from ding_like.types import Array


def nstep_td_target(reward: Tensor, next_value: Tensor, *, discount: Tensor | float, terminated: Tensor) -> Tensor:
    """Return `reward + discount * next_value`, without the second part where `terminated` (bool).

    All are [B]; `reward` is the n-step return and `discount` gamma to the number of its steps. A truncated row is not
    terminated and bootstraps. Source: Watkins 1989; Sutton & Barto 2018, eq. 7.1.
    """
    # masked_fill and not a product: the value of a state after the end is never learned, and may be anything.
    return reward + discount * next_value.masked_fill(terminated, 0.0)


def least_value(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the least [B] of the values [N, B] that critics give, and its slope by each of them [N, B]."""
    value, least = values.min(dim=0)
    return value, torch.zeros_like(values).scatter_(0, least[None], 1.0)


def legal_value(judge: Tensor, values: Tensor, mask: Tensor | Array | None) -> Tensor:
    """Return what `values` [..., A] say, as [...], of the legal action that is best by `judge` [..., A].

    `mask` marks the legal actions (not 0); it has the shape of the values, or the same numbers in a row for each of the
    first axis. Where it allows none, as after the end of an episode, the value is 0: nothing can follow. With `judge`
    equal to `values` this is Q-learning, with the online network's it is double Q-learning (van Hasselt et al. 2016,
    eq. 4).
    """
    if mask is None and judge is values:
        return values.amax(dim=-1)  # the same number by one operation
    action, nothing_legal = best_action(judge, mask)
    chosen = values.gather(-1, action.unsqueeze(-1)).squeeze(-1)
    return chosen if nothing_legal is None else chosen.masked_fill(nothing_legal, 0.0)


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


def large_margin(values: Tensor, action: Tensor, *, margin: float, mask: Tensor | None = None) -> Tensor:
    """Return by how much `action` [...] fails to be better than each other legal action by a margin, [...].

    `values` are [..., A], and `mask` marks the legal actions (not 0). Source: Hester et al. 2018, eq. 4.
    """
    index = action.long().unsqueeze(-1)
    wanted = values + torch.full_like(values, margin).scatter(-1, index, 0.0)
    return allowed_logits(wanted, mask).amax(dim=-1) - values.gather(-1, index).squeeze(-1)


class q_nstep_td_data(NamedTuple):  # noqa: N801  # DI-engine's name
    """Arguments of `q_nstep_td_error`. B is the batch, A the number of actions, T the number of steps."""

    q: Tensor  # [B, A]
    next_n_q: Tensor  # [B, A], of the observation after T steps
    action: Tensor  # [B]
    next_n_action: Tensor  # [B]
    reward: Tensor  # [T, B], or [B] if it is summed already
    done: Tensor  # [B]
    weight: Tensor | None = None  # [B]


def q_nstep_td_error(
    data: q_nstep_td_data,
    gamma: float | Tensor,
    nstep: int = 1,
    cum_reward: bool = False,
    value_gamma: Tensor | None = None,
    criterion: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return (weighted mean of the errors, errors [B]) of `q` at `action` from the n-step target.

    `gamma` is a number or [B]. With `cum_reward` the reward [B] is the discounted sum. `value_gamma` [B] multiplies the
    next value, by default `gamma ** nstep`. `criterion` returns one error a row, by default the squared difference.
    Raises SchemaError if shapes differ. Source: Sutton & Barto 2018, eq. 7.1.
    """
    shape = tuple(data.done.shape) if cum_reward else (nstep, *data.done.shape)
    if tuple(data.reward.shape) != shape or data.q.dim() != 2:
        raise SchemaError(
            f"the reward has shape {tuple(data.reward.shape)} and q {tuple(data.q.shape)}; expected {shape} and [B, A]"
        )
    chosen = data.q.gather(-1, data.action.unsqueeze(-1)).squeeze(-1)
    next_value = data.next_n_q.gather(-1, data.next_n_action.unsqueeze(-1)).squeeze(-1)
    return_ = data.reward if cum_reward else torch.zeros_like(data.reward[0])
    for step in () if cum_reward else reversed(data.reward):
        return_ = step + gamma * return_
    discount = gamma**nstep if value_gamma is None else value_gamma
    target = nstep_td_target(return_, next_value, discount=discount, terminated=data.done.bool()).detach()
    error = F.mse_loss(chosen, target, reduction="none") if criterion is None else criterion(chosen, target)
    return (error if data.weight is None else error * data.weight).mean(), error


def log_softmax(logit: Tensor, mask: Tensor | None) -> Tensor:
    """Return log probabilities [..., A] of logits [..., A]; actions that `mask` (0) forbids have a probability of 0."""
    return F.log_softmax(allowed_logits(logit, mask), dim=-1)


def soft_value(log_pi: Tensor, q: Tensor, *, alpha: Tensor | float) -> Tensor:
    """Return `sum_a pi(a) * (q(a) - alpha * log pi(a))` [...], of log probabilities and action values [..., A].

    With pi 0.5 0.5, values 1 3 and alpha 0.1: 2 + 0.1 * log 2. An action of probability 0 adds nothing, whatever its
    value. Source: Christodoulou 2019, eq. 10.
    """
    pi = log_pi.exp()
    # Not left to the product: 0 times a value that is not finite is NaN, and so is its gradient.
    return (pi * (q.masked_fill(pi == 0, 0.0) - alpha * log_pi)).sum(dim=-1)


def where_some_legal(value: Tensor, mask: Tensor | None) -> Tensor:
    """Return values [B] or [B, N] of observations; 0 where `mask` allows no action: nothing can follow."""
    return value if mask is None else value.masked_fill((mask == 0).reshape(*value.shape, -1).all(dim=-1), 0.0)


def entropy_of(log_pi: Tensor) -> Tensor:
    """Return the entropy [...] of log probabilities [..., A]."""
    return soft_value(log_pi, torch.zeros_like(log_pi), alpha=1.0)
