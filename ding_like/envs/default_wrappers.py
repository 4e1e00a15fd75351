"""Name the wrappers that DI-engine's `env_wrapper='default'` and its like stand for."""

from __future__ import annotations

from typing import Any

from ding_like.errors import ConfigError

_RETURN: dict[str, Any] = {"type": "eval_episode_return"}
_NAMES = ("default", "mujoco_default", "gym_hybrid_default", "atari_default")


def get_default_wrappers(
    env_wrapper_name: str, env_id: str | None = None, caller: str = "collector"
) -> list[dict[str, Any]]:
    """Return the wrappers that a name stands for, innermost first, as `DingEnvWrapper` takes them in `env_wrapper`.

    'default', 'mujoco_default' and 'gym_hybrid_default' report episodes' returns and leave the env as it is.
    'atari_default' is the preparation of Mnih et al. 2015: grey frames [4, 84, 84] of uint8, which our models scale
    themselves; what is learned from ends with a life and has clipped rewards, while a `caller` "evaluator" plays whole
    games for the game's own score. `env_id` says nothing more: FIRE is pressed in the games that have it.
    Raises ConfigError for another name or caller.
    """
    if caller not in ("collector", "evaluator"):
        raise ConfigError(f"caller is {caller!r}; expected 'collector' or 'evaluator'.")
    if env_wrapper_name not in _NAMES:
        raise ConfigError(f"env_wrapper is {env_wrapper_name!r}; expected one of {', '.join(_NAMES)}, or a list.")
    if env_wrapper_name != "atari_default":
        return [dict(_RETURN)]
    is_training = caller == "collector"
    return [
        {"type": "noop_reset", "noop_max": 30},
        {"type": "max_and_skip", "skip": 4},
        dict(_RETURN),
        *([{"type": "episodic_life"}] if is_training else []),
        {"type": "fire_reset"},
        {"type": "warp_frame", "size": 84},
        *([{"type": "clip_reward"}] if is_training else []),
        {"type": "frame_stack", "stack_size": 4},
    ]
