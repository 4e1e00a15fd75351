"""MinAtar's games (Young and Tian 2019); env type 'minatar'.

Ids are MinAtar/Asterix-v1, Breakout, Freeway, Seaquest and SpaceInvaders. As in the paper, an action is repeated in
place of the next one with probability 0.1, and games become harder with time. Of the games Freeway alone has a clock,
and in Seaquest a submarine that stays at the surface is never lost: episodes are truncated after 10,000 steps.
"""

from __future__ import annotations

import colorsys
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.envs.gymnasium_env import DiEngineGymEnv
from ding_like.errors import ConfigError
from ding_like.types import Array
from ding_like.utils.registries import ENV_REGISTRY, pip_line

GAMES = {
    name.title().replace("_", ""): name for name in ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
}
_CELL = 16  # pixels of a cell's side in a picture


class MinAtarGame(gymnasium.Env[Array, int]):
    """Game on 10 x 10 cells, seen as [C, 10, 10] bool: a channel for each kind of object.

    Actions are those that have an effect in the game. `sticky_action_prob` repeats the last one.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}

    def __init__(
        self, game: str, *, sticky_action_prob: float = 0.1, difficulty_ramping: bool = True,
        render_mode: str | None = None,
    ) -> None:  # fmt: skip
        """Make a game by its module's name in MinAtar. Raises ConfigError where MinAtar is not installed."""
        try:
            from minatar import Environment
        except ImportError as error:
            raise ConfigError(f"MinAtar cannot be loaded ({error}); install it with {pip_line('minatar')}.") from error
        self.render_mode = render_mode
        self._game = Environment(game, sticky_action_prob, difficulty_ramping)
        self._actions: list[int] = self._game.minimal_action_set()
        height, width, channels = self._game.state_shape()
        self.observation_space = spaces.Box(0, 1, (channels, height, width), np.bool_)
        self.action_space: Any = spaces.Discrete(len(self._actions))  # Any: gymnasium's Space[int], of numpy ints
        colours = [colorsys.hsv_to_rgb(channel / channels, 0.8, 1.0) for channel in range(channels)]
        self._colours = (255 * np.array([(0, 0, 0), *colours])).astype(np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin a game."""
        super().reset(seed=seed)
        if seed is not None:
            self._game.seed(seed)
        self._game.reset()
        self._game.last_action = 0
        return self._see(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Play one frame."""
        reward, is_over = self._game.act(self._actions[action])
        return self._see(), float(reward), bool(is_over), False, {}

    def render(self) -> Array:
        """Return a picture [H, W, 3] in which each kind of object has a colour; of several the last one shows."""
        seen = self._see()
        number = (seen * np.arange(1, len(seen) + 1)[:, None, None]).max(axis=0)
        picture: Array = self._colours[number].repeat(_CELL, axis=0).repeat(_CELL, axis=1)
        return picture

    def _see(self) -> Array:
        state: Array = self._game.state().transpose(2, 0, 1)
        return state


for _name, _module in GAMES.items():
    if f"MinAtar/{_name}-v1" not in gymnasium.registry:  # MinAtar's own `register_envs` was called
        gymnasium.register(f"MinAtar/{_name}-v1", f"{__name__}:MinAtarGame", kwargs={"game": _module})


@ENV_REGISTRY.register("minatar")
class MinAtarEnv(DiEngineGymEnv):
    """MinAtar game by its id, such as MinAtar/Breakout-v1."""

    config = {**DiEngineGymEnv.config, "env_id": "MinAtar/Breakout-v1", "max_episode_steps": 10_000}
