"""Step a flat vector of parameters; steps that are not finite are counted and never applied."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from ding_like.errors import TrainingError
from ding_like.model.flat_params import FlatParams


class FlatOptimizer:
    """Adam (Kingma & Ba 2015) over `FlatParams`, with a norm limit and a finite check that never stalls the step.

    The check is a tensor handed to the fused kernel as `found_inf`, which then leaves weights and moments as they are;
    the counts are tensors too, and `check` reads them when the caller has time to.
    """

    def __init__(
        self,
        params: FlatParams,
        *,
        learning_rate: float,
        grad_clip_norm: float | None = None,
        max_nonfinite_steps: int = 5,
    ) -> None:
        """Step `params`; `check` gives up after `max_nonfinite_steps` in a row that were not finite."""
        self._params = params
        self._clip = grad_clip_norm
        self._max_nonfinite_steps = max_nonfinite_steps
        self._adam = torch.optim.Adam([params.as_parameter()], lr=learning_rate, fused=True)
        device = params.grad_vector.device
        self._nonfinite = torch.zeros((), device=device)
        self._in_a_row = torch.zeros((), device=device)
        self._most_in_a_row = torch.zeros((), device=device)

    @classmethod
    def from_config(cls, params: FlatParams, learn: Any) -> FlatOptimizer:
        """Return the optimizer that the `learn` section of a policy's config asks for."""
        return cls(
            params,
            learning_rate=learn.learning_rate,
            grad_clip_norm=learn.grad_clip_norm,
            max_nonfinite_steps=1 if learn.nonfinite == "raise" else learn.max_nonfinite_steps,
        )

    @property
    def learning_rate(self) -> float:
        """Return the current learning rate."""
        return float(self._adam.param_groups[0]["lr"])

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._adam.param_groups[0]["lr"] = value

    def step(self, loss: Tensor) -> Tensor:
        """Apply the gradient in `params` and return its norm before clipping, a 0-dim tensor.

        Nothing is applied if `loss` (0-dim) or the gradient is not finite.
        """
        grad = self._params.grad_vector
        norm = torch.linalg.vector_norm(grad)
        bad = torch.isfinite(norm + loss.detach()).logical_not_().float()
        if self._clip is not None:
            # 1e-6 keeps a gradient of zero from dividing; as in torch.nn.utils.clip_grad_norm_.
            grad.mul_((self._clip / (norm + 1e-6)).clamp_(max=1.0))
        # Read by the fused kernel: 1.0 leaves parameters, moments and step count untouched.
        self._adam.found_inf = bad  # type: ignore[attr-defined]
        self._adam.step()
        self._nonfinite += bad
        self._in_a_row.add_(1.0).mul_(bad)
        torch.maximum(self._most_in_a_row, self._in_a_row, out=self._most_in_a_row)
        return norm

    def check(self) -> int:
        """Return how many steps were not finite so far.

        Raises TrainingError once `max_nonfinite_steps` of them came in a row. Reads tensors: call it once per log
        interval, not per step.
        """
        worst = int(self._most_in_a_row)
        if worst >= self._max_nonfinite_steps:
            raise TrainingError(
                f"{worst} update{'s in a row' if worst > 1 else ''} had a loss or gradient that is not finite "
                f"({int(self._nonfinite)} in all); none was applied. Look at the "
                "rewards and observations, lower policy.learn.learning_rate, or set policy.learn.grad_clip_norm."
            )
        return int(self._nonfinite)

    def state_dict(self) -> dict[str, Any]:
        """Return moments, step count and counters."""
        return {"adam": self._adam.state_dict(), "counts": torch.stack([self._nonfinite, self._in_a_row])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        # torch keeps the tensors that it is given, and they may be another optimizer's.
        self._adam.load_state_dict(copy.deepcopy(state["adam"]))
        self._nonfinite, self._in_a_row = (count.clone() for count in state["counts"].to(self._nonfinite.device))
        self._most_in_a_row = self._in_a_row.clone()
