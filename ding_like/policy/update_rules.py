"""Say how one flat vector of parameters is stepped along its gradient: Adam, AdamW, RMSprop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor


class UpdateRule(Protocol):
    """Step a vector in place; a step that is not finite must leave it and both moments as they are."""

    @property
    def kind(self) -> str:
        """Return whose moments these are: a checkpoint of another kind is not read."""

    def step(
        self,
        vector: Tensor,
        grad: Tensor,
        moments: tuple[Tensor, Tensor],
        *,
        num_steps: Tensor,
        bad: Tensor,
        learning_rate: float,
    ) -> None:
        """Change `vector` [P] and its `moments` by `grad` [P]; `bad` is 1.0 if the step must not be applied.

        `num_steps`, a 0-dim tensor, counts this step already, unless it is bad.
        """


@dataclass(frozen=True)
class Adam:
    """Step by first and second moments (Kingma & Ba 2015, algorithm 1).

    `weight_decay` is added to the gradient, or, `decoupled`, taken off the weights (AdamW, Loshchilov & Hutter 2019).
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False
    kind: str = "adam"

    def step(
        self,
        vector: Tensor,
        grad: Tensor,
        moments: tuple[Tensor, Tensor],
        *,
        num_steps: Tensor,
        bad: Tensor,
        learning_rate: float,
    ) -> None:
        mean, square = moments
        # The kernel itself: an optimizer object, or torch's function around it, takes as long again for one vector.
        # `found_inf` = 1 makes it leave parameters and moments as they are; the step count is the caller's.
        kernel = torch._fused_adamw_ if self.decoupled else torch._fused_adam_
        kernel(
            [vector],
            [grad],
            [mean],
            [square],
            [],
            [num_steps],
            found_inf=bad,
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=learning_rate,
            weight_decay=self.weight_decay,
            eps=self.eps,
            maximize=False,
        )


@dataclass(frozen=True)
class RMSprop:
    """Step by the running mean square of the gradient, with `alpha` as its decay (Tieleman & Hinton 2012).

    `weight_decay` is added to the gradient; `momentum` sums steps up.
    """

    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    kind: str = "rmsprop"

    def step(
        self,
        vector: Tensor,
        grad: Tensor,
        moments: tuple[Tensor, Tensor],
        *,
        num_steps: Tensor,
        bad: Tensor,
        learning_rate: float,
    ) -> None:
        speed, square = moments
        if self.weight_decay:
            grad = grad.add(vector, alpha=self.weight_decay)
        new_square = (square * self.alpha).addcmul_(grad, grad, value=1.0 - self.alpha)
        new_speed = (speed * self.momentum).addcdiv_(grad, new_square.sqrt().add_(self.eps))
        is_bad = bad.bool()
        vector.sub_(torch.where(is_bad, 0.0, new_speed), alpha=learning_rate)
        torch.where(is_bad, square, new_square, out=square)
        torch.where(is_bad, speed, new_speed, out=speed)


# Defaults of `learn.optimizer`, and which type reads which key beside `eps` and `weight_decay`.
OPTIMIZER_CONFIG: dict[str, Any] = dict(
    # Optimizer: "adam", "adamw" or "rmsprop".
    type="adam",
    # Decay of the first and second moment; of adam and adamw.
    betas=[0.9, 0.999],
    # What keeps a step from dividing by 0; None: learn.adam_eps where there is one, else 1e-8.
    eps=None,
    # Weight decay; adam and rmsprop add it to the gradient, adamw takes it off the weights; None: adamw 0.01, else 0.
    weight_decay=None,
    # Decay of the mean square; of rmsprop.
    alpha=0.99,
    # Decay of the sum of steps; of rmsprop.
    momentum=0.0,
)
_READS = {"adam": ("betas",), "adamw": ("betas",), "rmsprop": ("alpha", "momentum")}


def check_optimizer(section: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (key, message) for every contradiction in `learn.optimizer`."""
    kind = section["type"]
    if kind not in _READS:
        yield "type", f"must be 'adam', 'adamw' or 'rmsprop', got {kind!r}"
        return
    for name in ("betas", "alpha", "momentum"):
        if name not in _READS[kind] and _as_plain(section[name]) != OPTIMIZER_CONFIG[name]:
            yield name, f"has no use with type {kind!r}, which reads {', '.join(_READS[kind])}, eps and weight_decay"
    betas = _as_plain(section["betas"])
    if len(betas) != 2 or not all(isinstance(beta, (int, float)) and 0 <= beta < 1 for beta in betas):
        yield "betas", f"must be two numbers in [0, 1), got {betas}"
    for name in ("alpha", "momentum"):
        if not 0 <= section[name] < 1:
            yield name, f"must lie in [0, 1), got {section[name]}"
    for name in ("eps", "weight_decay"):
        if section[name] is not None and section[name] < 0:
            yield name, f"must not be below 0, got {section[name]}"


def build_rule(section: Mapping[str, Any] | None, *, adam_eps: float | None = None) -> UpdateRule:
    """Return the rule that `learn.optimizer` asks for; `adam_eps` is the policy's own default of `eps`.

    Without a section it is Adam.
    """
    cfg = {**OPTIMIZER_CONFIG, **(section or {})}
    kind, decay, eps = cfg["type"], cfg["weight_decay"], cfg["eps"]
    if kind == "rmsprop":
        return RMSprop(
            cfg["alpha"], 1e-8 if eps is None else eps, 0.0 if decay is None else decay, momentum=cfg["momentum"]
        )
    decoupled = kind == "adamw"
    if eps is None:
        eps = 1e-8 if adam_eps is None else adam_eps
    if decay is None:
        decay = 0.01 if decoupled else 0.0
    return Adam((cfg["betas"][0], cfg["betas"][1]), eps, decay, decoupled=decoupled)


def _as_plain(value: Any) -> Any:
    return list(value) if isinstance(value, (list, tuple)) else value
