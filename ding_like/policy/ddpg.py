"""Deep deterministic policy gradient (Lillicrap et al. 2016).

An actor mu learns to do what a critic Q values most. A row is (obs, action, R, discount, next_obs, terminated), R the
discounted sum of its rewards; primes mark the target networks. The losses are

    y           = R + discount * Q'(next_obs, mu'(next_obs))     second part only if not terminated
    critic_loss = mean(weight * (Q(obs, action) - y)^2)
    actor_loss  = -mean(Q(obs, mu(obs)))

and after each step of both the targets move a share theta towards the networks.
"""

from __future__ import annotations

from typing import Any

import torch

from ding_like.data.batch import TransitionBatch
from ding_like.policy.choose import GaussianNoise
from ding_like.policy.offpolicy import OffPolicyActorCritic, TrainedNetwork
from ding_like.rl_utils.td import nstep_td_target
from ding_like.types import Array
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("ddpg")
class DDPGPolicy(OffPolicyActorCritic):
    """Learn a deterministic actor and one critic off-policy."""

    config: dict[str, Any] = dict(
        type="ddpg",
        model=dict(action_space="regression", twin_critic=False),
        learn=dict(learning_rate_actor=1e-3, learning_rate_critic=1e-3),
        # Standard deviation of the exploration noise; its unit is half of the action's range.
        collect=dict(noise_sigma=0.1),
    )

    def _init_learn(self) -> None:
        super()._init_learn()
        self._actor = self._trained(self._model.actor, "learning_rate_actor")
        self._critic = self._trained(self._model.critic, "learning_rate_critic")

    def _init_collect(self) -> None:
        self._collect_actor = self._actor_that(GaussianNoise(self._action_range(), self._cfg.collect.noise_sigma))

    def _init_eval(self) -> None:
        self._eval_actor = self._actor_that(GaussianNoise(self._action_range()))

    def grad(self, batch: TransitionBatch) -> tuple[dict[str, Any], Array | None]:
        """Fill the gradients of critic and actor; priorities are absolute TD errors [B]."""
        rows = self._rows(batch)
        with torch.no_grad():
            next_action = self._actor.target(rows.next_obs)
            next_value = self._critic.target(rows.next_obs, next_action).amin(dim=0)
            target = nstep_td_target(rows.reward, next_value, discount=rows.discount, terminated=rows.terminated)
        q = self._critic.network(rows.obs, rows.action)
        error = q - target
        critic_loss = self._critic.backward((rows.weight * error.square()).mean(dim=1).sum())

        actor_loss = self._actor.backward(-self._critic.network(rows.obs, self._actor.network(rows.obs))[0].mean())
        info = {
            "total_loss": critic_loss + actor_loss,
            "critic_loss": critic_loss,
            "actor_loss": actor_loss,
            "q_value": q.detach(),
            "target_q_value": target,
        }
        return info, self._priority(error)

    def apply(self) -> None:
        """Take one Adam step of critic and actor, and move both targets."""
        self._end_update()
        for network in (self._critic, self._actor):
            network.step()
            network.move_target(self._cfg.learn.target_theta)

    def _networks(self) -> dict[str, TrainedNetwork]:
        return {"actor": self._actor, "critic": self._critic}

    def _monitor_vars_learn(self) -> list[str]:
        return ["total_loss", "critic_loss", "actor_loss", "q_value", "target_q_value"]
