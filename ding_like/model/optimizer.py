"""Optimizers of a flat vector of parameters; steps that are not finite are counted and never applied."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from easydict import EasyDict
from torch import Tensor

from ding_like.errors import CheckpointError, TrainingError
from ding_like.model.flat_params import FlatParams
from ding_like.types import Config

Moments: TypeAlias = tuple[Tensor, Tensor]


class UpdateRule(NamedTuple):
    """How a gradient becomes a step.

    `step(vector, grad, moments, num_steps, bad, learning_rate)` changes `vector` [P] and its `moments` by `grad` [P];
    if `bad` is 1.0, nothing. `num_steps`, a 0-dim tensor, counts this step already, unless it is bad.
    """

    kind: str  # whose moments they are: a checkpoint of another one is not read
    step: Callable[[Tensor, Tensor, Moments, Tensor, Tensor, float], None]


# Any: of each setting its own.
def _adam(
    vector: Tensor, grad: Tensor, moments: Moments, num_steps: Tensor, bad: Tensor, lr: float, **rule: Any
) -> None:
    """Step by first and second moments (Kingma & Ba 2015, algorithm 1).

    `weight_decay` is added to the gradient, or, `decoupled`, taken off the weights (AdamW, Loshchilov & Hutter 2019).
    """
    mean, square = moments
    # The kernel itself: an optimizer object, or torch's function around it, takes as long again for one vector.
    # `found_inf` = 1 makes it leave parameters and moments as they are; the step count is the caller's.
    kernel = torch._fused_adamw_ if rule.pop("decoupled") else torch._fused_adam_
    rule.update(lr=lr, amsgrad=False, maximize=False)
    kernel([vector], [grad], [mean], [square], [], [num_steps], found_inf=bad, **rule)


def _rmsprop(
    vector: Tensor, grad: Tensor, moments: Moments, num_steps: Tensor, bad: Tensor, lr: float, **rule: float
) -> None:
    """Step by the running mean square of the gradient, with `alpha` as its decay (Tieleman & Hinton 2012).

    `weight_decay` is added to the gradient; `momentum` sums steps up.
    """
    speed, square = moments
    if rule["weight_decay"]:
        grad = grad.add(vector, alpha=rule["weight_decay"])
    new_square = (square * rule["alpha"]).addcmul_(grad, grad, value=1.0 - rule["alpha"])
    new_speed = (speed * rule["momentum"]).addcdiv_(grad, new_square.sqrt().add_(rule["eps"]))
    is_bad = bad.bool()
    vector.sub_(torch.where(is_bad, 0.0, new_speed), alpha=lr)
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


def check_optimizer(section: Config) -> Iterator[tuple[str, str]]:
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


def build_rule(section: Config | None, *, adam_eps: float | None = None) -> UpdateRule:
    """Return the rule that `learn.optimizer` asks for; `adam_eps` is the policy's own default of `eps`.

    Without a section it is Adam.
    """
    cfg = {**OPTIMIZER_CONFIG, **(section or {})}
    kind, decay, eps = cfg["type"], cfg["weight_decay"], cfg["eps"]
    if eps is None:
        eps = 1e-8 if adam_eps is None or kind == "rmsprop" else adam_eps
    if decay is None:
        decay = 0.01 if kind == "adamw" else 0.0
    rule: dict[str, Any] = dict(eps=eps, weight_decay=decay)  # of each setting its own
    if kind == "rmsprop":
        return UpdateRule("rmsprop", partial(_rmsprop, alpha=cfg["alpha"], momentum=cfg["momentum"], **rule))
    beta1, beta2 = cfg["betas"]
    return UpdateRule("adam", partial(_adam, beta1=beta1, beta2=beta2, decoupled=kind == "adamw", **rule))


def _as_plain(value: Any) -> Any:
    return list(value) if isinstance(value, (list, tuple)) else value


class FlatOptimizer:
    """Steps of `FlatParams` by a rule, Adam by default, with a norm limit and a finite check that never waits.

    The check is a tensor handed to the rule, which then leaves weights and moments as they are; the counts are tensors
    too, and `check` reads them when the caller has time to. On the CPU a step that is finite is not counted.
    """

    def __init__(
        self,
        params: FlatParams,
        *,
        learning_rate: float,
        grad_clip_norm: float | None = None,
        max_nonfinite_steps: int = 5,
        rule: UpdateRule | None = None,
    ) -> None:
        """Step `params` by `rule`, or by Adam.

        `check` gives up after `max_nonfinite_steps` in a row that were not finite.
        """
        self.params = params  # what is optimized
        self._clip = grad_clip_norm
        self._rule = build_rule(None) if rule is None else rule
        self._max_nonfinite_steps = max_nonfinite_steps
        self.learning_rate = learning_rate
        vector = params.data_vector
        # The rule's moments and Adam's step count, which the fused kernel keeps as a tensor.
        self._moments = torch.zeros_like(vector), torch.zeros_like(vector)
        counts = (torch.zeros((), device=vector.device) for _ in range(4))
        self._num_steps, self._nonfinite, self._in_a_row, self._most_in_a_row = counts
        # To read a number waits for a GPU; on the CPU it costs less than counting with tensors.
        self._reads = vector.device.type == "cpu"
        self._is_good = torch.zeros(())  # what `bad` is of a step that is known to be finite
        self._is_row_open = True  # the last step may have been bad

    @classmethod
    def from_config(cls, params: FlatParams, learn: EasyDict, *, learning_rate: float | None = None) -> FlatOptimizer:
        """Return the optimizer that the `learn` section of a policy's config asks for.

        `learning_rate` replaces the section's, for policies with several optimizers. Read if there are: `optimizer`, as
        `OPTIMIZER_CONFIG` says, `adam_eps`, and `grad_clip_value` or `clip_value`, DI-engine's names for
        `grad_clip_norm`.
        """
        limits = (getattr(learn, name, None) for name in ("grad_clip_norm", "grad_clip_value", "clip_value"))
        clip = next((limit for limit in limits if limit is not None), None)
        return cls(
            params,
            learning_rate=learn.learning_rate if learning_rate is None else learning_rate,
            grad_clip_norm=clip,
            rule=build_rule(getattr(learn, "optimizer", None), adam_eps=getattr(learn, "adam_eps", None)),
            max_nonfinite_steps=1 if learn.nonfinite == "raise" else learn.max_nonfinite_steps,
        )

    def step(self, loss: Tensor | None = None) -> Tensor:
        """Apply the gradient in `params` and return its norm before clipping, a 0-dim tensor.

        Nothing is applied if the gradient or its loss is not finite. `loss` (0-dim) takes the place of `params.loss`,
        which travels with the gradient where another process, or several, computed it.
        """
        # Parameters that left their vector since the gradient was taken would stay as they are.
        self.params.follow()
        grad = self.params.grad_vector
        norm: Tensor = torch.linalg.vector_norm(grad)
        check = norm + (self.params.loss if loss is None else loss.detach())
        is_known_good = self._reads and math.isfinite(float(check))
        # 1.0 if not finite: infinity - infinity is NaN too, and NaN is not 0.
        bad = self._is_good if is_known_good else (check - check).ne_(0.0).float()
        if self._clip is not None:
            # 1e-6 keeps a gradient of zero from dividing; as in torch.nn.utils.clip_grad_norm_.
            grad.mul_((self._clip / (norm + 1e-6)).clamp_(max=1.0))
        self._num_steps += 1.0 if is_known_good else 1.0 - bad
        self._rule.step(self.params.data_vector, grad, self._moments, self._num_steps, bad, self.learning_rate)
        if not is_known_good or self._is_row_open:
            self._nonfinite += bad
            self._in_a_row.add_(1.0).mul_(bad)
            torch.maximum(self._most_in_a_row, self._in_a_row, out=self._most_in_a_row)
            self._is_row_open = not is_known_good
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
        return {
            "type": self._rule.kind,
            "moments": list(self._moments),
            "num_steps": self._num_steps,
            "counts": torch.stack([self._nonfinite, self._in_a_row]),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a copy of what `state_dict` returned; raises CheckpointError for that of another kind of rule."""
        kind = state.get("type", "adam")  # checkpoints from before there was a choice
        if kind != self._rule.kind:
            raise CheckpointError(
                f"the checkpoint holds the moments of '{kind}', but policy.learn.optimizer.type asks for "
                f"'{self._rule.kind}': set it to the one of the checkpoint, or load the weights alone"
            )
        for own, saved in zip(self._moments, state["moments"], strict=True):
            own.copy_(saved)
        self._num_steps.copy_(state["num_steps"])
        self._nonfinite.copy_(state["counts"][0])
        self._in_a_row.copy_(state["counts"][1])
        self._most_in_a_row.copy_(self._in_a_row)
        self._is_row_open = True
