"""Taxi (Dietterich 2000) as gymnasium has it; env type 'taxi'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ding_like.envs.gymnasium_env import DiEngineGymEnv, newest_id
from ding_like.utils.registries import ENV_REGISTRY

_NEWEST = newest_id("Taxi")


@ENV_REGISTRY.register("taxi")
class TaxiEnv(DiEngineGymEnv):
    """Env of 500 states: a reward of -1 for each step, 20 for a passenger brought home, -10 for a wrong stop.

    With `action_mask=True` only actions that change the state are taken: none into a wall, no wrong stop.
    """

    config = {**DiEngineGymEnv.config, "env_id": _NEWEST, "action_mask": False}
    ids = dict.fromkeys(("Taxi", "Taxi-v3"), _NEWEST)

    @classmethod
    def key_wrappers(cls, cfg: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the wrappers that the keys of a whole section stand for, the innermost first."""
        mask = [{"type": "info_mask"}] if cfg["action_mask"] else []
        return [*super().key_wrappers(cfg), *mask]
