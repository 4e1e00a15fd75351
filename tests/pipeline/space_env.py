"""An env of any spaces that remembers each of its transitions, to compare with what was trained on."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

MASK = "action_mask"


class Happened(NamedTuple):
    """Transition as the env saw it."""

    obs: Any
    action: Any
    next_obs: Any
    terminated: bool


class SpaceEnv(gymnasium.Env[Any, Any]):
    """Observe random elements of a space; the reward is the transition's number, by which `happened` knows it.

    Episodes of `length` steps end by turns in both ways. An observation's entry `action_mask`, if there is one, allows
    at least one choice of each action. `faults` lists the actions that were outside of the space or not allowed.
    """

    happened: list[Happened] = []
    faults: list[str] = []

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], length: int) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self._length = length
        self._episode = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        self._episode += 1
        self._step = 0
        self._obs = self._observe()
        return self._obs, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._judge(action)
        self._step += 1
        is_over = self._step == self._length
        terminated, truncated = is_over and self._episode % 2 == 0, is_over and self._episode % 2 == 1
        before, self._obs = self._obs, self._observe()
        SpaceEnv.happened.append(Happened(before, action, self._obs, terminated))
        return self._obs, float(len(SpaceEnv.happened) - 1), terminated, truncated, {}

    def _observe(self) -> Any:
        obs = self.observation_space.sample()
        if isinstance(obs, dict) and MASK in obs:
            mask = np.zeros_like(obs[MASK])
            for first, size in zip(np.cumsum([0, *self._sizes]).tolist(), self._sizes, strict=False):
                mask[first + int(self.np_random.integers(size))] = 1
            obs[MASK] = mask
        return obs

    @property
    def _sizes(self) -> list[int]:
        space = self.action_space
        if isinstance(space, spaces.Discrete):
            return [int(space.n)]
        assert isinstance(space, spaces.MultiDiscrete)
        return [int(n) for n in space.nvec]

    def _judge(self, action: Any) -> None:
        if not self.action_space.contains(action):
            self.faults.append(f"{action!r} is not in {self.action_space}")
        if isinstance(self._obs, dict) and MASK in self._obs:
            firsts = np.cumsum([0, *self._sizes])[:-1]
            if not self._obs[MASK][firsts + (action - self.action_space.start)].all():
                self.faults.append(f"{action!r} is not allowed by {self._obs[MASK]}")


def make_space_env(
    observation_space: spaces.Space[Any], action_space: spaces.Space[Any], cfg: dict[str, Any]
) -> SpaceEnv:
    """Make an env; `cfg` holds its length, for a config makes other things of spaces."""
    return SpaceEnv(observation_space, action_space, cfg["length"])
