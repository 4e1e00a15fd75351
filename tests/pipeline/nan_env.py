"""CartPole whose rewards or observations turn into NaN at given steps."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv


class NanEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Spoil the `what` ("reward" or "observation") of step `step` of each of the given episodes; None: of all.

    The number of an episode counts what this instance has begun, so one that is made anew begins with 0 again.
    """

    def __init__(self, *, what: str, episodes: tuple[int, ...] | None = None, step: int = 3) -> None:
        super().__init__(gymnasium.wrappers.TimeLimit(CartPoleEnv(), 20))
        self._what = what
        self._episodes = episodes
        self._at = step
        self._episode = -1

    def reset(self, **kwargs: Any) -> Any:
        self._episode += 1
        self._t = 0
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        self._t += 1
        if self._t == self._at and (self._episodes is None or self._episode in self._episodes):
            obs, reward = (obs, np.nan) if self._what == "reward" else (obs * np.float32(np.nan), reward)
        return obs, reward, terminated, truncated, info


def make_nan_env(cfg: dict[str, Any]) -> NanEnv:
    """Make an env of its keyword arguments, at the top of a module, as a process of its own needs it."""
    return NanEnv(**cfg)
