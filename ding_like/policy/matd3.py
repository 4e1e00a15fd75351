"""Multi-agent TD3 (Ackermann et al. 2019): MADDPG with TD3's cures for values that are too high.

Each agent has two central critics, the smaller of which makes its target; the next actions of all are smoothed, and
actors and targets wait for their critics. With the names of `policy/maddpg.py`:

    a_j'        = clip(mu_j'(o_j') + clip(noise, -c, c), -1, 1),  noise ~ N(0, sigma)
    y_i         = r_i + gamma * min_k Q_ik'(x', a_1' .. a_N')                     second part only if not ended_i
    critic_loss = sum over i and k of mean(weight * (Q_ik(x, a_1 .. a_N) - y_i)^2)
    actor_loss  = -sum over i of mean(Q_i1(x, a_1 .. mu_i(o_i) .. a_N))           every `actor_update_freq` updates

It is MADDPG's code with other defaults, as TD3 is DDPG's, for continuous actions.
"""

from __future__ import annotations

from typing import Any

from ding_like.policy.maddpg import MADDPGPolicy
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("matd3")
class MATD3Policy(MADDPGPolicy):
    """Deterministic actors of a team, each with two central critics; networks and acting are those of MADDPG."""

    config: dict[str, Any] = dict(
        type="matd3",
        model=dict(twin_critic=True),
        learn=dict(actor_update_freq=2, noise=True),
    )
    action_spaces = ("Box",)
    monitored: tuple[str, ...] = ("critic_loss", "actor_loss", "q_value", "target_q_value")
