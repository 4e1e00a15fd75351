"""CarRacing as gymnasium has it; env type 'carracing'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ding_like.envs.gymnasium_env import DiEngineGymEnv
from ding_like.utils.registries import ENV_REGISTRY


@ENV_REGISTRY.register("carracing")
class CarRacingEnv(DiEngineGymEnv):
    """Env of CarRacing-v3 with images [3, 96, 96], uint8, and five actions; `continuous=True`: steering, gas, brake."""

    config = {**DiEngineGymEnv.config, "env_id": "CarRacing-v3", "continuous": False}
    ids = {"CarRacing-v2": "CarRacing-v3", "CarRacing-v1": "CarRacing-v3"}

    @classmethod
    def own_kwargs(cls, cfg: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the env's constructor."""
        return {"continuous": cfg["continuous"], **super().own_kwargs(cfg)}

    @classmethod
    def key_wrappers(cls, cfg: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the wrappers that the keys of a whole section stand for, the innermost first."""
        return [{"type": "obs_transpose"}, *super().key_wrappers(cfg)]
