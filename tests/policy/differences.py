"""Gradients beside finite differences in float64: what several policies' tests share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.config import to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.policy import create_policy
from tests.policy.on_policy import moved


def in_float64(batch: TransitionBatch) -> TransitionBatch:
    return TransitionBatch(
        {
            name: value.astype(np.float64) if value.dtype == np.float32 else value
            for name, value in batch.columns.items()
        }
    )


def moved_in_float64(source: Any) -> Any:
    """Return a policy of the same config whose network is in float64, away from the one that acted."""
    network = source._build_model()
    network.load_state_dict(moved(source).get_attribute("model").state_dict())
    return create_policy(to_plain(source.cfg), model=network.double())


def assert_finite_differences(
    params: Any, loss: Callable[[], float], *, first: int = 0, num: int = 10, rel: float = 1e-5
) -> None:
    """Compare the gradient that `params` hold with the loss's slopes along directions, from entry `first` on."""
    gradient, start = params.grad_vector.clone(), params.data_vector.clone()
    assert gradient[first:].abs().max() > 1e-3
    directions = torch.randn(num, len(start), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    directions[:, :first] = 0.0
    for direction in directions:
        sides = []
        for step in (1e-6, -1e-6):
            params.data_vector.copy_(start + step * direction)
            sides.append(loss())
        assert float(gradient @ direction) == pytest.approx((sides[0] - sides[1]) / 2e-6, rel=rel, abs=1e-7)
    params.data_vector.copy_(start)
