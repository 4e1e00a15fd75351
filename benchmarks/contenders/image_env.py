"""An env of an Atari game's size that costs next to nothing: `benchmarks.contenders.image_env:CheapImage-v0`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

SHAPE = (4, 84, 84)
NUM_ACTIONS = 6
EPISODE_STEPS = 500
_NUM_FRAMES = 32  # drawn once: an env that draws 28 KB a step would be slower than many a game


class CheapImage(gymnasium.Env[Any, Any]):
    """Show frames of noise drawn beforehand, in an order of the seed's, and reward every step with 1."""

    observation_space = gymnasium.spaces.Box(0, 255, SHAPE, np.uint8)
    action_space = gymnasium.spaces.Discrete(NUM_ACTIONS)
    _frames = np.random.default_rng(0).integers(0, 256, (_NUM_FRAMES, *SHAPE), dtype=np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin an episode."""
        super().reset(seed=seed)
        self._time = 0
        return self._next(), {}

    def step(self, action: Any) -> Any:
        """Take a step, whatever the action."""
        self._time += 1
        return self._next(), 1.0, False, self._time == EPISODE_STEPS, {}

    def _next(self) -> Any:
        # A copy: who keeps an observation need not fear the next step.
        return self._frames[self.np_random.integers(_NUM_FRAMES)].copy()


gymnasium.register("CheapImage-v0", CheapImage)
