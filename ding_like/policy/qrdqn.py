"""QR-DQN (Dabney et al. 2018): Q-learning of quantiles of the return instead of its mean.

For each action the network gives N numbers theta_i, the quantiles of its return at tau_i = (i + 1/2) / N, i from 0. A
row is (obs, action, R, discount, next_obs, terminated), R the discounted sum of its rewards. Of the action that is best
by what it is expected to return,

    a*   = argmax_a mean_j theta_j(next_obs, a)
    t_j  = R + discount * theta_j(next_obs, a*)                 second part only if not terminated
    loss = mean(weight * sum_i mean_j rho_i(t_j - theta_i(obs, action)))      algorithm 1

    rho_i(u) = |tau_i - 1[u < 0]| L(u)                          eq. 10, with Huber's loss (eq. 9)
    L(u)     = u^2 / 2 where |u| <= kappa, else kappa * (|u| - kappa / 2)

where theta_j(next_obs, a*) is the target network's. The quantiles are `rl_utils/quantile.py`, the update around them
`policy/value_based.py`, and the rest is DQN's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, ClassVar

from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.value_based import attributes_of
from ding_like.rl_utils.quantile import QuantileValue
from ding_like.rl_utils.value_family import ValueFamily
from ding_like.utils.bounds import ABOVE_0, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("qrdqn")
class QRDQNPolicy(DQNPolicy):
    """Learn quantiles of returns, off-policy and for discrete actions."""

    model_methods: tuple[ModelMethod, ...] = (
        ModelMethod("quantiles", gives=("B A N",)),
        ModelMethod("num_quantiles", None),
    )
    config: dict[str, Any] = dict(
        type="qrdqn",
        learn=dict(
            # Difference at which the Huber loss turns from a square into a straight line.
            kappa=1.0,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "learn.kappa": ABOVE_0,
    }
    config_types = {**DQNPolicy.config_types, "learn.kappa": (int, float)}

    @classmethod
    def check_config(cls, cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        yield from super().check_config(cfg)
        yield from cls._no_effect(cfg, ("learn.loss",), "quantiles are compared by Huber's loss: see learn.kappa")

    def default_model(self) -> tuple[str, list[str]]:
        return "qrdqn", []

    # Any: whatever a family makes predictions of.
    @cached_property
    def _family(self) -> ValueFamily[Any]:
        [num_quantiles] = attributes_of(self._model, "num_quantiles", policy=self._cfg.type)
        return QuantileValue(num_quantiles, kappa=self._cfg.learn.kappa)
