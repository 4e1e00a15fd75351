"""An env of CartPole's size whose episodes are all equally long: `benchmarks.contenders.fixed_env:FixedLength-v0`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from benchmarks.contenders.updates_work import EPISODE_STEPS, NUM_ACTIONS, OBS_SIZE, draw_obs


class FixedLength(gymnasium.Env[Any, Any]):
    """Show random numbers, and reward every step with 1."""

    observation_space = gymnasium.spaces.Box(-1, 1, (OBS_SIZE,), np.float32)
    action_space = gymnasium.spaces.Discrete(NUM_ACTIONS)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin an episode."""
        super().reset(seed=seed)
        self._time = 0
        return draw_obs(self.np_random), {}

    def step(self, action: Any) -> Any:
        """Take a step, whatever the action."""
        self._time += 1
        return draw_obs(self.np_random), 1.0, self._time == EPISODE_STEPS, False, {}


gymnasium.register("FixedLength-v0", FixedLength)
