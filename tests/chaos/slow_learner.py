"""What a slow learner is made of: an env of large observations, and a policy whose updates take their time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from gymnasium import spaces

from ding_like.data.batch import TransitionBatch
from ding_like.policy.dqn import DQNPolicy
from ding_like.utils.registries import POLICY_REGISTRY
from tests.chaos.counting_env import CountingEnv

WIDTH = 20_000  # numbers of an observation
UPDATE_S = 0.1


class WideEnv(CountingEnv):
    """Count as CountingEnv does, in observations of 80 kB."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.observation_space = spaces.Box(0.0, 1.0, (WIDTH,), np.float32)

    def _obs(self) -> Any:
        obs = np.zeros(WIDTH, np.float32)
        obs[:5] = super()._obs()
        return obs


@POLICY_REGISTRY.register("slow")
class SlowPolicy(DQNPolicy):
    """Learn as DQN does, with a gradient that takes UPDATE_S more."""

    config: dict[str, Any] = dict(type="slow")

    def grad(self, batch: TransitionBatch) -> Any:
        time.sleep(UPDATE_S)
        return super().grad(batch)
