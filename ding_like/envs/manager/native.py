"""Vector envs of libraries that step their own envs in C++ threads; env managers 'envpool' and 'ale_vector'.

They are made from the env configs of all managers: an `env_id`, and for Atari games the wrapper 'atari'.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from ding_like.envs.factory import config_of, env_class
from ding_like.envs.gymnasium_env import env_spec
from ding_like.envs.manager.gym_vector import GymVectorEnvManager
from ding_like.envs.wrappers.atari import atari
from ding_like.errors import ConfigError, EnvError
from ding_like.types import Array, EnvObs, Info, Section
from ding_like.utils.bounds import FROM_0, Bounds
from ding_like.utils.imports import pip_line
from ding_like.utils.registries import ENV_MANAGER_REGISTRY

# What an env observes and takes differs from env to env: hence Any in the signatures of this file.

# Ids of Atari games, and the default arguments of either kind.
_ATARI_ID = re.compile(r"(?:ALE/(?P<v5>\w+)-v5|(?P<v4>\w+)NoFrameskip-v4)")
_V5, _V4 = dict(repeat_action_probability=0.25, frameskip=4), dict(repeat_action_probability=0.0, frameskip=1)

# Arguments of the wrapper 'atari' and of the game -> what both libraries call them; the others differ.
_ARGUMENTS = {
    "stack_size": "stack_num",
    "noop_max": "noop_max",
    "screen_size": "img_height",
    "terminal_on_life_loss": "episodic_life",
    "fire_reset": "use_fire_reset",
    "repeat_action_probability": "repeat_action_probability",
    "full_action_space": "full_action_space",
}


class NativeManager(GymVectorEnvManager):
    """Manager of a library's vector env, in which all lanes have one config and nothing is rendered."""

    config = {
        **GymVectorEnvManager.config,
        # Threads that step envs; 0: as many as there are cores.
        "num_threads": 0,
    }
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "num_threads": FROM_0,
    }
    name: ClassVar[str]
    _gives_fresh_memory = True

    def _shared_config(self) -> Section:
        """Return the config of all lanes: `env_id`, `kwargs`, `wrappers`, `max_episode_steps`.

        Raises ConfigError where a library that makes its own envs cannot make these.
        """
        first, *others = [config_of(make) for make in self._env_fn]
        read = None if first is None else getattr(env_class(first), "plain_config", None)
        config: dict[str, Any] | None = None if read is None else read(first)
        if config is None or any(other != first for other in others):
            raise ConfigError(
                f"env_manager type '{self.name}' makes its envs itself, from an env_id: it takes envs of type "
                "'gymnasium', with one config for all of them. Use manager type 'subprocess' or 'base' for other envs."
            )
        if config["render_mode"] is not None:
            raise ConfigError(f"env_manager type '{self.name}' cannot render; leave env.render_mode at None.")
        return config

    def _library(self, package: str, extra: str) -> ModuleType:
        """Return the package. Raises EnvError with the line that installs it."""
        try:
            return importlib.import_module(package)
        except ImportError as error:
            raise EnvError(
                f"env_manager type '{self.name}' needs the package {package.partition('.')[0]} ({error}); install it "
                f"with: {pip_line(extra)}"
            ) from error

    def _atari_options(
        self, config: Mapping[str, Any], id_kwargs: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return (options that both libraries call alike, the others under the names of the wrapper 'atari' and ALE).

        `id_kwargs` are the default arguments of the id. Raises ConfigError for settings that a library which prepares
        frames itself does not support.
        """
        wrappers = [dict(wrapper) for wrapper in config["wrappers"]]
        if [wrapper.pop("type", None) for wrapper in wrappers] != ["atari"]:
            raise ConfigError(
                f"env_manager type '{self.name}' prepares Atari frames itself, as the wrapper 'atari' does; set "
                f"env.wrappers=[dict(type='atari')], with its arguments, and no others. Got {list(config['wrappers'])}."
            )
        defaults = {
            name: parameter.default for name, parameter in inspect.signature(atari).parameters.items() if name != "env"
        }
        kwargs = {"max_num_frames_per_episode": 108_000, "full_action_space": False, **id_kwargs, **config["kwargs"]}
        frameskip = kwargs.pop("frameskip", 4)
        if frameskip != 1 and wrappers[0].get("frame_skip", defaults["frame_skip"]) > 1:
            raise ConfigError(
                f"{config['env_id']} skips frames itself ({frameskip}), and the wrapper 'atari' would skip some of "
                "what is left; set env.kwargs=dict(frameskip=1)."
            )
        if config["max_episode_steps"] is not None:  # counted in frames, as the game makes them
            kwargs["max_num_frames_per_episode"] = config["max_episode_steps"]
        given = {**defaults, **wrappers[0], **kwargs}
        known = list(dict.fromkeys([*defaults, *_ARGUMENTS, "max_num_frames_per_episode"]))
        if unknown := sorted(set(given) - set(known)):
            raise ConfigError(
                f"env_manager type '{self.name}' knows nothing of {', '.join(unknown)}; it takes {', '.join(known)}. "
                "Use manager type 'subprocess' for more."
            )
        shared = {theirs: given.pop(name) for name, theirs in _ARGUMENTS.items()}
        return {**shared, "img_width": shared["img_height"]}, given


class NativeVectorEnv(VectorEnv[Any, Any, Any]):
    """Adapter of a library's vector env; a sub-class resets.

    With `clip_rewards` rewards become their sign, and `info["eval_episode_return"]` sums the game's own.
    """

    def __init__(self, pool: Any, num_envs: int, mode: AutoresetMode, *, clip_rewards: bool) -> None:
        self._pool = pool
        self.num_envs = num_envs
        self.single_observation_space = pool.single_observation_space
        self.single_action_space = pool.single_action_space
        self.metadata = {"autoreset_mode": mode}
        self._clip_rewards = clip_rewards
        self._return = np.zeros(num_envs)

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Step all envs."""
        obs, reward, terminated, truncated, _ = self._pool.step(actions)
        info: dict[str, Any] = {}
        if self._clip_rewards:
            self._return += reward
            reward = np.sign(reward)
            done = terminated | truncated
            if done.any():
                info = {"eval_episode_return": self._return.copy(), "_eval_episode_return": done}
                self._return[done] = 0.0
        return obs, reward, terminated, truncated, info

    def close(self, **kwargs: Any) -> None:
        self._pool.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__.strip('_')}({self.num_envs} envs)"


@ENV_MANAGER_REGISTRY.register("envpool")
class EnvPoolManager(NativeManager):
    """Manager of the env that envpool has under `env_id`; `env.kwargs` are options of envpool's.

    Atari games are given as for other managers, by `env_id` 'ALE/Pong-v5' and the wrapper 'atari'. envpool seeds envs
    only when it makes them: a reset of all lanes recreates them. An ended lane resets itself, after a dummy step
    that never appears, so that a resumed run begins new episodes.
    """

    without_effect: ClassVar[Mapping[str, str]] = {
        **GymVectorEnvManager.without_effect,
        "reseed_after": "envpool seeds envs only when it makes them",
        "resume_replay_steps": "a resumed run begins new episodes, as envpool cannot bring single envs back",
    }
    name = "envpool"

    def _make(self) -> NativeVectorEnv:
        config = self._shared_config()
        library = self._library("envpool", extra="envpool")
        task, options, clip_rewards = self._task(config)
        known = library.list_all_envs()
        if task not in known:
            raise ConfigError(f"envpool has no env '{task}'. `envpool.list_all_envs()` names its {len(known)}.")
        options["num_threads"] = int(self._cfg["num_threads"]) or min(self.num_envs, os.cpu_count() or 1)

        def make(seed: int) -> Any:
            return library.make_gymnasium(task, num_envs=self.num_envs, seed=seed, **options)

        return _EnvPool(make, self.num_envs, clip_rewards=clip_rewards)

    def _task(self, config: Mapping[str, Any]) -> tuple[str, dict[str, Any], bool]:
        """Return (envpool's name for the env, envpool's options, whether rewards are clipped)."""
        game = _ATARI_ID.fullmatch(config["env_id"])
        if game is None:
            if config["wrappers"]:
                raise ConfigError(
                    f"env_manager type 'envpool' makes its envs itself, without wrappers; got "
                    f"{list(config['wrappers'])}. Use manager type 'subprocess' or 'base' for wrapped envs."
                )
            limit = {} if config["max_episode_steps"] is None else {"max_episode_steps": config["max_episode_steps"]}
            return config["env_id"], {**config["kwargs"], **limit}, False
        options, own = self._atari_options(config, _V5 if game["v5"] else _V4)
        options.update(
            frame_skip=own["frame_skip"],
            reward_clip=False,
            max_episode_steps=-(-own["max_num_frames_per_episode"] // own["frame_skip"]),
        )
        return f"{game['v5'] or game['v4']}-v5", options, own["clip_rewards"]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide that envpool's spaces are rounded to float32, which gymnasium warns of whenever one is made."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*precision lowered", category=UserWarning)
        yield


class _EnvPool(NativeVectorEnv):
    """envpool's envs, recreated where a seed is asked for."""

    def __init__(self, make: Callable[[int], Any], num_envs: int, *, clip_rewards: bool) -> None:
        self._make = make
        self.closed = True  # until there is something to close: gymnasium 1.1 closes what it deletes
        with _quiet():
            try:
                pool = make(0)
            except TypeError as error:
                raise ConfigError(f"envpool cannot make this env with env.kwargs: {error}.") from error
            self.closed = False
            super().__init__(pool, num_envs, AutoresetMode.NEXT_STEP, clip_rewards=clip_rewards)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[EnvObs, Info]:
        """Reset all lanes; with a seed, env i is recreated with seed + i."""
        self._return[:] = 0.0
        with _quiet():
            if seed is not None:
                self._pool.close()
                self._pool = self._make(seed)
            return self._pool.reset()[0], {}


@ENV_MANAGER_REGISTRY.register("ale_vector")
class AleVectorEnvManager(NativeManager):
    """Manager of an Atari game given by `env_id` and the wrapper 'atari', as for other managers, without opencv.

    Frames are scaled by ALE's own code, so that pixels differ a little from those of the wrapper. Lanes are seeded one
    by one and reset when their episode ends, so that a run can be resumed exactly.
    """

    # A seeded reset of ALE reloads the game: some 70 ms, in which all lanes wait. Every 5,000 steps that was a tenth of
    # the time of 8 lanes; the price of 30,000 is that a resumed run first plays for up to half a minute. The longest
    # episode, 108,000 frames, may follow: hence 60,000.
    config = {**NativeManager.config, "reseed_after": 30_000, "resume_replay_steps": 60_000}
    name = "ale_vector"

    def _make(self) -> NativeVectorEnv:
        config = self._shared_config()
        library = self._library("ale_py.vector_env", extra="atari")
        id_kwargs = dict(env_spec(config["env_id"]).kwargs)
        game = id_kwargs.pop("game", None)
        if game is None:
            raise ConfigError(
                f"env_manager type 'ale_vector' plays Atari games such as env_id='ALE/Pong-v5', got "
                f"'{config['env_id']}'; use manager type 'base' or 'subprocess' for other envs."
            )
        options, own = self._atari_options(config, id_kwargs)
        pool = library.AtariVectorEnv(
            game,
            self.num_envs,
            num_threads=int(self._cfg["num_threads"]),
            frameskip=own["frame_skip"],
            reward_clipping=False,
            max_num_frames_per_episode=own["max_num_frames_per_episode"],
            **options,
        )
        return _AleVector(pool, self.num_envs, AutoresetMode.DISABLED, clip_rewards=own["clip_rewards"])

    def _takes_seed_per_lane(self) -> bool:
        return True


class _AleVector(NativeVectorEnv):
    """ALE's vector env, reset by a mask and with seeds of the lanes; its automatic reset never takes place."""

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Info | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Reset the lanes of `options["reset_mask"]`, or all; those with a seed from it. Others stay as they are."""
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        seeds = list(seed) if isinstance(seed, Sequence) else [None] * self.num_envs
        is_seeded = mask & np.array([own is not None for own in seeds])
        self._return[mask] = 0.0
        obs: Array
        if is_seeded.any():
            own = np.array([seeds[lane] for lane in np.flatnonzero(is_seeded)])
            obs, _ = self._pool.reset(seed=own, options={"reset_mask": is_seeded})
        if (mask & ~is_seeded).any():
            # ALE resets an ended lane with its next step, unless it was reset by then.
            obs, _ = self._pool.reset(options={"reset_mask": mask & ~is_seeded})
        return obs, {}
