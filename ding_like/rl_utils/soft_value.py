"""Compute soft values of discrete actions exactly, on torch tensors. B is the batch, A the number of actions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ding_like.rl_utils.distributions import allowed_logits


def log_softmax(logit: Tensor, mask: Tensor | None) -> Tensor:
    """Return log probabilities [B, A] of logits [B, A]; actions that `mask` (0) forbids have a probability of 0."""
    return F.log_softmax(allowed_logits(logit, mask), dim=1)


def soft_value(log_pi: Tensor, q: Tensor, *, alpha: Tensor | float) -> Tensor:
    """Return `sum_a pi(a) * (q(a) - alpha * log pi(a))` [B], of log probabilities and action values [B, A].

    With pi 0.5 0.5, values 1 3 and alpha 0.1: 2 + 0.1 * log 2. An action of probability 0 adds nothing, whatever its
    value. Source: Christodoulou 2019, eq. 10.
    """
    pi = log_pi.exp()
    # Not left to the product: 0 times a value that is not finite is NaN, and so is its gradient.
    return (pi * (q.masked_fill(pi == 0, 0.0) - alpha * log_pi)).sum(dim=1)


def entropy_of(log_pi: Tensor) -> Tensor:
    """Return the entropy [B] of log probabilities [B, A]."""
    return soft_value(log_pi, torch.zeros_like(log_pi), alpha=1.0)
