"""Envs of every kind of observation and action that a server is asked about; episodes are short and mean nothing."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from tests.contracts.policy_cases import ACTIONS, AGENTS, OBS

_F = np.float32
OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "vector": spaces.Box(-10, 10, (OBS,), _F),
    "wide": spaces.Box(-1e3, 1e3, (OBS,), np.float64),
    "image": spaces.Box(0, 255, (1, 36, 36), np.uint8),
    "number": spaces.Discrete(OBS, start=5),
    "numbers": spaces.MultiDiscrete([3, 4], start=[1, 0]),
    "bits": spaces.MultiBinary(OBS),
    "team": spaces.Dict(
        {
            "agents": spaces.Box(-10, 10, (AGENTS, OBS), _F),
            "state": spaces.Box(-10, 10, (5,), _F),
            "alive": spaces.MultiBinary(AGENTS),
            "ended": spaces.MultiBinary(AGENTS),
            "rewards": spaces.Box(-10, 10, (AGENTS,), _F),
        }
    ),
    "nested": spaces.Dict(
        {"arm": spaces.Dict({"angle": spaces.Box(-9, 9, (2,), np.float64)}), "room": spaces.Discrete(3)}
    ),
}
ACTIONS_OF: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(ACTIONS),
    "from 3": spaces.Discrete(ACTIONS, start=3),
    "several": spaces.MultiDiscrete([3, 2]),
    "bits": spaces.MultiBinary(3),
    "box": spaces.Box(_F([-2.0, 0.0]), _F([2.0, 1.0])),
    "team": spaces.MultiDiscrete([ACTIONS] * AGENTS),
    "team box": spaces.Box(_F([-2.0, 0.0] * AGENTS), _F([2.0, 1.0] * AGENTS)),
    "hybrid": spaces.Tuple([spaces.Discrete(3), spaces.Box(-2.0, 2.0, (1,)), spaces.Box(0.0, 1.0, (1,))]),
}


class ToyEnv(gymnasium.Env[Any, Any]):
    """Env that observes random numbers; an episode has 5 steps. Observations and actions are kept in `played`."""

    played: ClassVar[list[tuple[Any, Any]]] = []  # (observation, action) of all envs of this process

    def __init__(self, obs: str = "vector", action: str = "discrete", mask: int = 0) -> None:
        self.observation_space = OBSERVATIONS[obs]
        if mask:
            inner = self.observation_space
            parts = dict(inner.spaces) if isinstance(inner, spaces.Dict) else {"board": inner}
            self.observation_space = spaces.Dict({**parts, "action_mask": spaces.MultiBinary(mask)})
        self.action_space = ACTIONS_OF[action]
        self.observation_space.seed(0)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.time = 0
        self._obs = self._draw()
        return self._obs, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.played.append((self._obs, action))
        self.time += 1
        self._obs = self._draw()
        return self._obs, 1.0, self.time == 5, False, {}

    def _draw(self) -> Any:
        obs = self.observation_space.sample()
        if isinstance(obs, dict) and "action_mask" in obs:
            obs["action_mask"] = np.ones_like(obs["action_mask"])
        return obs
