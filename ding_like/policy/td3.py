"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018).

DDPG with three cures for values that are too high: the smaller of two critics, a target that is smooth around the next
action, and an actor that waits for its critics. A row is (obs, action, R, discount, next_obs, terminated), R the
discounted sum of its rewards; primes mark the target networks. The losses are

    a'          = clip(mu'(next_obs) + clip(noise, -c, c), -1, 1),  noise ~ N(0, sigma)
    y           = R + discount * min_i Q_i'(next_obs, a')       second part only if not terminated
    critic_loss = sum_i mean(weight * (Q_i(obs, action) - y)^2)
    actor_loss  = -mean(Q_1(obs, mu(obs)))                      every `actor_update_freq` updates

and with each step of the actor the targets move a share theta towards the networks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from ding_like.data.batch import TransitionBatch
from ding_like.policy.ddpg import DDPGPolicy
from ding_like.rl_utils.td import nstep_td_target
from ding_like.types import Array
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("td3")
class TD3Policy(DDPGPolicy):
    """Learn a deterministic actor and two critics off-policy; networks and acting are those of DDPG."""

    config: dict[str, Any] = dict(
        type="td3",
        model=dict(twin_critic=True),
        learn=dict(
            # Updates of the critics between two of the actor and the targets.
            actor_update_freq=2,
            # Smooth the target by noise on the next action; its unit is half of the action's range.
            noise=True,
            noise_sigma=0.2,
            noise_range=dict(min=-0.5, max=0.5),
        ),
    )

    @classmethod
    def check_config(cls, cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield (path, message) for every contradiction in the policy section."""
        yield from super().check_config(cfg)
        learn = cfg["learn"]
        if learn["actor_update_freq"] < 1:
            yield "learn.actor_update_freq", f"must be at least 1, got {learn['actor_update_freq']}"
        if not learn["noise"]:
            paths = ("learn.noise_sigma", "learn.noise_range.min", "learn.noise_range.max")
            yield from cls._no_effect(cfg, paths, "learn.noise is False")
        if learn["noise_range"]["min"] > learn["noise_range"]["max"]:
            yield "learn.noise_range", f"min must not be above max, got {dict(learn['noise_range'])}"

    def grad(self, batch: TransitionBatch) -> tuple[dict[str, Any], Array | None]:
        """Fill the gradients of the critics and, in its turn, of the actor; priorities are absolute TD errors [B]."""
        rows = self._rows(batch)
        with torch.no_grad():
            next_action = self._smoothed(self._actor.target(rows.next_obs))
            next_value = self._critic.target(rows.next_obs, next_action).amin(dim=0)
            target = nstep_td_target(rows.reward, next_value, discount=rows.discount, terminated=rows.terminated)
        q = self._critic.network(rows.obs, rows.action)
        error = q - target
        critic_loss = self._critic.backward((rows.weight * error.square()).mean(dim=1).sum())
        info = {"critic_loss": critic_loss, "q_value": q.detach(), "target_q_value": target}
        if self._is_actors_turn():
            value = self._critic.network(rows.obs, self._actor.network(rows.obs))[0]
            info["actor_loss"] = self._actor.backward(-value.mean())
        return info, self._priority(error)

    def _smoothed(self, action: Tensor) -> Tensor:
        """Return actions [B, A] with clipped noise, within [-1, 1]."""
        learn = self._cfg.learn
        if not learn.noise:
            return action
        noise = (learn.noise_sigma * self._normal_like(action)).clamp_(learn.noise_range.min, learn.noise_range.max)
        return (action + noise).clamp_(-1.0, 1.0)

    def _is_actors_turn(self) -> bool:
        """Tell whether the update under way is one of the actor's."""
        return (self._num_updates + 1) % self._cfg.learn.actor_update_freq == 0

    def apply(self) -> None:
        """Take one Adam step of the critics; in the actor's turn also of the actor, and move the targets."""
        is_actors_turn = self._is_actors_turn()
        self._end_update()
        self._critic.step()
        if is_actors_turn:
            self._actor.step()
            for network in (self._critic, self._actor):
                network.move_target(self._cfg.learn.target_theta)

    def _monitor_vars_learn(self) -> list[str]:
        return ["critic_loss", "actor_loss", "q_value", "target_q_value"]
