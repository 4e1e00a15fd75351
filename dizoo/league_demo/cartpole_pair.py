"""Two poles side by side: the player whose pole falls first has lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space, spaces

from ding_like.envs.game import GameStep
from ding_like.types import Array
from ding_like.utils.bounds import Configurable
from ding_like.utils.registries import ENV_REGISTRY


@ENV_REGISTRY.register("cartpole_pair")
class CartPolePair(Configurable):
    """Game of two players, each with a pole of CartPole-v1, at once; each sees its own cart [4], then the other's [4].

    A pole that falls, or a cart that leaves the track, loses: -1, and 1 for the other; 0 if both do in the same step. A
    game is cut after `max_steps`.
    """

    config = {"max_steps": 200}

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        merged = {**self.config, **(cfg or {})}
        self._max_steps = int(merged["max_steps"])
        # Any: unwrapped, for the time limit is the game's.
        self._carts: list[Any] = [
            gymnasium.make("CartPole-v1", render_mode=merged.get("render_mode")).unwrapped for _ in range(2)
        ]
        self.num_players = 2
        self.observation_space: Space[Any] = spaces.Box(-np.inf, np.inf, (8,), np.float32)
        self.action_space: Space[Any] = spaces.Discrete(2)
        self._steps = 0

    def reset(self, seed: int | None = None) -> tuple[Sequence[Any], Sequence[int]]:
        self._steps = 0
        # Another seed for each cart: the players must not see the same.
        seeds = (None, None) if seed is None else np.random.SeedSequence(seed).generate_state(2).tolist()
        self._seen = [cart.reset(seed=own)[0] for cart, own in zip(self._carts, seeds, strict=True)]
        return self._obs(), (0, 1)

    def step(self, actions: Mapping[int, Any]) -> GameStep:
        self._steps += 1
        has_fallen = []
        for player, cart in enumerate(self._carts):
            self._seen[player], _, fallen, *_ = cart.step(int(actions[player]))
            has_fallen.append(bool(fallen))
        reward = [float(has_fallen[1 - player]) - float(has_fallen[player]) for player in range(2)]
        over = any(has_fallen)
        cut = not over and self._steps >= self._max_steps
        return GameStep(self._obs(), reward, [over] * 2, [cut] * 2, () if over or cut else (0, 1))

    def _obs(self) -> list[Array]:
        first, second = (np.asarray(each, np.float32) for each in self._seen)
        return [np.concatenate([first, second]), np.concatenate([second, first])]

    def render(self) -> Array:
        """Return both carts [H, W, 3], player 0 above."""
        return np.concatenate([cart.render() for cart in self._carts])

    def close(self) -> None:
        for cart in self._carts:
            cart.close()
