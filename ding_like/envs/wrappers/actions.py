"""Change what actions an env takes, as keys of DI-engine's env sections ask for."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from ding_like.envs.wrappers.standard import rescale_action
from ding_like.errors import ConfigError
from ding_like.types import Array
from ding_like.utils.log import one_time_info
from ding_like.utils.registries import ENV_WRAPPER_REGISTRY

AnyEnv = gymnasium.Env[Any, Any]  # what an env observes and takes differs from env to env


@ENV_WRAPPER_REGISTRY.register("act_scale")
def act_scale(env: AnyEnv) -> AnyEnv:
    """Take continuous actions from -1 to 1 and stretch them to the env's Box; leave other action spaces as they are.

    Raises ConfigError for a Box without finite bounds.
    """
    if isinstance(env.action_space, gymnasium.spaces.Box):
        return rescale_action(env)
    one_time_info(f"env.act_scale changes nothing: the actions of {env} are {env.action_space}")
    return env


@ENV_WRAPPER_REGISTRY.register("discrete_action")
class DiscreteAction(gymnasium.ActionWrapper[Any, Any, Any]):
    """Take the number of one of `num_actions` values, evenly spaced over the env's Box [1], both bounds among them.

    Raises ConfigError for other action spaces, and for fewer than two values.
    """

    def __init__(self, env: AnyEnv, num_actions: int = 11) -> None:
        space = env.action_space
        if not isinstance(space, gymnasium.spaces.Box) or space.shape != (1,) or not space.is_bounded():
            raise ConfigError(f"discrete_action takes a Box of one number with finite bounds, the env has {space}.")
        if num_actions < 2:
            raise ConfigError(f"discrete_action: num_actions is {num_actions}, expected 2 or more.")
        super().__init__(env)
        self._values = np.linspace(space.low, space.high, num_actions, dtype=space.dtype)  # [N, 1]
        self.action_space = gymnasium.spaces.Discrete(num_actions)

    def action(self, action: Any) -> Array:
        """Return the value of a number, [1]."""
        value: Array = self._values[int(action)].copy()
        return value
