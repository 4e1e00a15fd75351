"""Pendulum as gymnasium has it; env type 'pendulum'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ding_like.envs.gymnasium_env import DiEngineGymEnv
from ding_like.utils.registries import ENV_REGISTRY


@ENV_REGISTRY.register("pendulum")
class PendulumEnv(DiEngineGymEnv):
    """Env of Pendulum-v1: a torque from -2 to 2, 200 steps; `continuous=False`: 11 torques, evenly spaced."""

    config = {**DiEngineGymEnv.config, "env_id": "Pendulum-v1", "continuous": True}
    ids = {"Pendulum-v0": "Pendulum-v1"}

    @classmethod
    def key_wrappers(cls, cfg: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the wrappers that the keys of a whole section stand for, the innermost first."""
        if cfg["continuous"]:
            return super().key_wrappers(cfg)
        # There is no range left to be scaled.
        return [{"type": "discrete_action", "num_actions": 11}, *super().key_wrappers({**cfg, "act_scale": False})]
