"""Multi-agent deep deterministic policy gradient (Lowe et al. 2017): DDPG of each agent, with a central critic.

While agents learn, the critic of each sees what all of them do, so that to it the others are no part of an env that
changes; to act, an agent needs what it sees itself alone. mu_i is the actor of agent i, o_i what it sees, x what
critics see; primes mark target networks, and r_i and ended_i are those of `policy/central_critics.py`. Means are over
rows, in which an agent that does not act adds 0:

    y_i         = r_i + gamma * Q_i'(x', mu_1'(o_1') .. mu_N'(o_N'))              second part only if not ended_i
    critic_loss = sum over i of mean(weight * (Q_i(x, a_1 .. a_N) - y_i)^2)
    actor_loss  = -sum over i of mean(Q_i(x, a_1 .. mu_i(o_i) .. a_N))            the others' actions are the row's

(equations 6 and 5). All of it but who sees what is DDPG's (`policy/ddpg.py`), and so are continuous actions: mu_i is
the tanh of what the network gives, and noise is drawn for each env and agent.

Discrete actions are drawn from a softmax over logits l_i, and enter critics one-hot. In place of mu_i(o_i) stands a
draw from it with the gradient of a softmax, by the straight-through Gumbel estimator (Jang et al. 2017):

    s = softmax((l_i + g) / tau), g = -log(-log u), u uniform        mu_i(o_i) = onehot(argmax s) + s - stop(s)

What a mask forbids has no chance. To `actor_loss` comes `actor_reg` times the mean square of the actor's outputs before
tanh or softmax, which keeps them from where there is no gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor

from ding_like.data.batch import split_mask
from ding_like.errors import ConfigError
from ding_like.policy.central_critics import CentralCriticPolicy
from ding_like.policy.ddpg import DDPGPolicy
from ding_like.policy.forward import ForwardActor, GaussianNoise, OfFamily
from ding_like.policy.model_methods import ModelMethod
from ding_like.policy.offpolicy import Rows
from ding_like.rl_utils.distributions import MultiCategorical, allowed_logits
from ding_like.utils.bounds import ABOVE_0, FROM_0, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("maddpg")
class MADDPGPolicy(CentralCriticPolicy, DDPGPolicy):
    """Deterministic actors of a team, or softmax ones of discrete actions, each with a central critic."""

    model_methods: tuple[ModelMethod, ...] = (
        ModelMethod("act", gives=("B P",)),
        ModelMethod("actor", gives=("B N A",)),
        ModelMethod("critic", "obs, actions", ("C B N",)),
    )
    config: dict[str, Any] = dict(
        type="maddpg",
        discount_factor=0.95,
        learn=dict(
            # Share of the mean square of the actors' outputs, before tanh or softmax, that is added to their loss.
            actor_reg=1e-3,
            # Temperature of the softmax that a draw of discrete actions takes its gradient from.
            gumbel_tau=1.0,
        ),
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"learn.actor_reg": FROM_0, "learn.gumbel_tau": ABOVE_0}
    action_spaces: tuple[str, ...] = ("Box", "MultiDiscrete")

    def _init_learn(self) -> None:
        of_box = ("learn.noise", "collect.noise_sigma", "action_low", "action_high")
        idle = of_box if self._is_discrete else ("learn.gumbel_tau",)
        why = f"the agents' actions are {'discrete' if self._is_discrete else 'continuous'}"
        for path, message in self._no_effect(self._cfg, idle, why):
            raise ConfigError(f"policy.{path} {message}.")
        super()._init_learn()

    def _model_sizes(self) -> dict[str, int]:
        return {}

    def _make_actor(self, *, explores: bool) -> ForwardActor:
        if self._is_discrete:
            family = MultiCategorical(self._cfg.model.action_shape)
            return self._actor_that(OfFamily(family, is_greedy=not explores, with_log_prob=False))
        return self._actor_that(GaussianNoise(self._action_range(), self._cfg.collect.noise_sigma if explores else 0.0))

    def _next_action(self, rows: Rows) -> Tensor:
        """Return what the critics of each agent are given of all next actions, [B, N, N, A]."""
        output = self._actor.target(rows.next_obs)
        action = self._drawn(output, rows.next_obs) if self._is_discrete else self._smoothed(output.tanh())
        return self._next_joint(action, rows)

    def _drawn(self, logit: Tensor, obs: Any) -> Tensor:
        """Return discrete actions drawn by logits [B, N, A], one-hot, with the gradient of a softmax."""
        noisy = allowed_logits(logit, split_mask(obs)[1]) + self._gumbel_like(logit)
        soft = (noisy / self._cfg.learn.gumbel_tau).softmax(dim=-1)
        hard = F.one_hot(soft.argmax(dim=-1), soft.shape[-1]).to(soft.dtype)
        drawn: Tensor = hard + soft - soft.detach()
        return drawn

    def _improve(self, rows: Rows) -> Tensor:
        """Fill the actors' gradients; return the sum of their losses."""
        output = self._actor.network(rows.obs)
        own = self._drawn(output, rows.obs) if self._is_discrete else output.tanh()
        value = self._first_critic(rows.obs, self._joint(own, rows.action))[0]
        size = output.square().mean(dim=-1)
        return self._actor.backward(self._mean_sum(self._cfg.learn.actor_reg * size - value))
