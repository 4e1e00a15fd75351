"""Fit a policy's model to the spaces of its env."""

from __future__ import annotations

from typing import Any

import gymnasium

from ding_like.config import to_plain
from ding_like.errors import ConfigError
from ding_like.types import EnvManager


def fit_policy_config(policy_cfg: Any, manager: EnvManager) -> dict[str, Any]:
    """Return the policy section with `model.obs_shape` and `model.action_shape` filled from the env's spaces.

    Raises ConfigError if the config says something else than the env, or if no policy here handles a space.
    """
    cfg: dict[str, Any] = to_plain(policy_cfg)
    model = cfg.setdefault("model", {})
    _fill(model, "obs_shape", obs_shape(manager.observation_space))
    _fill(model, "action_shape", action_shape(manager.action_space))
    return cfg


def _fill(model: dict[str, Any], key: str, value: int | list[int]) -> None:
    given = model.get(key)
    if given is None:
        model[key] = value
        return
    said = list(given) if isinstance(given, (list, tuple)) else [given]
    if said != (value if isinstance(value, list) else [value]):
        raise ConfigError(f"policy.model.{key} is {given}, the env has {value}: leave it out, or correct it.")


def obs_shape(space: gymnasium.Space[Any]) -> int | list[int]:
    """Return the length of a vector observation or the shape of an image; raises ConfigError for other spaces."""
    if isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 1:
        return int(space.shape[0])
    if isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 3:
        return [int(size) for size in space.shape]
    raise ConfigError(
        f"no policy here takes the observation space {space}: wrap the env so that it gives a vector or an image "
        "(gymnasium.wrappers.FlattenObservation)."
    )


def action_shape(space: gymnasium.Space[Any]) -> int | list[int]:
    """Return the number of discrete actions; raises ConfigError for other spaces."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return int(space.n)
    raise ConfigError(f"no policy here takes the action space {space}: only Discrete actions are supported so far.")
