"""Make an env whose episodes are recorded, whatever makes the env."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium

from ding_like.config import to_plain
from ding_like.envs.di_engine_style import as_gymnasium
from ding_like.envs.wrappers.record_gif import RecordGif
from ding_like.errors import EnvError

AnyEnv = gymnasium.Env[Any, Any]  # what an env observes and takes differs from env to env


class RecordedEnv:
    """Make the env that `make` makes, with a GIF of each episode in `folder`; can be pickled if `make` can.

    An env that has `enable_save_replay`, as DI-engine's have, records itself. Another that does not render RGB arrays
    is made again with `render_mode="rgb_array"`: from its config, where `make` is a partial function of one, or by its
    gymnasium id. Raises EnvError where none of that helps.
    """

    def __init__(self, make: Callable[[], Any], folder: str) -> None:
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


def with_pictures(make: Callable[[], Any]) -> Callable[[], Any] | None:
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


def rendering(cfg: Mapping[str, Any]) -> Any:
    """Return an env's config with `render_mode="rgb_array"` where what makes the env reads it."""
    from easydict import EasyDict

    own = EasyDict(to_plain(cfg))
    own.render_mode = "rgb_array"
    # A class by import path is given `kwargs` and nothing else.
    if ":" in own.get("type", ""):
        own.kwargs = EasyDict(own.get("kwargs", {}), render_mode="rgb_array")
    return own
