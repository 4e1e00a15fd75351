"""Deep Q-learning (Mnih et al. 2015) with its usual additions.

They are double Q-learning (van Hasselt et al. 2016), dueling heads (Wang et al. 2016, in the model), n-step returns and
importance weights (Schaul et al. 2016). A row is (obs, action, R, discount, next_obs, terminated), R the discounted sum
of its rewards. The loss is

    y    = R + discount * Q_target(next_obs, argmax_a Q(next_obs, a))     second part only if not terminated
    loss = mean(weight * (Q(obs, action) - y)^2)                          or Huber's loss with learn.loss="huber"

The update around it is `policy/value_based.py`; C51 or QR-DQN need another `_family` in place of Q, and its model.
"""

from __future__ import annotations

from typing import Any

from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.value_based import ValueBasedPolicy
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("dqn")
class DQNPolicy(ValueBasedPolicy):
    """Learn Q values of discrete actions off-policy."""

    model_methods = (ModelMethod("q"),)
    config: dict[str, Any] = dict(type="dqn")

    def default_model(self) -> tuple[str, list[str]]:
        return "dqn", []

    # Any: tensors, in a dict or not; what the family predicts.
    def _next_value(self, next_obs: Any, mask: Any) -> Any:
        """Return the value [B, ...] of next observations: the best legal action's, by the target network."""
        values = self._target.tensor(next_obs)
        judge = self._online.tensor(next_obs) if self._cfg.double else values
        return self._family.of_best(values, self._family.expected(judge), mask)
