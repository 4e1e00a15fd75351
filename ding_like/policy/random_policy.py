"""Act at random: what fills a buffer before the first update."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from ding_like.errors import ConfigError
from ding_like.types import Array, CollectMode, Obs, State


class RandomActor:
    """Draw actions uniformly from an action space, each lane its own."""

    def __init__(self, action_space: spaces.Space[Any]) -> None:
        self._draw = _drawer(action_space)

    def act(
        self, obs: Obs, *, lanes: Array, is_first: Array, rng: np.random.Generator, **setting: Any
    ) -> dict[str, Array]:
        """Return `action` [R, A...]."""
        return {"action": self._draw(len(lanes), rng)}

    def reset(self, lanes: Array | None = None) -> None:
        """Forget nothing: there is no state."""

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        """Do nothing: there is no state."""


def _drawer(space: spaces.Space[Any]) -> Any:
    """Return a function (rows, rng) -> actions; actions count from 0 as policies say them."""
    if isinstance(space, spaces.Discrete):
        return lambda rows, rng: rng.integers(0, int(space.n), rows)
    if isinstance(space, spaces.MultiDiscrete):
        return lambda rows, rng: rng.integers(0, space.nvec, (rows, *space.shape))
    if isinstance(space, spaces.MultiBinary):
        return lambda rows, rng: rng.integers(0, 2, (rows, *space.shape))
    if isinstance(space, spaces.Box) and space.is_bounded():
        return lambda rows, rng: rng.uniform(space.low, space.high, (rows, *space.shape)).astype(space.dtype)
    raise ConfigError(
        f"no random actions for the action space {space}: set policy.random_collect_size=0, or bound the space."
    )


def random_collect_mode(mode: CollectMode, action_space: spaces.Space[Any]) -> CollectMode:
    """Return `mode` with random actions: rows are made as the policy makes them."""
    return mode._replace(actor=RandomActor(action_space))
