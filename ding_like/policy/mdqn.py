"""Munchausen DQN (Vieillard et al. 2020): DQN that adds to each reward the scaled log probability of the action.

The policy is pi = softmax(Q' / tau), of the target network Q'. A row is (obs, action, R, discount, next_obs,
terminated), R the discounted sum of its rewards. The target of its value is

    y = R + m_alpha * max(tau * log pi(action|obs), l_0)
          + discount * sum_a pi(a|next_obs) * (Q'(next_obs, a) - tau * log pi(a|next_obs))

the last part only if not terminated: equation 2, clipped as in section 4. Of n-step rows the first action alone is
rewarded. The loss and the update are DQN's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from ding_like.data.batch import TransitionBatch, split_mask
from ding_like.policy.dqn import DQNPolicy
from ding_like.rl_utils.td import log_softmax, soft_value, where_some_legal
from ding_like.utils.bounds import ABOVE_0, SHARE, Bounds
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("mdqn")
class MDQNPolicy(DQNPolicy):
    """Deep Q-learning with rewards for the log probability of its actions, and soft next values."""

    config: dict[str, Any] = dict(
        type="mdqn",
        # Temperature of the softmax policy, and weight of its entropy: tau of the paper.
        entropy_tau=0.03,
        # Share of the log probability of an action that is added to its reward: alpha of the paper.
        m_alpha=0.9,
        # Smallest log probability, times entropy_tau, that counts: l_0 of the paper.
        m_clip=-1.0,
    )
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "entropy_tau": ABOVE_0,
        "m_alpha": SHARE,
        "m_clip": Bounds(high=0.0),
    }
    config_unused: ClassVar[Mapping[str, str]] = {
        "double": "next values are means over the policy, not of a best action"
    }

    def _td_target(self, rows: TransitionBatch) -> Tensor:
        """Return the targets [B]."""
        cfg = self._cfg
        obs, mask = split_mask(self._obs(rows))
        log_pi = self._log_pi(self._target.tensor(obs, self._weight_noise()), mask)
        bonus = (cfg.entropy_tau * self._family.of_action(log_pi, rows["action"])).clamp(cfg.m_clip, 0.0)
        target: Tensor = super()._td_target(rows) + cfg.m_alpha * bonus
        return target

    # Any: tensors, in a dict or not.
    def _next_value(self, next_obs: Any, mask: Any) -> Tensor:
        """Return the soft values [B] of next observations; 0 where a mask allows nothing, as nothing can follow."""
        values = self._target.tensor(next_obs, self._weight_noise())
        soft = soft_value(self._log_pi(values, mask), values, alpha=self._cfg.entropy_tau)
        return where_some_legal(soft, mask)

    def _log_pi(self, values: Tensor, mask: Any) -> Tensor:
        return log_softmax(values / self._cfg.entropy_tau, mask)
