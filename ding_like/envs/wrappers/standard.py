"""Name gymnasium's common wrappers as configs do: in lower case, with the usual defaults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
from gymnasium.wrappers import ClipReward, FrameStackObservation, RescaleAction, TimeLimit, TransformObservation

from ding_like.envs.wrappers.returns import EpisodeReturn
from ding_like.errors import ConfigError
from ding_like.utils.registries import ENV_WRAPPER_REGISTRY

AnyEnv = gymnasium.Env[Any, Any]  # what an env observes and takes differs from env to env

# Gymnasium's own would have evaluations count clipped rewards.
ENV_WRAPPER_REGISTRY.alias("ClipReward", "clip_reward")


@ENV_WRAPPER_REGISTRY.register("frame_stack")
def frame_stack(env: AnyEnv, stack_size: int = 4, *, padding_type: str = "reset") -> AnyEnv:
    """Observe the last `stack_size` observations, stacked along a new first axis.

    Before there are as many, the first one is repeated, or zeros with `padding_type="zero"`.
    """
    if stack_size < 1:
        raise ConfigError(f"frame_stack: stack_size is {stack_size}, expected 1 or more.")
    return FrameStackObservation(env, stack_size, padding_type=padding_type)


@ENV_WRAPPER_REGISTRY.register("time_limit")
def time_limit(env: AnyEnv, max_episode_steps: int) -> AnyEnv:
    """Truncate episodes after `max_episode_steps` steps."""
    if max_episode_steps < 1:
        raise ConfigError(f"time_limit: max_episode_steps is {max_episode_steps}, expected 1 or more.")
    return TimeLimit(env, max_episode_steps)


@ENV_WRAPPER_REGISTRY.register("clip_reward")
def clip_reward(env: AnyEnv, min_reward: float | None = None, max_reward: float | None = None) -> AnyEnv:
    """Clip rewards to a range, by default -1 to 1; `info["eval_episode_return"]` sums the rewards as they were."""
    low, high = (-1.0, 1.0) if min_reward is None and max_reward is None else (min_reward, max_reward)
    if low is not None and high is not None and low > high:
        raise ConfigError(f"clip_reward: min_reward {low} is above max_reward {high}.")
    return ClipReward(EpisodeReturn(env), low, high)


@ENV_WRAPPER_REGISTRY.register("rescale_action")
def rescale_action(env: AnyEnv, min_action: float = -1.0, max_action: float = 1.0) -> AnyEnv:
    """Take actions from `min_action` to `max_action` and stretch them to the range of the env's Box."""
    space = env.action_space
    if not isinstance(space, gymnasium.spaces.Box) or not space.is_bounded():
        raise ConfigError(f"rescale_action takes Box actions with finite bounds, the env has {space}: leave it out.")
    if min_action >= max_action:
        raise ConfigError(f"rescale_action: min_action {min_action} is not below max_action {max_action}.")
    number = space.dtype.type  # gymnasium warns of a float32 bound of a float64 Box
    return RescaleAction(env, number(min_action), number(max_action))


@ENV_WRAPPER_REGISTRY.register("obs_transpose")
def obs_transpose(env: AnyEnv) -> AnyEnv:
    """Show images [H, W, C] as [C, H, W], as the models take them."""
    space = env.observation_space
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 3:
        raise ConfigError(f"obs_transpose takes images [H, W, C], the env has {space}.")
    low, high = space.low.transpose(2, 0, 1), space.high.transpose(2, 0, 1)
    turned = gymnasium.spaces.Box(low, high, dtype=space.dtype.type)
    return TransformObservation(env, lambda image: image.transpose(2, 0, 1), turned)


@ENV_WRAPPER_REGISTRY.register("obs_select")
def obs_select(env: AnyEnv, indices: Sequence[int]) -> AnyEnv:
    """Show only these entries of a vector observation, in this order: what is left out, an agent has to remember.

    Raises ConfigError for observations that are no vector, and for entries that it does not have.
    """
    space, chosen = env.observation_space, list(indices)
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
        raise ConfigError(f"obs_select takes vectors, the env has {space}; flatten it first with FlattenObservation.")
    if not chosen or not all(isinstance(i, int) and 0 <= i < space.shape[0] for i in chosen):
        raise ConfigError(f"obs_select: indices are {chosen}, expected some of 0 to {space.shape[0] - 1}.")
    left = gymnasium.spaces.Box(space.low[chosen], space.high[chosen], dtype=space.dtype.type)
    return TransformObservation(env, lambda obs: obs[chosen], left)
