"""Flip one bit at a time until all are as the goal has them; env type 'bitflip'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.envs.gymnasium_env import DiEngineGymEnv
from ding_like.errors import ConfigError
from ding_like.types import Array
from ding_like.utils.registries import ENV_REGISTRY

_PIXELS = 16  # of a bit's square


class BitFlip(gymnasium.Env[Any, Any]):
    """Flip bits to turn a random state into a random goal that differs from it.

    Action i flips bit i. An episode is terminated at the goal and truncated after `n_bits` steps. The observation is
    float32 [2 * n_bits], state and goal, with a reward of 1 at the goal and 0 elsewhere, so that the mean return is
    the share of goals reached. With `goal_env` it is a dict of `observation`, `achieved_goal` and `desired_goal`,
    [n_bits] each, with a reward of 0 at the goal and -1 elsewhere. `info["is_success"]` is 1.0 at the goal, else 0.0.
    Source: Andrychowicz et al. 2017, section 3.1.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}

    def __init__(self, n_bits: int = 20, *, goal_env: bool = False, render_mode: str | None = None) -> None:
        if n_bits < 1:
            raise ConfigError(f"env.n_bits is {n_bits}, expected 1 or more.")
        self.goal_size = n_bits  # achieved and desired goal are that many numbers of a flat observation
        self.render_mode = render_mode
        self._is_goal_env = goal_env
        bits = spaces.Box(0.0, 1.0, (n_bits,), np.float32)
        self.observation_space = (
            spaces.Dict({"observation": bits, "achieved_goal": bits, "desired_goal": bits})
            if goal_env
            else spaces.Box(0.0, 1.0, (2 * n_bits,), np.float32)
        )
        self.action_space = spaces.Discrete(n_bits)
        self._state = np.zeros(n_bits, np.float32)
        self._goal = np.ones(n_bits, np.float32)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Draw a state, and a goal among all others."""
        super().reset(seed=seed)
        self._steps = 0
        self._state = self._random_bits()
        self._goal = self._random_bits()
        while np.array_equal(self._state, self._goal):
            self._goal = self._random_bits()
        return self._obs(), {"is_success": 0.0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Flip bit `action`."""
        self._state[action] = 1.0 - self._state[action]
        self._steps += 1
        terminated = bool(self.compute_terminated(self._state, self._goal, {}))
        reward = float(self.compute_reward(self._state, self._goal, {}))
        truncated = not terminated and self._steps >= self.goal_size
        return self._obs(), reward, terminated, truncated, {"is_success": float(terminated)}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Array:
        """Return the reward of goals [..., n_bits] as float32 [...]; `info` is not looked at."""
        reached = self.compute_terminated(achieved_goal, desired_goal, info)
        return np.asarray(reached, np.float32) - np.float32(self._is_goal_env)

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Array:
        """Tell which of the goals [..., n_bits] are reached, bool [...]."""
        return np.asarray(np.equal(achieved_goal, desired_goal).all(axis=-1))

    def render(self) -> Any:
        """Return a picture of the state, above that of the goal, uint8 [H, W, 3]."""
        bits = np.stack([self._state, self._goal])[..., np.newaxis]
        colours = np.where(bits > 0, np.array([240, 190, 40]), np.array([40, 60, 90])).astype(np.uint8)
        return colours.repeat(_PIXELS, axis=0).repeat(_PIXELS, axis=1)

    def _random_bits(self) -> Array:
        return self.np_random.integers(2, size=self.goal_size).astype(np.float32)

    def _obs(self) -> Any:
        if not self._is_goal_env:
            return np.concatenate([self._state, self._goal])
        return {
            "observation": self._state.copy(),
            "achieved_goal": self._state.copy(),
            "desired_goal": self._goal.copy(),
        }


gymnasium.register("dizoo/BitFlip-v0", entry_point=f"{__name__}:BitFlip")


@ENV_REGISTRY.register("bitflip")
class BitFlipEnv(DiEngineGymEnv):
    """Env of `BitFlip` with `n_bits` bits; `goal_env=True`: observations in three parts, as goal envs have them."""

    config = {**DiEngineGymEnv.config, "env_id": "dizoo/BitFlip-v0", "n_bits": 20, "goal_env": False}

    @classmethod
    def own_kwargs(cls, cfg: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the env's constructor."""
        return {"n_bits": cfg["n_bits"], "goal_env": cfg["goal_env"], **super().own_kwargs(cfg)}
