"""Soft actor-critics of a team's discrete actions (Iqbal & Sha 2019, section 3.2, without its attention).

MASAC (`policy/masac.py`) whose actors pi_i are softmaxes over A actions. A critic of agent i is given what the others
do and gives the values of all actions of agent i, so that what is estimated from one draw there is a sum over these
here (Christodoulou 2019); the others' actions are drawn afresh, a_j' ~ pi_j(o_j') and a_j ~ pi_j(o_j), and u_j are the
row's:

    V_i(o, x, a; Q) = sum_b pi_i(b|o_i) * (min_k Q_ik(x, a_-i)[b] - alpha_i * log pi_i(b|o_i))
    y_i             = r_i + gamma * V_i(o', x', a'; Q')                         second part only if not ended_i
    critic_loss     = sum over i and k of mean(weight * (Q_ik(x, u_-i)[u_i] - y_i)^2 / 2)
    actor_loss      = -sum over i of mean(V_i(o, x, a; Q))
    alpha_loss      = sum over i of log alpha_i * mean(H(pi_i(.|o_i)) - target_entropy_i)

a_-i are the actions of the others, one-hot. That the critic gives all actions of its agent is the paper's way to
compare an action with what else the agent could have done (its equation 8, as COMA's): in the sum over all of them that
baseline is exact and needs no term. Actions that a mask forbids have probability 0 and are in no sum; by default
target_entropy_i is 0.98 * log of the number of those it allows.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from ding_like.data.batch import split_mask
from ding_like.policy.forward import ForwardActor, OfFamily
from ding_like.policy.masac import SoftTeam
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.offpolicy import Rows
from ding_like.policy.sac import Improved, target_entropy
from ding_like.rl_utils.distributions import MultiCategorical
from ding_like.rl_utils.td import entropy_of, log_softmax, nstep_td_target, soft_value, where_some_legal
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("masac_discrete")
class MASACDiscretePolicy(SoftTeam):
    """Softmax actors of a team's discrete actions, each with two central critics and a temperature."""

    model_methods: tuple[ModelMethod, ...] = (
        ModelMethod("act", gives=("B P",)),
        ModelMethod("actor", gives=("B N A",)),
        ModelMethod("critic", "obs, actions", ("C B N A",)),
    )
    config: dict[str, Any] = dict(type="masac_discrete")
    action_spaces = ("MultiDiscrete",)
    model_name = "team_discrete_qac"

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        family = MultiCategorical(self._cfg.model.action_shape)
        return self._actor_that(OfFamily(family, is_greedy=not explores, with_log_prob=False))

    def _chosen(self, rows: Rows) -> tuple[Tensor, None]:
        action = rows.action
        values = self._critic.network(rows.obs, self._joint(action.new_zeros(()).expand_as(action), action))
        # Of an agent that does not act no action is one-hot, and no value counts.
        return (values * action).sum(dim=3), None

    def _value_of(self, critic: Any, log_pi: Tensor, obs: Any, others: Tensor, alpha: Tensor) -> Tensor:
        """Return V_i [B, N] by a network of critics, where the others do `others` [B, N, A]."""
        values = critic(obs, self._joint(others.new_zeros(()).expand_as(others), others)).amin(dim=0)
        return soft_value(log_pi, values, alpha=alpha.unsqueeze(-1))

    def _draw(self, log_pi: Tensor) -> Tensor:
        """Return actions drawn by log probabilities [B, N, A], one-hot: by Gumbel's trick."""
        drawn = (log_pi.detach() + self._gumbel_like(log_pi)).argmax(dim=2)
        return F.one_hot(drawn, log_pi.shape[2]).to(log_pi.dtype)

    def _target(self, rows: Rows, alpha: Tensor) -> Tensor:
        obs, mask = split_mask(rows.next_obs)
        log_pi = log_softmax(self._actor.network(obs), mask)
        others = self._next_others(self._draw(log_pi), rows)
        value = self._value_of(self._critic.target, log_pi, obs, others, alpha)
        return nstep_td_target(
            rows.reward, where_some_legal(value, mask), discount=rows.discount, terminated=rows.terminated
        )

    def _improve(self, rows: Rows, values: Tensor | None, alpha: Tensor) -> Improved:
        obs, mask = split_mask(rows.obs)
        log_pi = log_softmax(self._actor.network(obs), mask)
        others = self._draw(log_pi) * self._acts.unsqueeze(2)
        value = self._value_of(self._critic.network, log_pi, obs, others, alpha)
        loss = self._actor.backward(-self._mean_sum(value))
        return Improved({"actor_loss": loss}, entropy_of(log_pi.detach()), target_entropy(log_pi, mask))
