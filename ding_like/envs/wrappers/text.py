"""Show text as numbers."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.errors import ConfigError
from ding_like.types import Array
from ding_like.utils.registries import ENV_WRAPPER_REGISTRY

AnyEnv = gymnasium.Env[Any, Any]  # what an env observes and takes differs from env to env


@ENV_WRAPPER_REGISTRY.register("encode_text")
class EncodeText(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Show each Text, alone or an entry of a Dict, as the numbers of its characters, [max_length].

    Characters count from 1 in the order of their space, 0 fills up. A model sees them one-hot. Raises ConfigError for
    an env without text.
    """

    def __init__(self, env: AnyEnv) -> None:
        super().__init__(env)
        self._seen = env.observation_space
        self.observation_space = _encoded_space(self._seen)
        if self.observation_space is self._seen:
            raise ConfigError(f"encode_text is for observations with Text, the env has {self._seen}.")

    def observation(self, observation: Any) -> Any:
        """Return the observation with numbers in place of text."""
        return _encoded(self._seen, observation)


# Any: spaces of any kind, and what is in them.
def _encoded_space(space: Any) -> Any:
    """Return the space of what `_encoded` gives; the same one where there is no text in it."""
    if isinstance(space, spaces.Text):
        return spaces.MultiDiscrete([len(space.character_list) + 1] * space.max_length)
    if not isinstance(space, spaces.Dict):
        return space
    inner = {key: _encoded_space(own) for key, own in space.spaces.items()}
    return spaces.Dict(inner) if any(inner[key] is not own for key, own in space.spaces.items()) else space


def _encoded(space: Any, observation: Any) -> Any:
    if isinstance(space, spaces.Text):
        codes: Array = np.zeros(space.max_length, np.int64)
        codes[: len(observation)] = [1 + space.character_index(character) for character in observation]
        return codes
    if isinstance(space, spaces.Dict):
        return {key: _encoded(own, observation[key]) for key, own in space.spaces.items()}
    return observation
