"""The scale on which R2D2 learns values."""

from __future__ import annotations

import math

import pytest
import torch

from ding_like.rl_utils.value_family import RescaledValue, value_rescale, value_unscale


def test_rescaled_values_are_those_of_the_paper() -> None:
    x = torch.tensor([-8.0, -0.5, 0.0, 3.0, 100.0], dtype=torch.float64)

    expected = [math.copysign(math.sqrt(abs(v) + 1) - 1, v) + 1e-2 * v for v in x.tolist()]

    torch.testing.assert_close(value_rescale(x, 1e-2), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("eps", [1e-3, 1e-2])
def test_unscaling_is_the_inverse_over_many_orders_of_magnitude(eps: float) -> None:
    size = torch.logspace(-6, 6, 200, dtype=torch.float64)
    x = torch.cat([-size, torch.zeros(1, dtype=torch.float64), size])

    torch.testing.assert_close(value_unscale(value_rescale(x, eps), eps), x, rtol=1e-9, atol=1e-12)


def test_unscaling_keeps_its_digits_in_float32() -> None:
    x = torch.linspace(-3, 3, 301)

    torch.testing.assert_close(value_unscale(value_rescale(x)), x, rtol=1e-6, atol=1e-6)


def test_a_target_is_backed_up_on_the_scale_of_returns() -> None:
    reward, next_value = torch.tensor([1.0, 1.0]), value_rescale(torch.tensor([10.0, 10.0]))

    target = RescaledValue().backup(reward, next_value, discount=0.5, terminated=torch.tensor([False, True]))

    torch.testing.assert_close(target, value_rescale(torch.tensor([6.0, 1.0])))
