"""MuJoCo tasks as gymnasium has them; env type 'mujoco'."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from ding_like.envs.gymnasium_env import DiEngineGymEnv, draw_without_display
from ding_like.envs.spaces import AnyEnv
from ding_like.utils.registries import ENV_REGISTRY

# The tasks of gym's versions 2 and 3. Version 4 is the same task on today's bindings: observations, rewards and models.
# Version 5 is not: Ant observes 105 numbers, not 111, a foot of Walker2d has another friction, a fall another reward.
_TASKS = (
    *("Hopper", "HalfCheetah", "Walker2d", "Swimmer", "Reacher"),
    *("InvertedPendulum", "InvertedDoublePendulum", "HumanoidStandup", "Humanoid", "Ant"),
)
# Version 4 of this one does not run on MuJoCo 3.
_ONLY_V5 = ("Pusher",)


@ENV_REGISTRY.register("mujoco")
class MujocoEnv(DiEngineGymEnv):
    """MuJoCo task such as Hopper-v5; ids of versions 2 and 3 are made as version 4.

    `Ant-v2` and `Ant-v3` observe contact forces, 111 numbers in all; `Ant-v4` and `Ant-v5` as gymnasium has them.
    """

    config = {
        **DiEngineGymEnv.config,
        "env_id": "Hopper-v5",
        "use_act_scale": False,  # DI-engine's other name for act_scale
        "action_clip": False,  # actions beyond the env's range are cut
        "delay_reward_step": 0,  # above 1: rewards are summed up and given at every so many steps
        "multi_agent": False,
    }
    ids = {
        **{f"{task}-{version}": f"{task}-v4" for task in _TASKS for version in ("v2", "v3")},
        **{f"{task}-{version}": f"{task}-v5" for task in _ONLY_V5 for version in ("v2", "v3", "v4")},
    }

    @classmethod
    def check_config(cls, cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield (path, what is wrong) for every contradiction."""
        yield from super().check_config(cfg)
        if cfg["multi_agent"]:
            yield (
                "multi_agent",
                "is True; a body that several agents move is create_config.env=dict(type='mujoco_multi', "
                "import_names=['dizoo.multiagent_mujoco.envs.multi_mujoco_env'])",
            )
        if cfg["delay_reward_step"] < 0:
            yield "delay_reward_step", f"is {cfg['delay_reward_step']}; expected 0 or more"

    @classmethod
    def own_kwargs(cls, cfg: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the env's constructor."""
        forces = {"use_contact_forces": True} if cfg["env_id"] in ("Ant-v2", "Ant-v3") else {}
        return {**forces, **super().own_kwargs(cfg)}

    @classmethod
    def key_wrappers(cls, cfg: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the wrappers that the keys of a whole section stand for, the innermost first."""
        clip = [{"type": "clip_action"}] if cfg["action_clip"] else []
        delay = cfg["delay_reward_step"]
        delayed = [{"type": "delay_reward", "steps": delay}] if delay > 1 and cfg["is_train"] is not False else []
        return [*clip, *delayed, *super().key_wrappers(cfg)]

    @classmethod
    def build(cls, cfg: Mapping[str, Any]) -> AnyEnv:
        """Return the env of a whole section; what MuJoCo says of its own models goes to the log's details."""
        keep_quiet()
        if cfg["render_mode"] is not None or cfg["replay_path"] is not None:
            draw_without_display()
        return super().build(cfg)


def keep_quiet() -> None:
    """Send MuJoCo's warnings to the log: by itself it writes a file MUJOCO_LOG.TXT into the folder that it runs in."""
    try:
        import mujoco
    except ImportError:
        return  # making the env says how to install it
    mujoco.set_mju_user_warning(logging.getLogger("ding_like.mujoco").debug)
