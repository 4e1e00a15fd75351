"""MiniGrid's grid worlds; env type 'minigrid'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ding_like.envs.gymnasium_env import DiEngineGymEnv
from ding_like.utils.registries import ENV_REGISTRY


@ENV_REGISTRY.register("minigrid")
class MiniGridEnv(DiEngineGymEnv):
    """Grid world such as MiniGrid-Empty-8x8-v0, seen as a vector of 2,739 numbers: the view and the mission.

    With `flat_obs=False` the observation is the view alone, [3, 7, 7], uint8.
    """

    config = {
        **DiEngineGymEnv.config,
        "env_id": "MiniGrid-Empty-8x8-v0",
        "flat_obs": True,
        "max_step": None,  # of an episode; None: as the id has it
    }
    config_types: ClassVar[dict[str, tuple[type, ...]]] = {
        **DiEngineGymEnv.config_types,
        "max_step": (int, type(None)),
    }

    @classmethod
    def own_kwargs(cls, cfg: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the env's constructor."""
        limit = {} if cfg["max_step"] is None else {"max_steps": cfg["max_step"]}
        return {**limit, **super().own_kwargs(cfg)}

    @classmethod
    def key_wrappers(cls, cfg: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the wrappers that the keys of a whole section stand for, the innermost first."""
        seen = [{"type": "flat_mission"}] if cfg["flat_obs"] else [{"type": "grid_view"}]
        return [*seen, *super().key_wrappers(cfg)]
