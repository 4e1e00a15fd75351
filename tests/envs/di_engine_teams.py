"""Teams in DI-engine's form, as tests make them by import path and by id."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.envs import BaseEnv, BaseEnvTimestep

AGENTS, SEEN, STATE, ACTIONS, STEPS = 3, 4, 5, 2, 6


class Lights(gymnasium.Env[Any, Any]):
    """Agents that switch lights; what they did is seen, and paid by `reward`: "one", "each" or "wrong"."""

    agent_num = AGENTS

    def __init__(
        self,
        *,
        reward: str = "one",
        continuous: bool = False,
        state: tuple[int, ...] | None = (STATE,),
        masked: bool = True,
        wrong: str = "",
        truncated: bool = True,
    ) -> None:
        self._reward, self._continuous, self._wrong, self._cut = reward, continuous, wrong, truncated
        own: dict[str, Any] = {"agent_state": spaces.Box(-9, 9, (AGENTS, SEEN), np.float32)}
        if state is not None:
            own["global_state"] = spaces.Box(-9, 9, state, np.float32)
        if masked:
            own["action_mask"] = spaces.Box(0, 1, (AGENTS, ACTIONS), np.float32)
        if wrong == "no agent_state":
            own.pop("agent_state")
        if wrong == "mask space":
            own["action_mask"] = spaces.Box(0, 1, (AGENTS + 1, ACTIONS), np.float32)
        self.observation_space = spaces.Dict(own)
        self.action_space: Any = spaces.Discrete(ACTIONS)
        if continuous:
            self.action_space = spaces.Box(-1, 1, (AGENTS, ACTIONS), np.float32)
        if wrong == "actions":
            self.action_space = spaces.MultiDiscrete([2] * (AGENTS + 1))
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._time = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, bool, dict[str, Any]]:
        assert action.shape == ((AGENTS, ACTIONS) if self._continuous else (AGENTS,))
        assert self._continuous or not (self._time % 2 and action[0]), "the mask of the first agent forbids it"
        self.actions.append(action)
        self._time += 1
        rewards = np.arange(AGENTS, dtype=np.float32) + self._time
        reward: Any = {"one": 2.0, "each": rewards, "wrong": np.zeros(AGENTS + 1)}[self._reward]
        over = self._time == STEPS
        done: Any = [over] * AGENTS if self._wrong == "dones" else over and not self._cut
        return self._observe(), reward, done, over and self._cut, {"own": self._time}

    def _observe(self) -> dict[str, Any]:
        obs = {name: self.np_random.random(box.shape) for name, box in self.observation_space.spaces.items()}  # type: ignore[attr-defined]
        if "action_mask" in obs:
            obs["action_mask"] = np.ones((AGENTS, ACTIONS))
            obs["action_mask"][0, 1] = self._time % 2 == 0
        if self._wrong == "mask" and self._time == 2:
            obs["action_mask"] = np.ones((AGENTS, ACTIONS + 1))
        if self._wrong == "missing" and self._time == 2:
            obs.pop("agent_state")
        return obs


gymnasium.register("TeamOfLights-v0", Lights, max_episode_steps=4)


class LightsInTheirStyle(BaseEnv):
    """The same in DI-engine's style: one `done`, a reset that returns the observation."""

    def __init__(self, cfg: Any = None) -> None:
        self._env, self.agent_num, self._seed = Lights(**(cfg or {}).get("kwargs", {})), AGENTS, 0
        self._observation_space, self._action_space = self._env.observation_space, self._env.action_space

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        self._seed = seed

    def reset(self) -> Any:
        return self._env.reset(seed=self._seed)[0]

    def step(self, action: Any) -> BaseEnvTimestep:
        obs, reward, terminated, truncated, info = self._env.step(action)
        done: Any = terminated if np.size(terminated) > 1 else terminated or truncated
        return BaseEnvTimestep(obs, np.array([reward]), done, {**info, "TimeLimit.truncated": truncated})

    def close(self) -> None:
        self._env.close()
