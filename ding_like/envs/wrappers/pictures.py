"""Wrappers that prepare games played from pictures: all at once by 'atari', or step by step, as DI-engine's do."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, SupportsFloat

import gymnasium
import numpy as np
from easydict import EasyDict
from gymnasium.wrappers import (
    AtariPreprocessing,
    GrayscaleObservation,
    MaxAndSkipObservation,
    ResizeObservation,
    TransformObservation,
)

from ding_like.config import to_plain
from ding_like.envs.adapters import as_gymnasium
from ding_like.envs.spaces import AnyEnv
from ding_like.envs.wrappers.common import clip_reward, frame_stack
from ding_like.errors import ConfigError, EnvError
from ding_like.types import Array, Config, EnvAction, EnvFn, EnvObs, Info
from ding_like.utils.files import atomic_write
from ding_like.utils.registries import ENV_WRAPPER_REGISTRY, pip_line


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


# A longer episode keeps every other frame, and so on: memory and file stay small.
_MAX_FRAMES = 300
_DEFAULT_FPS = 30
# Viewers slow a film down that asks for less.
_MIN_FRAME_MS = 20


@ENV_WRAPPER_REGISTRY.register("record_gif")
class RecordGif(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that writes every episode to `{folder}/{name}_{number}.gif`, from 0; taken numbers are passed over.

    The env must have been made with `render_mode="rgb_array"`. An episode of over 300 frames is thinned out and plays
    as fast as a short one. One that is broken off is written by the next reset, or by `close`. With `episodes="cubic"`
    only the episodes 0, 1, 8, 27, ... are written, and every 1000th, as gymnasium's `RecordVideo` does. Raises EnvError
    without pillow and for an env that does not render RGB arrays.
    """

    def __init__(
        self, env: AnyEnv, folder: str | Path, name: str = "episode", *, episodes: Literal["all", "cubic"] = "all"
    ) -> None:
        super().__init__(env)
        if importlib.util.find_spec("PIL") is None:
            raise EnvError(f"recording episodes needs pillow; install it with: {pip_line('viz')}")
        if env.render_mode != "rgb_array":
            raise EnvError(
                f"recording needs render_mode='rgb_array', {env} was made with {env.render_mode!r}; set "
                "env.render_mode='rgb_array' in the config, or pass it to gymnasium.make."
            )
        self._folder = Path(folder)
        self._name = name
        self._number = 0
        if episodes not in ("all", "cubic"):
            raise ConfigError(f"record_gif: episodes is {episodes!r}; expected 'all' or 'cubic'.")
        self._takes_all = episodes == "all"
        self._episode = -1
        self._begin()

    def _begin(self) -> None:
        self._frames: list[Array] = []
        self._time = 0
        self._every = 1

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[EnvObs, Info]:
        """Begin the next film."""
        self._write()
        answer = self.env.reset(seed=seed, options=options)
        self._episode += 1
        self._shoot(is_last=False)
        return answer

    def step(self, action: EnvAction) -> tuple[EnvObs, SupportsFloat, bool, bool, Info]:
        """Step the env and take a frame."""
        answer = self.env.step(action)
        is_last = bool(answer[2] or answer[3])
        self._shoot(is_last=is_last)
        if is_last:
            self._write()
        return answer

    def close(self) -> None:
        """Write what is under way and close the env."""
        self._write()
        self.env.close()

    def _shoot(self, *, is_last: bool) -> None:
        if not self._takes_all and not _is_in_schedule(self._episode):
            return
        is_due = self._time % self._every == 0
        self._time += 1
        if not is_due and not is_last:
            return
        pixels: Any = self.env.render()
        if not isinstance(pixels, np.ndarray) or pixels.ndim != 3 or pixels.shape[2] != 3:
            raise EnvError(f"render() of {self.env} gave {type(pixels).__name__}, expected an RGB array [H, W, 3].")
        self._frames.append(np.array(pixels, np.uint8))
        if len(self._frames) > _MAX_FRAMES:
            self._frames = self._frames[::2]
            self._every *= 2

    def _write(self) -> None:
        frames, every = self._frames, self._every
        self._begin()
        if len(frames) < 2:
            return  # nothing happened yet
        from PIL import Image

        frame_ms = max(round(1000 * every / float(self.metadata.get("render_fps") or _DEFAULT_FPS)), _MIN_FRAME_MS)
        first, *rest = [Image.fromarray(frame) for frame in frames]
        with atomic_write(self._next_path()) as file:
            first.save(file, "GIF", save_all=True, append_images=rest, duration=frame_ms, loop=0)

    def _next_path(self) -> Path:
        while True:
            path = self._folder / f"{self._name}_{self._number}.gif"
            self._number += 1
            if not path.exists():
                return path


def _is_in_schedule(episode: int) -> bool:
    return round(episode ** (1 / 3)) ** 3 == episode if episode < 1000 else episode % 1000 == 0


class RecordedEnv:
    """Callable that makes the env of `make`, with a GIF of each episode in `folder`; can be pickled if `make` can.

    An env that has `enable_save_replay`, as DI-engine's have, records itself. Another that does not render RGB arrays
    is made again with `render_mode="rgb_array"`: from its config, where `make` is a partial function of one, or by its
    gymnasium id. Raises EnvError where none of that helps.
    """

    def __init__(self, make: EnvFn, folder: str) -> None:
        self._make = make
        self._folder = folder

    def __call__(self) -> AnyEnv:
        env = self._make()
        if callable(getattr(env, "enable_save_replay", None)):
            env.enable_save_replay(self._folder)
            return as_gymnasium(env)
        made = as_gymnasium(env)
        if made.render_mode != "rgb_array":
            made = self._made_to_render(made)
        return RecordGif(made, self._folder)

    def _made_to_render(self, env: AnyEnv) -> AnyEnv:
        (func, cfg), spec = recipe_of(self._make), env.spec
        if cfg is None and spec is None:
            raise EnvError(
                f"{env} cannot be recorded: it was made with render_mode={env.render_mode!r}, and nothing tells how "
                "to make it with another. Make it with render_mode='rgb_array', or give it a method "
                "enable_save_replay(path)."
            )
        env.close()
        if cfg is None:
            return gymnasium.make(spec, render_mode="rgb_array")  # type: ignore[arg-type]  # one of the two is there
        return as_gymnasium(func(rendering(cfg)))


def recipe_of(make: Any) -> tuple[Any, Config | None]:
    """Return (function, config) of a callable that shows them: a partial function of a config, or an `EnvFactory`.

    The config of any other is None.
    """
    func, cfg = getattr(make, "env_fn", None), getattr(make, "cfg", None)
    if isinstance(make, functools.partial):
        func, cfg = make.func, make.keywords.get("cfg", make.args[0] if make.args else None)
    return func, cfg if isinstance(cfg, Mapping) and func is not None else None


def rendering(cfg: Config) -> EasyDict:
    """Return an env's config with `render_mode="rgb_array"` where what makes the env reads it."""
    own = EasyDict(to_plain(cfg))
    own.render_mode = "rgb_array"
    # A class by import path is given `kwargs` and nothing else.
    if ":" in own.get("type", ""):
        own.kwargs = EasyDict(own.get("kwargs", {}), render_mode="rgb_array")
    return own
