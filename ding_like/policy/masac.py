"""Soft actor-critics of a team: SAC of each agent, with central critics (the form of Iqbal & Sha 2019, section 3.2).

Each agent i has a stochastic actor pi_i, two critics Q_ik, which see what all agents do, and a temperature alpha_i,
which is learned as SAC's is (Haarnoja et al. 2018b). With the names of `policy/maddpg.py`, actions a_j' ~ pi_j(o_j')
and a_j ~ pi_j(o_j) of all agents are drawn afresh, and u_j are the row's:

    y_i         = r_i + gamma * (min_k Q_ik'(x', a_1' .. a_N') - alpha_i * log pi_i(a_i'|o_i'))      if not ended_i
    critic_loss = sum over i and k of mean(weight * (Q_ik(x, u_1 .. u_N) - y_i)^2 / 2)
    actor_loss  = sum over i of mean(alpha_i * log pi_i(a_i|o_i) - min_k Q_ik(x, a_1 .. a_N))
    alpha_loss  = -sum over i of log alpha_i * mean(log pi_i(a_i|o_i) + target_entropy_i)

The gradient of an agent's actor does not go through the others' actions. These are drawn from what the others do now,
where MADDPG takes the row's: an agent should not fit in with what they did long ago (there, section 3.2). That paper's
critics attend to the others and share parameters, which these do not (`model.sharing` lets agents share all of them).
Everything else is SAC's (`policy/sac.py`), actors, which are Gaussians squashed by tanh, among it.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ding_like.data.team import AGENTS
from ding_like.policy.central_critics import CentralCriticPolicy
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.offpolicy import Rows
from ding_like.policy.sac import Improved, SACPolicy, SoftActorCritic
from ding_like.rl_utils.distributions import squashed_gaussian
from ding_like.utils.registries import POLICY_REGISTRY


class SoftTeam(CentralCriticPolicy, SoftActorCritic):
    """Temperatures of a team's agents, one for each or one for all."""

    config: dict[str, Any] = dict(
        learn=dict(
            # A temperature for each agent; False: one for all.
            alpha_by_agent=True,
        ),
    )

    @cached_property
    def _log_alpha(self) -> nn.ParameterDict:
        """Logarithm of alpha, `log_alpha`, [N] or []."""
        size = (int(self._cfg.model.obs_shape[AGENTS][0]),) if self._cfg.learn.alpha_by_agent else ()
        log_alpha = nn.Parameter(torch.full(size, math.log(self._cfg.learn.alpha)))
        return nn.ParameterDict({"log_alpha": log_alpha}).to(self._device)

    def _alpha_loss(self, log_prob: Tensor, default_target: Tensor | float) -> Tensor:
        """Return the sum of the temperatures' losses of log probabilities [B, N]; the target is [B, N], [N] or one."""
        learn, log_alpha = self._cfg.learn, self._temperature.network.log_alpha
        target_entropy = default_target if learn.target_entropy is None else learn.target_entropy
        return -self._mean_sum((log_alpha if learn.log_space else log_alpha.exp()) * (log_prob + target_entropy))


@POLICY_REGISTRY.register("masac")
class MASACPolicy(SoftTeam, SACPolicy):
    """Stochastic actors of a team's continuous actions, each with two central critics and a temperature.

    The target of an agent's entropy is by default minus the number of its dimensions.
    """

    model_methods: tuple[ModelMethod, ...] = (
        ModelMethod("act", gives=("B P",)),
        ModelMethod("actor", gives=("B N Q",)),
        ModelMethod("critic", "obs, actions", ("C B N",)),
    )
    config: dict[str, Any] = dict(type="masac")
    has_log_prob: ClassVar[bool] = False

    def _model_sizes(self) -> dict[str, int]:
        return {}

    def _target(self, rows: Rows, alpha: Tensor) -> Tensor:
        action, log_prob = self._draw(rows.next_obs)
        next_values = self._critic.target(rows.next_obs, self._next_joint(action, rows))
        return self._backup(rows, next_values, alpha * log_prob)

    def _improve(self, rows: Rows, values: Tensor | None, alpha: Tensor) -> Improved:
        action, log_prob = self._draw(rows.obs)
        joint = self._joint(action, action.detach() * self._acts.unsqueeze(2))
        value, _ = self._value(self._critic.network(rows.obs, joint))
        loss = self._actor.backward(self._mean_sum(alpha * log_prob - value))
        own = self._own_dimensions
        target = -action.shape[2] if own is None else -own.sum(dim=1)
        return Improved({"actor_loss": loss}, -log_prob.detach(), target)

    @property
    def _own_dimensions(self) -> Tensor | None:
        """The dimensions of a continuous action that each agent has, ones and zeros [N, A]; None: all."""
        own: Tensor | None = getattr(self._critic.network, "own", None)
        return own

    def _draw(self, obs: Any) -> tuple[Tensor, Tensor]:
        """Return actions [B, N, A] that the actors draw, and their log densities [B, N]."""
        mean, log_sigma = self._actor.network(obs).chunk(2, dim=2)
        return squashed_gaussian(mean, log_sigma, self._normal_like(mean), self._own_dimensions)
