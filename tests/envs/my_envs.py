"""Envs as users write them, named by import path in the tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from ding_like.envs import BaseEnv, BaseEnvTimestep
from ding_like.utils.registries import ENV_REGISTRY
from tests.envs.scripted_env import ScriptedEnv

NOT_A_CLASS = 5


@ENV_REGISTRY.register("di_engine_style_walk")
class DiEngineStyleWalk(BaseEnv):
    """Walk on a line in DI-engine's style: done at +-`cfg.width`, cut after `cfg.limit` steps if there is a limit."""

    config = dict(width=3, limit=None)

    def __init__(self, cfg: Any) -> None:
        self.cfg = {**self.config, **cfg}
        self._observation_space = spaces.Box(-10, 10, (2,), np.float32)
        self._action_space = spaces.Discrete(2)
        self._reward_space = spaces.Box(0, 1, (1,), np.float32)
        self.seeds: list[tuple[int, bool]] = []
        self.is_closed = False

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        self.seeds.append((seed, dynamic_seed))
        self._rng = np.random.default_rng(seed)

    def reset(self, start: int = 0) -> Any:
        self._x, self._t = start, 0
        self._luck = self._rng.random()
        return self._obs()

    def step(self, action: Any) -> BaseEnvTimestep:
        assert isinstance(action, np.ndarray)
        self._x += 1 if action == 1 else -1
        self._t += 1
        info: dict[str, Any] = {}
        done = abs(self._x) >= self.cfg["width"]
        if self.cfg["limit"] is not None and self._t >= self.cfg["limit"] and not done:
            done = True
            info["TimeLimit.truncated"] = True
        if done:
            info["eval_episode_return"] = 42.0
        return BaseEnvTimestep(self._obs(), np.array([0.5], np.float32), done, info)

    def _obs(self) -> Any:
        return np.array([self._x, self._luck], np.float32)

    def close(self) -> None:
        self.is_closed = True


class DiEngineStyleCounted(DiEngineStyleWalk):
    """Env of DI-engine's style whose class makes a config for each env."""

    @staticmethod
    def create_collector_env_cfg(cfg: dict[str, Any]) -> list[dict[str, Any]]:
        return [dict(cfg, width=width) for width in range(2, 2 + cfg.pop("collector_env_num"))]


class ShoutingEnv(ScriptedEnv):
    """Scripted env with a keyword argument."""

    def __init__(self, loudness: int = 1) -> None:
        super().__init__(loudness)
