"""The envs and actions that all contenders of the `envs_*` benchmarks share; imports no package of ours."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

NUM_LANES = 8
WARM_CALLS = 125
# 0.2 to 0.5 ms a step on today's machines.
_BUSY_TURNS = 6000
_BUSY_EPISODE = 200


class BusyEnv(gymnasium.Env[Any, Any]):
    """Work for a while in plain Python at every step, as simulators written in Python do."""

    observation_space = spaces.Box(-1.0, 1.0, (8,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._obs = self.np_random.uniform(-1.0, 1.0, 8).astype(np.float32)
        return self._obs, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        x = float(self._obs[0])
        for _ in range(_BUSY_TURNS):
            x = 0.5 * x + 0.25
        self._obs = np.roll(self._obs, 1 + int(action))
        return self._obs, x, False, False, {}


def make_busy() -> gymnasium.Env[Any, Any]:
    """Make a busy env with episodes of 200 steps."""
    return gymnasium.wrappers.TimeLimit(BusyEnv(), _BUSY_EPISODE)


def make_cartpole() -> gymnasium.Env[Any, Any]:
    """Make CartPole-v1 without the checker, which warns of faults at each call."""
    return gymnasium.make("CartPole-v1", disable_env_checker=True)


MAKERS = {"busy": make_busy, "cartpole": make_cartpole}


def random_actions(num_actions: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return int64[512, 8], equal in all contenders; they take the rows in turn, over and over."""
    return np.random.default_rng(0).integers(num_actions, size=(512, NUM_LANES))
