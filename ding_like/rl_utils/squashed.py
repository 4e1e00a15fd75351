"""Squash a Gaussian into (-1, 1) by tanh: the policy of SAC."""

from __future__ import annotations

from math import log, pi
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

# What keeps exp(log sigma) in range; Haarnoja et al. 2018 use these numbers in their code.
MIN_LOG_SIGMA, MAX_LOG_SIGMA = -20.0, 2.0

_LOG_SQRT_2PI = 0.5 * log(2 * pi)


def squashed_gaussian(mean: Tensor, log_sigma: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return the action `tanh(u)` [B, A], `u = mean + exp(log_sigma) * noise`, and its log density [B].

    `noise` is standard normal; gradients flow through the rest. The density of tanh(u) is that of u over the slope of
    tanh, and `log(1 - tanh(u)^2) = 2 * (log 2 - u - softplus(-2 u))` holds where the left side has lost all digits.
    With mean 0, log_sigma 0 and noise 1: action 0.7616, log density -0.5 - 0.9189 + 0.8675 = -0.5514.

    Source: Haarnoja et al. 2018, eq. 21 of appendix C.
    """
    import torch  # actors have none
    import torch.nn.functional as F

    log_sigma = log_sigma.clamp(MIN_LOG_SIGMA, MAX_LOG_SIGMA)
    u = mean + log_sigma.exp() * noise
    log_density = -0.5 * noise * noise - log_sigma - _LOG_SQRT_2PI
    log_slope = 2.0 * (log(2.0) - u - F.softplus(-2.0 * u))
    return torch.tanh(u), (log_density - log_slope).sum(dim=1)
