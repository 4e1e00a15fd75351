"""Soft Q-learning of discrete actions (Haarnoja et al. 2017): the policy is pi = softmax(Q / alpha), and so are values.

A row is (obs, action, R, discount, next_obs, terminated), R the discounted sum of its rewards, Q' the target network:

    y    = R + discount * alpha * log sum_a exp(Q'(next_obs, a) / alpha)     second part only if not terminated
    loss = mean(weight * (Q(obs, action) - y)^2)

where the sum is over legal actions: theorem 2 of the paper. Collectors draw from pi, evaluations take its best action.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.forward import Choose, EpsilonGreedy, SoftmaxOfValues
from ding_like.rl_utils.distributions import allowed_logits
from ding_like.rl_utils.td import where_some_legal
from ding_like.utils.bounds import ABOVE_0, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("sql")
class SQLPolicy(DQNPolicy):
    """Deep Q-learning of a policy that is paid for its entropy, the softmax of its values."""

    config: dict[str, Any] = dict(
        type="sql",
        learn=dict(
            # Temperature: what the entropy of the policy is worth.
            alpha=0.1,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"learn.alpha": ABOVE_0}
    config_unused: ClassVar[Mapping[str, str]] = {"double": "next values are soft maxima, and not of a best action"}

    def _choice(self, *, explores: bool) -> Choose:
        return SoftmaxOfValues(self._cfg.learn.alpha) if explores else EpsilonGreedy()

    # Any: tensors, in a dict or not.
    def _next_value(self, next_obs: Any, mask: Any) -> Tensor:
        """Return the soft values [B] of next observations; 0 where a mask allows nothing, as nothing can follow."""
        alpha = self._cfg.learn.alpha
        scaled = self._target.tensor(next_obs, self._weight_noise()) / alpha
        soft: Tensor = alpha * allowed_logits(scaled, mask).logsumexp(dim=1)
        return where_some_legal(soft, mask)
