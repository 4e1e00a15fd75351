"""Stop in a target area by choices with parameters; env type 'gym_hybrid'."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium

from ding_like.envs.gymnasium_env import DiEngineGymEnv
from ding_like.utils.registries import ENV_REGISTRY

_FIELD = "dizoo.gym_hybrid.envs.field"
for _env_id, _name in (("Moving-v0", "MovingEnv"), ("Sliding-v0", "SlidingEnv"), ("HardMove-v0", "HardMoveEnv")):
    if _env_id not in gymnasium.registry:
        gymnasium.register(_env_id, entry_point=f"{_FIELD}:{_name}")


@ENV_REGISTRY.register("gym_hybrid")
class GymHybridEnv(DiEngineGymEnv):
    """Env of Moving-v0, Sliding-v0 or HardMove-v0; `act_scale` scales parameters to [-1, 1], whatever their units.

    `num_actuators` is HardMove's. See `dizoo/gym_hybrid/envs/field.py` for what is observed and rewarded.
    """

    config = {
        **DiEngineGymEnv.config,
        "env_id": "Moving-v0",
        "num_actuators": None,  # of HardMove-v0, by default 4: there are 2^n choices of those that are on
    }
    config_types = {**DiEngineGymEnv.config_types, "num_actuators": (int, type(None))}

    @classmethod
    def check_config(cls, cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield (path, what is wrong) for every contradiction."""
        yield from super().check_config(cfg)
        if cfg["num_actuators"] is not None and cfg["env_id"] != "HardMove-v0":
            yield "num_actuators", f"is HardMove-v0's, but env_id is {cfg['env_id']!r}: leave it out"

    @classmethod
    def key_wrappers(cls, cfg: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the wrappers that the keys stand for; `act_scale` is the env's own."""
        return super().key_wrappers({**cfg, "act_scale": False})

    @classmethod
    def own_kwargs(cls, cfg: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the env's constructor."""
        own: dict[str, Any] = {"act_scale": bool(cfg["act_scale"])}
        if cfg["num_actuators"] is not None:
            own["num_actuators"] = cfg["num_actuators"]
        return {**own, **super().own_kwargs(cfg)}
