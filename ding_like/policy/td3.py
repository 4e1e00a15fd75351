"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018).

DDPG with three cures for values that are too high: the smaller of two critics, a target that is smooth around the next
action, and an actor that waits for its critics. A row is (obs, action, R, discount, next_obs, terminated), R the
discounted sum of its rewards; primes mark the target networks. The losses are

    a'          = clip(mu'(next_obs) + clip(noise, -c, c), -1, 1),  noise ~ N(0, sigma)
    y           = R + discount * min_i Q_i'(next_obs, a')       second part only if not terminated
    critic_loss = sum_i mean(weight * (Q_i(obs, action) - y)^2)
    actor_loss  = -mean(Q_1(obs, mu(obs)))                      every `actor_update_freq` updates

and with each step of the actor the targets move a share theta towards the networks. All of it is DDPG's code,
with other defaults.
"""

from __future__ import annotations

from typing import Any

from ding_like.policy.ddpg import DDPGPolicy
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("td3")
class TD3Policy(DDPGPolicy):
    """Learn a deterministic actor and two critics off-policy; networks and acting are those of DDPG."""

    config: dict[str, Any] = dict(
        type="td3",
        model=dict(twin_critic=True),
        learn=dict(actor_update_freq=2, noise=True),
    )

    def _monitor_vars_learn(self) -> list[str]:
        return ["critic_loss", "actor_loss", "q_value", "target_q_value"]
