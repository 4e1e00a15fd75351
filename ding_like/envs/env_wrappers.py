"""Offer our wrappers under the names and arguments that scripts written for DI-engine know."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.wrappers import FlattenObservation

from ding_like.envs.wrappers import wrap
from ding_like.envs.wrappers.atari import FireReset as FireResetWrapper
from ding_like.envs.wrappers.frames import EpisodicLife as EpisodicLifeWrapper
from ding_like.envs.wrappers.frames import NoopReset as NoopResetWrapper
from ding_like.envs.wrappers.frames import max_and_skip as MaxAndSkipWrapper  # DI-engine's name
from ding_like.envs.wrappers.frames import scaled_float_frame as ScaledFloatFrameWrapper
from ding_like.envs.wrappers.frames import warp_frame as WarpFrameWrapper
from ding_like.envs.wrappers.returns import EpisodeReturn as EvalEpisodeReturnWrapper
from ding_like.envs.wrappers.standard import obs_transpose as ObsTransposeWrapper
from ding_like.envs.wrappers.suites import ActionRepeat as ActionRepeatWrapper

AnyEnv = gymnasium.Env[Any, Any]  # what an env observes and takes differs from env to env

FlatObsWrapper = FlattenObservation

__all__ = [
    "ActionRepeatWrapper",
    "ClipRewardWrapper",
    "EpisodicLifeWrapper",
    "EvalEpisodeReturnWrapper",
    "FireResetWrapper",
    "FlatObsWrapper",
    "FrameStackWrapper",
    "MaxAndSkipWrapper",
    "NoopResetWrapper",
    "ObsNormWrapper",
    "ObsTransposeWrapper",
    "RewardNormWrapper",
    "ScaledFloatFrameWrapper",
    "TimeLimitWrapper",
    "WarpFrameWrapper",
]


def ClipRewardWrapper(env: AnyEnv) -> AnyEnv:  # noqa: N802  # DI-engine's name, as all here
    """Clip rewards to -1 .. 1; the reported return stays the env's own."""
    return wrap(env, ["clip_reward"])


def FrameStackWrapper(env: AnyEnv, n_frames: int = 4) -> AnyEnv:  # noqa: N802
    """Observe the last `n_frames` observations, stacked along a new first axis."""
    return wrap(env, [{"type": "frame_stack", "stack_size": n_frames}])


def ObsNormWrapper(env: AnyEnv) -> AnyEnv:  # noqa: N802
    """Bring observations to mean 0 and variance 1 by running statistics."""
    return wrap(env, ["obs_norm"])


def RewardNormWrapper(env: AnyEnv, reward_discount: float = 0.99) -> AnyEnv:  # noqa: N802
    """Divide rewards by the deviation of the return discounted by `reward_discount`."""
    return wrap(env, [{"type": "reward_norm", "gamma": reward_discount}])


def TimeLimitWrapper(env: AnyEnv, max_limit: int) -> AnyEnv:  # noqa: N802
    """Truncate episodes after `max_limit` steps."""
    return wrap(env, [{"type": "time_limit", "max_episode_steps": max_limit}])
