"""Episodes as GIF files, written with pillow: the wrapper 'record_gif', and how an env is made so that it renders."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, SupportsFloat

import gymnasium
import numpy as np
from easydict import EasyDict

from ding_like.config import to_plain
from ding_like.envs.di_engine_style import as_gymnasium
from ding_like.envs.spaces import AnyEnv
from ding_like.errors import ConfigError, EnvError
from ding_like.types import Array, Config, EnvAction, EnvFn, EnvObs, Info
from ding_like.utils.files import atomic_write
from ding_like.utils.imports import pip_line
from ding_like.utils.registries import ENV_WRAPPER_REGISTRY

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
        again = with_pictures(self._make)
        if again is None and env.spec is not None:
            again = functools.partial(gymnasium.make, env.spec, render_mode="rgb_array")
        if again is None:
            raise EnvError(
                f"{env} cannot be recorded: it was made with render_mode={env.render_mode!r}, and nothing tells how "
                "to make it with another. Make it with render_mode='rgb_array', or give it a method "
                "enable_save_replay(path)."
            )
        env.close()
        return as_gymnasium(again())


def with_pictures(make: EnvFn) -> EnvFn | None:
    """Return what makes the same env with `render_mode="rgb_array"` in its config, None if `make` shows no config.

    It is shown by a `functools.partial` of a function of the config, and by an `EnvFactory`.
    """
    if isinstance(make, functools.partial):
        cfg = make.keywords.get("cfg", make.args[0] if make.args else None)
        func: Callable[[Any], Any] | None = make.func
    else:
        cfg, func = getattr(make, "cfg", None), getattr(make, "env_fn", None)
    if not isinstance(cfg, Mapping) or func is None:
        return None
    return functools.partial(func, rendering(cfg))


def rendering(cfg: Config) -> EasyDict:
    """Return an env's config with `render_mode="rgb_array"` where what makes the env reads it."""
    own = EasyDict(to_plain(cfg))
    own.render_mode = "rgb_array"
    # A class by import path is given `kwargs` and nothing else.
    if ":" in own.get("type", ""):
        own.kwargs = EasyDict(own.get("kwargs", {}), render_mode="rgb_array")
    return own
