"""DQN whose target weighs the next values by a softmax, in place of their maximum."""

import torch

from ding_like.policy.dqn import DQNPolicy
from ding_like.utils.registries import POLICY_REGISTRY


@POLICY_REGISTRY.register("soft_dqn")
class SoftDQN(DQNPolicy):
    config = dict(type="soft_dqn", temperature=0.1)

    def _next_value(self, next_obs, mask):
        values = self._target.tensor(next_obs)
        return (torch.softmax(values / self._cfg.temperature, dim=1) * values).sum(dim=1)
