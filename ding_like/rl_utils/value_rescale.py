"""Learn values on a scale on which large returns are close together (Pohlen et al. 2018, section 3.2).

The value of a state-action pair is h(Q), with

    h(x)    = sign(x) (sqrt(|x| + 1) - 1) + eps x
    h^-1(x) = sign(x) (((sqrt(1 + 4 eps (|x| + 1 + eps)) - 1) / (2 eps))^2 - 1)
"""

from __future__ import annotations

from torch import Tensor

from ding_like.rl_utils.value_family import ScalarValue

EPS = 1e-3  # Kapturowski et al. 2019, section 2.3


def value_rescale(x: Tensor, eps: float = EPS) -> Tensor:
    """Return h of values of any shape."""
    return x.sign() * ((x.abs() + 1.0).sqrt() - 1.0) + eps * x


def value_unscale(x: Tensor, eps: float = EPS) -> Tensor:
    """Return the values that `value_rescale` makes `x` of."""
    above = x.abs() + (1.0 + eps)
    # (sqrt(1 + 4 eps a) - 1) / (2 eps), written so that nothing close to 1 is taken off: in float32 that loses digits.
    root = 2.0 * above / ((1.0 + 4.0 * eps * above).sqrt() + 1.0)
    return x.sign() * (root.square() - 1.0)


class RescaledValue(ScalarValue):
    """Predict h of the expected return; targets are h(reward + discount * h^-1(next value))."""

    def backup(self, reward: Tensor, next_value: Tensor, *, discount: Tensor | float, terminated: Tensor) -> Tensor:
        return value_rescale(
            super().backup(reward, value_unscale(next_value), discount=discount, terminated=terminated)
        )
