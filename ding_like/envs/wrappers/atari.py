"""Wrappers that prepare games played from pictures: all at once by 'atari', or step by step, as DI-engine's do."""

from __future__ import annotations

import importlib.util
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.wrappers import (
    AtariPreprocessing,
    GrayscaleObservation,
    MaxAndSkipObservation,
    ResizeObservation,
    TransformObservation,
)

from ding_like.envs.spaces import AnyEnv
from ding_like.envs.wrappers.common import clip_reward, frame_stack
from ding_like.errors import ConfigError, EnvError
from ding_like.types import EnvAction, EnvObs, Info
from ding_like.utils.imports import pip_line
from ding_like.utils.registries import ENV_WRAPPER_REGISTRY


@ENV_WRAPPER_REGISTRY.register("atari")
def atari(
    env: AnyEnv,
    stack_size: int = 4,
    *,
    noop_max: int = 30,
    frame_skip: int = 4,
    screen_size: int = 84,
    terminal_on_life_loss: bool = False,
    fire_reset: bool = False,
    clip_rewards: bool = True,
) -> AnyEnv:
    """Observe [stack_size, screen_size, screen_size] grey frames, uint8, of an Atari env made with frameskip=1.

    An episode begins with up to `noop_max` idle frames; an action lasts `frame_skip` frames, of which the last two are
    merged. `fire_reset` then presses FIRE where the game has it: Breakout waits for that. Rewards become their sign,
    while `info["eval_episode_return"]` sums the game's own. Sources: Mnih et al. 2015; Machado et al. 2018, who advise
    against `terminal_on_life_loss`.

    Raises EnvError without opencv, ConfigError for an env that is not Atari or skips frames itself.
    """
    if not hasattr(env.unwrapped, "ale"):
        raise ConfigError(f"the wrapper 'atari' is for Atari games such as env_id='ALE/Pong-v5', got {env}.")
    if frame_skip > 1 and getattr(env.unwrapped, "_frameskip", None) != 1:
        raise ConfigError(
            f"{env} skips frames itself, and the wrapper 'atari' would skip {frame_skip} of what is left; set "
            "env.kwargs=dict(frameskip=1)."
        )
    if importlib.util.find_spec("cv2") is None:
        raise EnvError(f"the wrapper 'atari' needs opencv; install it with: {pip_line('atari')}")
    env = AtariPreprocessing(
        env,
        noop_max=noop_max,
        frame_skip=frame_skip,
        screen_size=screen_size,
        terminal_on_life_loss=terminal_on_life_loss,
    )
    if fire_reset:
        env = FireReset(env)
    if clip_rewards:
        env = clip_reward(env)
    return frame_stack(env, stack_size)


@ENV_WRAPPER_REGISTRY.register("fire_reset")
class FireReset(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that presses FIRE once at an episode's begin, in games whose action 1 is FIRE."""

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[EnvObs, Info]:
        """Begin an episode, with the ball in play."""
        obs, info = self.env.reset(seed=seed, options=options)
        game: Any = self.env.unwrapped
        if game.get_action_meanings()[1:2] != ["FIRE"]:
            return obs, info
        obs, _, terminated, truncated, info = self.env.step(1)
        return self.env.reset(options=options) if terminated or truncated else (obs, info)


@ENV_WRAPPER_REGISTRY.register("noop_reset")
class NoopReset(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that begins each episode with 1 to `noop_max` steps of action 0, so that games do not all begin alike."""

    def __init__(self, env: AnyEnv, noop_max: int = 30) -> None:
        super().__init__(env)
        if noop_max < 1:
            raise ConfigError(f"noop_reset: noop_max is {noop_max}, expected 1 or more.")
        self._noop_max = noop_max

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[EnvObs, Info]:
        """Begin an episode and idle."""
        obs, info = self.env.reset(seed=seed, options=options)
        for _ in range(int(self.unwrapped.np_random.integers(1, self._noop_max + 1))):
            obs, _, terminated, truncated, info = self.env.step(0)
            if terminated or truncated:
                obs, info = self.env.reset(options=options)
        return obs, info


@ENV_WRAPPER_REGISTRY.register("episodic_life")
class EpisodicLife(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that ends an episode with each lost life of an Atari game; the game continues until it is over.

    A reset with a seed begins a new game as well. Managers seed the reset of an episode that begins
    `env.manager.reseed_after` steps after the last seeded one, 1,000 by default: with 0 a second life is never seen.
    """

    def __init__(self, env: AnyEnv) -> None:
        super().__init__(env)
        if not hasattr(env.unwrapped, "ale"):
            raise ConfigError(f"episodic_life is for Atari games such as env_id='ALE/Breakout-v5', got {env}.")
        self._game: Any = env.unwrapped
        self._lives = 0
        self._is_over = True

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[EnvObs, Info]:
        """Begin a new game after the last one's end, or with a seed; else continue with the next life."""
        if self._is_over or seed is not None:
            obs, info = self.env.reset(seed=seed, options=options)
        else:
            obs, _, terminated, truncated, info = self.env.step(0)  # out of the state in which the life was lost
            if terminated or truncated:
                obs, info = self.env.reset(options=options)
        self._is_over = False
        self._lives = self._game.ale.lives()
        return obs, info

    def step(self, action: EnvAction) -> tuple[EnvObs, SupportsFloat, bool, bool, Info]:
        """Step the game, and call a lost life the end."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._is_over = bool(terminated or truncated)
        lives = self._game.ale.lives()
        is_lost = lives < self._lives
        self._lives = lives
        return obs, reward, bool(terminated or is_lost), truncated, info


@ENV_WRAPPER_REGISTRY.register("max_and_skip")
def max_and_skip(env: AnyEnv, skip: int = 4) -> AnyEnv:
    """Repeat each action for `skip` frames, and observe the brighter of the last two at every pixel."""
    return MaxAndSkipObservation(env, skip=skip)


@ENV_WRAPPER_REGISTRY.register("warp_frame")
def warp_frame(env: AnyEnv, size: int = 84) -> AnyEnv:
    """Show pictures [H, W, 3] in grey, [size, size] uint8; needs opencv."""
    return ResizeObservation(GrayscaleObservation(env), (size, size))


@ENV_WRAPPER_REGISTRY.register("scaled_float_frame")
def scaled_float_frame(env: AnyEnv) -> AnyEnv:
    """Show pictures of bytes as float32 from 0 to 1; our models do that themselves, with a quarter of the memory."""
    space = env.observation_space
    if not isinstance(space, gymnasium.spaces.Box) or space.dtype != np.uint8:
        raise ConfigError(f"scaled_float_frame takes pictures of uint8, the env has {space}.")
    scaled = gymnasium.spaces.Box(0.0, 1.0, space.shape, np.float32)
    return TransformObservation(env, lambda obs: np.asarray(obs, np.float32) / np.float32(255), scaled)
