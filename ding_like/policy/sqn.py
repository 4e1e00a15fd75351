"""Soft Q-network, SQN: discrete SAC whose policy is the softmax of its critics, without a network of an actor.

The policy is that of soft Q-learning (Haarnoja et al. 2017, theorem 1), of the smaller of two critics; temperature and
targets are those of discrete SAC (Christodoulou 2019; `policy/sac.py`). A row is (obs, action, R, discount, next_obs,
terminated), R the discounted sum of its rewards; Q_i(s) are the values of all actions, Q_i' those of the target
networks:

    pi(.|s)     = softmax(min_i Q_i(s) / alpha)
    V(s)        = sum_a pi(a|s) * (min_i Q_i'(s)[a] - alpha * log pi(a|s))
    y           = R + discount * V(next_obs)                      second part only if not terminated
    critic_loss = sum_i mean(weight * (Q_i(obs)[action] - y)^2 / 2)
    alpha_loss  = log alpha * mean(H(pi(.|obs)) - target_entropy)

where sums are over legal actions. Collectors draw from pi with the present alpha, evaluations take its best action.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, cast

from torch import Tensor, nn

from ding_like.data.batch import split_mask
from ding_like.model.layers import ObsTensor
from ding_like.policy.forward import Choose, EpsilonGreedy, ForwardActor, NetworkForward, OfFamily
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.offpolicy import Rows
from ding_like.policy.sac import DiscreteSACPolicy, Improved, target_entropy
from ding_like.rl_utils.distributions import Categorical
from ding_like.rl_utils.td import entropy_of, log_softmax
from ding_like.types import State
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("sqn")
class SQNPolicy(DiscreteSACPolicy):
    """Two critics of discrete actions, whose softmax is the policy, and a temperature, learned off-policy."""

    model_methods: tuple[ModelMethod, ...] = (ModelMethod("critic", gives=("N B A",)),)
    config: dict[str, Any] = dict(type="sqn")
    config_unused: ClassVar[Mapping[str, str]] = {"learn.learning_rate_policy": "there is no network of an actor"}
    has_actor: ClassVar[bool] = False

    model_name = "discrete_critics"

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        # Partial and not lambda: a deep copy must run the copied network.
        if explores:
            choose: Choose = OfFamily(Categorical(), is_greedy=False, with_log_prob=False)
            forward = NetworkForward(partial(_logits, self._model.critic, self._log_alpha), None, self._device)
        else:  # without alpha, which does not change what is best: agents are exported with the model alone
            choose, forward = EpsilonGreedy(), NetworkForward(partial(_values, self._model.critic), None, self._device)
        return ForwardActor(forward, choose)

    # Any: a tensor or a dict of them.
    def _log_pi(self, obs: Any, mask: Tensor | None) -> Tensor:
        return log_softmax(_logits(self._critic.network, self._log_alpha, obs), mask)

    def _improve(self, rows: Rows, values: Tensor | None, alpha: Tensor) -> Improved:
        assert values is not None, "they come from `_chosen`"
        mask = split_mask(rows.obs)[1]
        log_pi = log_softmax(values.detach().amin(dim=0) / alpha, mask)
        return Improved({}, entropy_of(log_pi), target_entropy(log_pi, mask))

    # Collectors act by the temperature too.

    def _state_dict_act(self) -> State:
        return {**super()._state_dict_act(), "log_alpha": self._log_alpha.state_dict()}

    def _load_state_dict_act(self, state: State) -> None:
        super()._load_state_dict_act(state)
        if "log_alpha" in state:  # not in weights alone
            self._log_alpha.load_state_dict(state["log_alpha"])

    monitored = ("total_loss", "critic_loss", "alpha_loss", "alpha", "entropy", "q_value", "target_q_value")


def _values(critic: nn.Module, obs: ObsTensor) -> Tensor:
    """Return the smaller values of the critics, [B, A]."""
    return cast(Tensor, critic(obs).amin(dim=0))


def _logits(critic: nn.Module, log_alpha: nn.ParameterDict, obs: ObsTensor) -> Tensor:
    """Return the smaller values of the critics in units of alpha, [B, A]."""
    return _values(critic, obs) / cast(Tensor, log_alpha["log_alpha"]).exp()
