"""Deep Q-learning (Mnih et al. 2015) with its usual additions.

They are double Q-learning (van Hasselt et al. 2016), dueling heads (Wang et al. 2016, in the model), n-step returns and
importance weights (Schaul et al. 2016). A row is (obs, action, R, discount, next_obs, terminated), R the discounted sum
of its rewards. The loss is

    y    = R + discount * Q_target(next_obs, argmax_a Q(next_obs, a))     second part only if not terminated
    loss = mean(weight * (Q(obs, action) - y)^2)                          or Huber's loss with learn.loss="huber"

The update around it is `policy/value_based.py`; C51 and QR-DQN have another `_family` in place of Q, and its model.

C51 (Bellemare et al. 2017) learns the distribution of returns instead of its mean. The return of an action has one of N
values z_i, evenly spaced from v_min to v_max, with probabilities p_i, the softmax of the network's outputs. Of the
action that is best by what it is expected to return,

    a*   = argmax_a sum_i z_i p_i(next_obs, a)
    m_i  = sum_j p_j(next_obs, a*) h_i(R + discount * z_j)      the projection, eq. 7: h_i is 1 at z_i and falls to 0 at
                                                                its neighbours; beyond v_min and v_max the end counts
    loss = -mean(weight * sum_i m_i log p_i(obs, action))       the cross entropy

where p(next_obs, a*) is the target network's, and after an end m is the projection of R (`rl_utils/value_family.py`).

QR-DQN (Dabney et al. 2018) learns quantiles of the return: for each action the network gives N numbers theta_i, the
quantiles of its return at tau_i = (i + 1/2) / N, i from 0. Of the action that is best by the mean of its quantiles,

    t_j  = R + discount * theta_j(next_obs, a*)                 second part only if not terminated
    loss = mean(weight * sum_i mean_j rho_i(t_j - theta_i(obs, action)))      algorithm 1

    rho_i(u) = |tau_i - 1[u < 0]| L(u)                          eq. 10, with Huber's loss (eq. 9)
    L(u)     = u^2 / 2 where |u| <= kappa, else kappa * (|u| - kappa / 2)

where theta_j(next_obs, a*) is the target network's (`rl_utils/value_family.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.value_based import ValueBasedPolicy, attributes_of
from ding_like.rl_utils.value_family import CategoricalValue, QuantileValue, ValueFamily
from ding_like.utils.bounds import ABOVE_0, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("dqn")
class DQNPolicy(ValueBasedPolicy):
    """Deep Q-learning: values of discrete actions, learned off-policy."""

    model_methods: tuple[ModelMethod, ...] = (ModelMethod("q"),)
    config: dict[str, Any] = dict(type="dqn")

    model_name = "dqn"

    # Any: tensors, in a dict or not; what the family predicts.
    def _next_value(self, next_obs: Any, mask: Any) -> Any:
        """Return the value [B, ...] of next observations: the best legal action's, by the target network."""
        values = self._target.tensor(next_obs, self._weight_noise())
        judge = self._online.tensor(next_obs, self._weight_noise()) if self._cfg.double else values
        return self._family.of_best(values, self._family.expected(judge), mask)


@POLICY_REGISTRY.register("c51")
class C51Policy(DQNPolicy):
    """Q-learning of distributions of returns over fixed values."""

    model_methods: tuple[ModelMethod, ...] = (
        ModelMethod("logits", gives=("B A N",)),
        *(ModelMethod(name, None) for name in ("v_min", "v_max", "n_atom")),
    )
    config: dict[str, Any] = dict(type="c51")
    config_unused: ClassVar[Mapping[str, str]] = {"learn.loss": "probabilities are compared by their cross entropy"}

    model_name = "c51dqn"

    # Any: whatever a family makes predictions of.
    @cached_property
    def _family(self) -> ValueFamily[Any]:
        return CategoricalValue(*attributes_of(self._model, "v_min", "v_max", "n_atom", policy=self._cfg.type))


class QuantilePolicy(DQNPolicy):
    """Q-learning of quantiles of returns, by their Huber loss."""

    config: dict[str, Any] = dict(
        learn=dict(
            # Difference at which the Huber loss turns from a square into a straight line.
            kappa=1.0,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"learn.kappa": ABOVE_0}
    config_unused: ClassVar[Mapping[str, str]] = {
        "learn.loss": "quantiles are compared by Huber's loss: see learn.kappa"
    }


@POLICY_REGISTRY.register("qrdqn")
class QRDQNPolicy(QuantilePolicy):
    """Q-learning of quantiles of returns at fixed fractions."""

    model_methods: tuple[ModelMethod, ...] = (
        ModelMethod("quantiles", gives=("B A N",)),
        ModelMethod("num_quantiles", None),
    )
    config: dict[str, Any] = dict(type="qrdqn")
    model_name = "qrdqn"

    # Any: whatever a family makes predictions of.
    @cached_property
    def _family(self) -> ValueFamily[Any]:
        [num_quantiles] = attributes_of(self._model, "num_quantiles", policy=self._cfg.type)
        return QuantileValue(num_quantiles, kappa=self._cfg.learn.kappa)
