"""D4RL's tasks on gymnasium's MuJoCo environments, with data of one's own; env type 'd4rl'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ding_like.utils.registries import ENV_REGISTRY
from dizoo.mujoco.envs.mujoco_env import MujocoEnv

_ENVS = {"hopper": "Hopper-v5", "halfcheetah": "HalfCheetah-v5", "walker2d": "Walker2d-v5", "ant": "Ant-v5"}
_LEVELS = ("random", "medium", "medium-replay", "medium-expert", "expert")


@ENV_REGISTRY.register("d4rl")
class D4RLEnv(MujocoEnv):
    """MuJoCo task by an id of D4RL such as hopper-medium-v0, which also names a data set.

    D4RL's own files are of an older MuJoCo. The data set is the file that `ding collect --levels` writes, by default
    data/hopper/medium.safetensors.
    """

    config = {
        **MujocoEnv.config,
        "env_id": "hopper-medium-v0",
        "norm_obs": {"use_norm": False, "offline_stats": {"use_offline_stats": False}},
    }
    without_effect: ClassVar[dict[str, str]] = {
        **MujocoEnv.without_effect,
        "norm_obs.offline_stats.use_offline_stats": "mode serial_offline normalises by the data",
    }
    ids = {
        **MujocoEnv.ids,
        **{f"{name}-{level}-v{n}": env for name, env in _ENVS.items() for level in _LEVELS for n in range(3)},
    }

    @classmethod
    def default_data(cls, cfg: Mapping[str, Any]) -> str:
        """Return the file of the data set that an id names; "" for an id that names none."""
        name, _, level = str(cfg["env_id"]).rpartition("-")[0].partition("-")
        return f"data/{name}/{level}.safetensors" if name in _ENVS and level in _LEVELS else ""
