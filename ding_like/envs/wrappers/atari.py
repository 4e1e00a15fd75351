"""Prepare Atari games as the literature does."""

from __future__ import annotations

import importlib.util
from typing import Any

import gymnasium
from gymnasium.wrappers import AtariPreprocessing

from ding_like.envs.wrappers.standard import clip_reward, frame_stack
from ding_like.errors import ConfigError, EnvError
from ding_like.utils.extras import pip_line
from ding_like.utils.registries import ENV_WRAPPER_REGISTRY

AnyEnv = gymnasium.Env[Any, Any]  # what an env observes and takes differs from env to env


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


class FireReset(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Press FIRE once at an episode's begin, in games whose action 1 is FIRE."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, with the ball in play."""
        obs, info = self.env.reset(seed=seed, options=options)
        game: Any = self.env.unwrapped
        if game.get_action_meanings()[1:2] != ["FIRE"]:
            return obs, info
        obs, _, terminated, truncated, info = self.env.step(1)
        return self.env.reset(options=options) if terminated or truncated else (obs, info)
