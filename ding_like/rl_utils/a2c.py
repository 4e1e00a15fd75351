"""Compute the losses of advantage actor-critic on torch tensors. B is the batch."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ding_like.errors import SchemaError


class A2CLoss(NamedTuple):
    """Hold the two losses to differentiate; both are 0-dim."""

    policy: Tensor
    value: Tensor


def a2c_loss(log_prob: Tensor, value: Tensor, *, advantage: Tensor, return_: Tensor) -> A2CLoss:
    """Return `-mean(log_prob * advantage)` and `mean((value - return_)^2)`.

    All tensors are [B]; `advantage` and `return_` are constants. Raises SchemaError if shapes differ.
    Source: Mnih et al. 2016, section 4.2 and algorithm S3.
    """
    for name, tensor in (("value", value), ("advantage", advantage), ("return_", return_)):
        if log_prob.dim() != 1 or tensor.shape != log_prob.shape:
            raise SchemaError(
                f"{name} has shape {tuple(tensor.shape)} beside log_prob {tuple(log_prob.shape)}; expected [B] for "
                "both: give one number per row"
            )
    return A2CLoss(policy=-(log_prob * advantage).mean(), value=(value - return_).square().mean())
