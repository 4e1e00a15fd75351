"""Tasks of the DeepMind Control Suite; env type 'dmc2gym'."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from ding_like.config import NoEffect
from ding_like.envs.gymnasium_env import DiEngineGymEnv, draw_without_display
from ding_like.envs.spaces import AnyEnv
from ding_like.utils.registries import ENV_REGISTRY


@ENV_REGISTRY.register("dmc2gym")
class DMC2GymEnv(DiEngineGymEnv):
    """Env of the task `task_name` of `domain_name`, such as cartpole and balance; actions are from -1 to 1.

    Observations are vectors of float32, or with `from_pixels` images [3 * frame_stack, height, width], uint8. An action
    lasts `frame_skip` steps of 1,000 in an episode, whose end is a time limit (`truncated`).
    """

    config = {
        **DiEngineGymEnv.config,
        "env_id": "dmc2gym",
        "domain_name": None,
        "task_name": None,
        "frame_skip": 1,
        "frame_stack": 0,  # 0: none
        "use_act_scale": True,  # the suite's ranges are stretched to -1 to 1
        "from_pixels": False,
        "height": 84,
        "width": 84,
        "camera_id": 0,
        "channels_first": True,
        "warp_frame": False,  # images become grey
        "scale": False,
        "visualize_reward": False,
    }
    config_types: ClassVar[dict[str, tuple[type, ...]]] = {
        **DiEngineGymEnv.config_types,
        "domain_name": (str, type(None)),
        "task_name": (str, type(None)),
    }
    without_effect = {
        **DiEngineGymEnv.without_effect,
        "env_id": "domain_name and task_name say which task is made",
        "scale": "pixels stay bytes, and networks scale them to [0, 1]",
    }

    @classmethod
    def check_config(cls, cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield (path, what is wrong) for every contradiction."""
        yield from super().check_config(cfg)
        for key, example in (("domain_name", "cartpole"), ("task_name", "balance")):
            if not cfg[key]:
                yield key, f"is not set; expected a name of the DeepMind Control Suite such as '{example}'"
        for key in ("frame_skip", "height", "width"):
            if cfg[key] < 1:
                yield key, f"is {cfg[key]}; expected 1 or more"
        if cfg["warp_frame"] and not cfg["from_pixels"]:
            yield "warp_frame", "is True, but there are no images; set from_pixels=True"
        if cfg["frame_stack"] and not cfg["from_pixels"]:
            yield NoEffect("frame_stack", "stacks images, and there are none; set from_pixels=True")
        if cfg["from_pixels"] and not cfg["channels_first"]:
            yield "channels_first", "is False; networks here take images [C, H, W] alone: leave it at True"

    @classmethod
    def own_kwargs(cls, cfg: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the env's constructor."""
        size = {name: cfg[name] for name in ("height", "width", "camera_id")}
        render = {"render_kwargs": size} if cls._draws(cfg) else {}
        reward = {"visualize_reward": True} if cfg["visualize_reward"] else {}
        return {**render, **reward, **super().own_kwargs(cfg)}

    @staticmethod
    def _draws(cfg: Mapping[str, Any]) -> bool:
        return bool(cfg["from_pixels"] or cfg["render_mode"] is not None)

    @classmethod
    def key_wrappers(cls, cfg: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the wrappers that the keys of a whole section stand for, the innermost first."""
        repeat = [{"type": "action_repeat", "action_repeat": cfg["frame_skip"]}] if cfg["frame_skip"] > 1 else []
        if not cfg["from_pixels"]:
            return [*repeat, {"type": "FlattenObservation"}, *super().key_wrappers({**cfg, "frame_stack": 0})]
        base = super().key_wrappers(cfg)
        grey = [{"type": "GrayscaleObservation", "keep_dim": True}] if cfg["warp_frame"] else []
        stacked = [{"type": "stack_channels"}] if cfg["frame_stack"] else []
        return [
            *repeat,
            {"type": "AddRenderObservation", "render_only": True},
            *grey,
            {"type": "obs_transpose"},
            *base,
            *stacked,
        ]

    @classmethod
    def translated(cls, cfg: Mapping[str, Any]) -> dict[str, Any]:
        """Return a section of type 'gymnasium' for the same env."""
        whole = {**cls.config, **cfg}
        if whole["from_pixels"] and whole["render_mode"] is None:
            whole["render_mode"] = "rgb_array"
        plain = super().translated(whole)
        return {**plain, "env_id": f"dm_control/{whole['domain_name']}-{whole['task_name']}-v0"}

    @classmethod
    def build(cls, cfg: Mapping[str, Any]) -> AnyEnv:
        """Return the env of a whole section."""
        draw_without_display()
        return super().build(cfg)
