"""Compute gradients in several workers, and apply them in one: what a policy must offer, means, weaker ones."""

from __future__ import annotations

from collections.abc import Sequence

from ding_like.errors import ConfigError
from ding_like.policy import di_engine_view
from ding_like.policy.base import Policy
from ding_like.types import State


def check_sharing(policy: Policy) -> None:
    """Raise ConfigError, with the reason, for a policy whose gradients another process cannot apply."""
    name = f"policy '{policy.cfg.get('type') or type(policy).__name__}'"
    if di_engine_view.overrides(policy, "_forward_learn"):
        raise ConfigError(
            f"{name} learns in DI-engine's style (_forward_learn), which gives no gradients that another process could "
            "apply: give it grad() and apply(), or compute gradients centrally (one gradient worker)."
        )
    if not policy.grad_vectors():
        raise ConfigError(
            f"{name} does not say where its gradients are (grad_vectors): compute gradients centrally (one gradient "
            "worker)."
        )


def mean_gradient(gradients: Sequence[State], weights: Sequence[float]) -> State:
    """Return the mean of what several policies' `gradient` returned; weights of which some are missing count on."""
    total = sum(weights)
    vectors = {}
    for name, first in gradients[0]["vectors"].items():
        mean = first * (weights[0] / total)
        for gradient, weight in zip(gradients[1:], weights[1:], strict=True):
            mean.add_(gradient["vectors"][name], alpha=weight / total)
        vectors[name] = mean
    return {"vectors": vectors, "moves": gradients[0]["moves"]}


def weaken(policy: Policy, gradient: State, factor: float) -> State:
    """Return a gradient that counts only a share `factor`; what else it says of an update stays as it is."""
    num_gradients = len(list(policy._optimizers()))
    vectors = {
        name: vector * factor if int(name) < num_gradients else vector for name, vector in gradient["vectors"].items()
    }
    return {**gradient, "vectors": vectors}
