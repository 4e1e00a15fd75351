"""Run vector envs of libraries that bring their own envs (envpool, ALE) from the env configs of all managers."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from ding_like.envs.factory import config_of, env_class
from ding_like.envs.spaces import Space
from ding_like.envs.wrappers.atari import atari
from ding_like.errors import ConfigError, EnvError
from ding_like.types import Array
from ding_like.utils.extras import pip_line

# What an env observes and takes differs from env to env: hence Any in the signatures of this file.


def import_library(package: str, *, manager: str, extra: str) -> ModuleType:
    """Return a package that only one manager needs. Raises EnvError with the line that installs it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise EnvError(
            f"env_manager type '{manager}' needs the package {package.partition('.')[0]} ({error}); install it with: "
            f"{pip_line(extra)}"
        ) from error


def native_config(env_fn: Sequence[Callable[[], Any]], *, manager: str) -> dict[str, Any]:
    """Return the config that all lanes share: `env_id`, `kwargs`, `wrappers`, `max_episode_steps`.

    Raises ConfigError where a library that makes its own envs cannot make these.
    """
    first, *others = [config_of(make) for make in env_fn]
    read = None if first is None else getattr(env_class(first), "plain_config", None)
    config: dict[str, Any] | None = None if read is None else read(first)
    if config is None or any(other != first for other in others):
        raise ConfigError(
            f"env_manager type '{manager}' makes its envs itself, from an env_id: it takes envs of type 'gymnasium', "
            "with one config for all of them. Use manager type 'subprocess' or 'base' for other envs."
        )
    if config["render_mode"] is not None:
        raise ConfigError(f"env_manager type '{manager}' cannot render; leave env.render_mode at None.")
    return config


class AtariOptions(NamedTuple):
    """Hold how an Atari game is prepared, under the names of the wrapper 'atari' and of ALE."""

    stack_size: int
    noop_max: int
    frame_skip: int
    screen_size: int
    terminal_on_life_loss: bool
    fire_reset: bool
    clip_rewards: bool
    repeat_action_probability: float
    full_action_space: bool
    max_num_frames_per_episode: int


def atari_options(config: Mapping[str, Any], id_kwargs: Mapping[str, Any], *, manager: str) -> AtariOptions:
    """Read the wrapper 'atari' and the keyword arguments of a config; `id_kwargs` are those that its id stands for.

    Raises ConfigError for whatever a library that prepares frames itself would not do.
    """
    wrappers = [dict(wrapper) for wrapper in config["wrappers"]]
    if [wrapper.pop("type", None) for wrapper in wrappers] != ["atari"]:
        raise ConfigError(
            f"env_manager type '{manager}' prepares Atari frames itself, as the wrapper 'atari' does; set "
            f"env.wrappers=[dict(type='atari')], with its arguments, and no others. Got {list(config['wrappers'])}."
        )
    defaults = {
        name: parameter.default for name, parameter in inspect.signature(atari).parameters.items() if name != "env"
    }
    kwargs = {"max_num_frames_per_episode": 108_000, "full_action_space": False, **id_kwargs, **config["kwargs"]}
    frameskip = kwargs.pop("frameskip", 4)
    if frameskip != 1 and wrappers[0].get("frame_skip", defaults["frame_skip"]) > 1:
        raise ConfigError(
            f"{config['env_id']} skips frames itself ({frameskip}), and the wrapper 'atari' would skip some of what is "
            "left; set env.kwargs=dict(frameskip=1)."
        )
    if config["max_episode_steps"] is not None:  # counted in frames, as the game makes them
        kwargs["max_num_frames_per_episode"] = config["max_episode_steps"]
    given = {**defaults, **wrappers[0], **kwargs}
    unknown = sorted(set(given) - set(AtariOptions._fields))
    if unknown:
        raise ConfigError(
            f"env_manager type '{manager}' knows nothing of {', '.join(unknown)}; it takes "
            f"{', '.join(AtariOptions._fields)}. Use manager type 'subprocess' for more."
        )
    return AtariOptions(**given)


class NativeVectorEnv(VectorEnv[Any, Any, Any]):
    """Stand between a library's vector env and the manager; a sub-class steps and resets.

    With `clip_rewards` rewards become their sign, and `info["eval_episode_return"]` sums the game's own.
    """

    def __init__(
        self, num_envs: int, observation_space: Space, action_space: Space, mode: AutoresetMode, *, clip_rewards: bool
    ) -> None:
        self.num_envs = num_envs
        self.single_observation_space = observation_space
        self.single_action_space = action_space
        self.metadata = {"autoreset_mode": mode}
        self._clip_rewards = clip_rewards
        self._return = np.zeros(num_envs)

    def _rewarded(self, reward: Array, done: Array) -> tuple[Array, dict[str, Any]]:
        """Return what the policy is rewarded with, and an info with the returns of `done` lanes."""
        if not self._clip_rewards:
            return reward, {}
        self._return += reward
        info: dict[str, Any] = {}
        if done.any():
            info = {"eval_episode_return": self._return.copy(), "_eval_episode_return": done}
            self._return[done] = 0.0
        return np.sign(reward), info
