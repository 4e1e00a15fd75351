"""Walk to the far end of a chain, past a nearer reward; env type 'chain'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.envs.gymnasium_env import DiEngineGymEnv
from ding_like.errors import ConfigError
from ding_like.utils.registries import ENV_REGISTRY

_NEAR = 0.001  # the reward of the left end
_PIXELS = 16  # of a state's square


class Chain(gymnasium.Env[Any, Any]):
    """Walk to the right end of `n_states` in a row, from the second one of the left.

    The right end pays 1 and ends the episode, a step at the left end pays 0.001, and an episode is truncated after
    `n_states + 9` steps. Which of the two actions leads to the right is another one in each state, always the same in
    the same state: an agent that repeats itself gets nowhere, and one that acts at random hardly ever gets to the end.
    The observation is the number of the state. Source: Osband et al. 2016 (the chain), Osband et al. 2020 (the
    actions, of deep sea).
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}

    def __init__(self, n_states: int = 30, *, render_mode: str | None = None) -> None:
        if n_states < 3:
            raise ConfigError(f"env.n_states is {n_states}, expected 3 or more.")
        self.render_mode = render_mode
        self.observation_space, self.action_space = spaces.Discrete(n_states), spaces.Discrete(2)
        self.right = np.random.default_rng(0).integers(2, size=n_states)  # the action to the right, in each state
        self._last, self._state, self._steps = n_states - 1, 1, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Go back to the second state."""
        super().reset(seed=seed)
        self._state, self._steps = 1, 0
        return self._state, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Go one state to the right or to the left."""
        self._state += 1 if action == self.right[self._state] else -1
        self._state, self._steps = max(self._state, 0), self._steps + 1
        terminated = self._state == self._last
        reward = 1.0 if terminated else _NEAR if self._state == 0 else 0.0
        return self._state, reward, terminated, not terminated and self._steps > self._last + 9, {}

    def render(self) -> Any:
        """Return a picture of the chain, uint8 [H, W, 3]."""
        colours = np.full((1, self._last + 1, 3), (40, 60, 90), np.uint8)
        colours[0, -1] = 90, 160, 60
        colours[0, self._state] = 240, 190, 40
        return colours.repeat(_PIXELS, axis=0).repeat(_PIXELS, axis=1)


gymnasium.register("dizoo/Chain-v0", entry_point=f"{__name__}:Chain")


@ENV_REGISTRY.register("chain")
class ChainEnv(DiEngineGymEnv):
    """Env of `Chain` with `n_states` states."""

    config = {**DiEngineGymEnv.config, "env_id": "dizoo/Chain-v0", "n_states": 30}

    @classmethod
    def own_kwargs(cls, cfg: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the env's constructor."""
        return {"n_states": cfg["n_states"], **super().own_kwargs(cfg)}
