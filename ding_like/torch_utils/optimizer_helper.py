"""Adam under DI-engine's name, for policies that step an optimizer of their own."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch.optim.optimizer import ParamsT

from ding_like.errors import ConfigError

_CLIPPING = (None, "clip_norm", "clip_value")


class Adam(torch.optim.Adam):
    """Adam of torch that clips gradients before a step, as DI-engine's does.

    'clip_norm' scales the gradient of all parameters to a norm (of `clip_norm_type`) of at most `clip_value`,
    'clip_value' limits each number to it. Raises ConfigError for other types of clipping and of optimizer.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        optim_type: Literal["adam"] = "adam",
        grad_clip_type: Literal["clip_norm", "clip_value"] | None = None,
        clip_value: float | None = None,
        *,
        clip_norm_type: float = 2.0,
    ) -> None:
        if optim_type != "adam":
            raise ConfigError(f"optim_type is {optim_type!r}, expected 'adam'; for 'adamw' use torch.optim.AdamW.")
        if grad_clip_type not in _CLIPPING:
            raise ConfigError(f"grad_clip_type is {grad_clip_type!r}, expected None, 'clip_norm' or 'clip_value'.")
        if grad_clip_type is not None and not (clip_value and clip_value > 0):
            raise ConfigError(f"clip_value is {clip_value}, expected a number above 0 with grad_clip_type.")
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad)
        self._clipping, self._clip_value, self._clip_norm_type = grad_clip_type, clip_value, clip_norm_type

    def __getstate__(self) -> dict[str, Any]:
        """Return what copies need; torch's own knows nothing of the clipping."""
        own = {name: vars(self)[name] for name in ("_clipping", "_clip_value", "_clip_norm_type")}
        return {**super().__getstate__(), **own}

    def step(self, closure: Any = None) -> Any:
        """Clip the gradients and apply them; `closure`, which computes them, runs before and its loss is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._clip_value is not None:
            params = [param for group in self.param_groups for param in group["params"]]
            if self._clipping == "clip_norm":
                torch.nn.utils.clip_grad_norm_(params, self._clip_value, self._clip_norm_type)
            elif self._clipping == "clip_value":
                torch.nn.utils.clip_grad_value_(params, self._clip_value)
        super().step()
        return loss
