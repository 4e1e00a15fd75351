"""Atari games, prepared as the literature does; env type 'atari'."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ding_like.envs.gymnasium_env import DiEngineGymEnv
from ding_like.utils.registries import ENV_REGISTRY


@ENV_REGISTRY.register("atari")
class AtariEnv(DiEngineGymEnv):
    """Atari game such as 'PongNoFrameskip-v4' or 'ALE/Pong-v5' with the wrapper 'atari'.

    Observations are stacks [frame_stack, 84, 84] of grey frames, uint8, which networks scale to [0, 1]. While training,
    rewards become their sign and a lost life ends the episode; evaluations are of whole games and their own rewards,
    and so is what is reported. The managers `ale_vector` and `envpool` can run it.
    """

    config = {
        **DiEngineGymEnv.config,
        "env_id": "PongNoFrameskip-v4",
        "frame_stack": 4,
        "frame_skip": 4,  # game frames for each action
        "noop_max": 30,  # idle frames that a game begins with, at most
        "fire_reset": True,  # games that wait for FIRE get it at the begin of an episode
        "episode_life": True,  # a lost life ends an episode, of training alone
        "clip_rewards": True,  # to -1, 0 and 1, for training alone
        "warp_frame": True,  # 84 x 84, grey
        "scale": True,
    }
    without_effect = {
        **DiEngineGymEnv.without_effect,
        "scale": "pixels stay bytes, and networks scale them to [0, 1]",
    }

    @classmethod
    def check_config(cls, cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield (path, what is wrong) for every contradiction."""
        yield from super().check_config(cfg)
        if not cfg["warp_frame"]:
            yield (
                "warp_frame",
                "is False; frames of 210 x 160 in colour come from create_config.env.type='gymnasium' with "
                "env.wrappers=[dict(type='obs_transpose')]",
            )
        for key in ("frame_stack", "frame_skip"):
            if cfg[key] < 1:
                yield key, f"is {cfg[key]}; expected 1 or more"

    @classmethod
    def own_kwargs(cls, cfg: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the env's constructor: the preparation skips frames, whatever the id does."""
        return {"frameskip": 1, **super().own_kwargs(cfg)}

    @classmethod
    def key_wrappers(cls, cfg: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the wrappers that the keys of a whole section stand for, the innermost first."""
        is_train = cfg["is_train"] is not False
        prepare = {
            "type": "atari",
            "stack_size": cfg["frame_stack"],
            "frame_skip": cfg["frame_skip"],
            "noop_max": cfg["noop_max"],
            "fire_reset": cfg["fire_reset"],
            "terminal_on_life_loss": cfg["episode_life"] and is_train,
            "clip_rewards": cfg["clip_rewards"] and is_train,
        }
        return [prepare, *super().key_wrappers({**cfg, "frame_stack": 0})]
