"""C51 (Bellemare et al. 2017): Q-learning of the distribution of returns instead of its mean.

The return of an action has one of N values z_i, evenly spaced from v_min to v_max, with probabilities p_i, the softmax
of the network's outputs. A row is (obs, action, R, discount, next_obs, terminated), R the discounted sum of its
rewards. Of the action that is best by what it is expected to return,

    a*   = argmax_a sum_i z_i p_i(next_obs, a)
    m_i  = sum_j p_j(next_obs, a*) h_i(R + discount * z_j)      the projection, eq. 7: h_i is 1 at z_i and falls to 0 at
                                                                its neighbours; beyond v_min and v_max the end counts
    loss = -mean(weight * sum_i m_i log p_i(obs, action))       the cross entropy

where p(next_obs, a*) is the target network's, and after an end m is the projection of R. The distribution is
`rl_utils/categorical.py`, the update around it `policy/value_based.py`, and the rest is DQN's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.value_based import attributes_of
from ding_like.rl_utils.categorical import CategoricalValue
from ding_like.rl_utils.value_family import ValueFamily
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("c51")
class C51Policy(DQNPolicy):
    """Learn distributions of returns over fixed values, off-policy and for discrete actions."""

    model_methods = (
        ModelMethod("logits", gives=("B A N",)),
        *(ModelMethod(name, None) for name in ("v_min", "v_max", "n_atom")),
    )
    config: dict[str, Any] = dict(type="c51")

    @classmethod
    def check_config(cls, cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        yield from super().check_config(cfg)
        yield from cls._no_effect(cfg, ("learn.loss",), "probabilities are compared by their cross entropy")

    def default_model(self) -> tuple[str, list[str]]:
        return "c51dqn", []

    # Any: whatever a family makes predictions of.
    @cached_property
    def _family(self) -> ValueFamily[Any]:
        return CategoricalValue(*attributes_of(self._model, "v_min", "v_max", "n_atom", policy=self._cfg.type))
