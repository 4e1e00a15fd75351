"""Run envpool's envs, which step in C++ threads; env manager 'envpool'."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from gymnasium.vector import AutoresetMode

from ding_like.envs.manager.gym_vector import GymVectorEnvManager
from ding_like.envs.manager.native import NativeVectorEnv, atari_options, import_library, native_config
from ding_like.errors import ConfigError
from ding_like.types import Array
from ding_like.utils.bounds import FROM_0, Bounds
from ding_like.utils.registries import ENV_MANAGER_REGISTRY

# Ids of Atari games, and what an id of either kind stands for where the config does not say otherwise.
_ATARI_ID = re.compile(r"(?:ALE/(?P<v5>\w+)-v5|(?P<v4>\w+)NoFrameskip-v4)")
_V5, _V4 = dict(repeat_action_probability=0.25, frameskip=4), dict(repeat_action_probability=0.0, frameskip=1)


@ENV_MANAGER_REGISTRY.register("envpool")
class EnvPoolManager(GymVectorEnvManager):
    """Step the env that envpool has under `env_id`; `env.kwargs` are options of envpool's.

    Atari games are given as for other managers, by `env_id` 'ALE/Pong-v5' and the wrapper 'atari'. envpool seeds envs
    only when it makes them: a reset of all lanes recreates them. An ended lane goes on by itself, after a dummy step
    that never appears, so that a resumed run begins new episodes.
    """

    config = {
        **GymVectorEnvManager.config,
        # Threads that step envs; 0: as many as there are cores, at most one per env.
        "num_threads": 0,
    }
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "num_threads": FROM_0,
    }
    without_effect: ClassVar[Mapping[str, str]] = {
        **GymVectorEnvManager.without_effect,
        "reseed_after": "envpool seeds envs only when it makes them",
        "resume_replay_steps": "a resumed run begins new episodes, as envpool cannot bring single envs back",
    }

    _gives_fresh_memory = True

    def _make(self) -> NativeVectorEnv:
        config = native_config(self._env_fn, manager="envpool")
        library = import_library("envpool", manager="envpool", extra="envpool")
        task, options, clip_rewards = _task(config)
        known = library.list_all_envs()
        if task not in known:
            raise ConfigError(f"envpool has no env '{task}'. `envpool.list_all_envs()` names its {len(known)}.")
        num_threads = int(self._cfg["num_threads"]) or min(self.num_envs, os.cpu_count() or 1)
        make = functools.partial(
            library.make_gymnasium, task, num_envs=self.num_envs, num_threads=num_threads, **options
        )
        return _EnvPoolVectorEnv(make, self.num_envs, clip_rewards=clip_rewards)


def _task(config: Mapping[str, Any]) -> tuple[str, dict[str, Any], bool]:
    """Return (envpool's name for the env, envpool's options, whether rewards are clipped)."""
    game = _ATARI_ID.fullmatch(config["env_id"])
    if game is None:
        if config["wrappers"]:
            raise ConfigError(
                f"env_manager type 'envpool' makes its envs itself, without wrappers; got {list(config['wrappers'])}. "
                "Use manager type 'subprocess' or 'base' for wrapped envs."
            )
        limit = {} if config["max_episode_steps"] is None else {"max_episode_steps": config["max_episode_steps"]}
        return config["env_id"], {**config["kwargs"], **limit}, False
    atari = atari_options(config, _V5 if game["v5"] else _V4, manager="envpool")
    options = dict(
        stack_num=atari.stack_size,
        noop_max=atari.noop_max,
        frame_skip=atari.frame_skip,
        img_height=atari.screen_size,
        img_width=atari.screen_size,
        episodic_life=atari.terminal_on_life_loss,
        use_fire_reset=atari.fire_reset,
        reward_clip=False,
        repeat_action_probability=atari.repeat_action_probability,
        full_action_space=atari.full_action_space,
        max_episode_steps=-(-atari.max_num_frames_per_episode // atari.frame_skip),
    )
    return f"{game['v5'] or game['v4']}-v5", options, atari.clip_rewards


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep quiet that envpool's spaces are rounded to float32, which gymnasium warns of whenever one is made."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*precision lowered", category=UserWarning)
        yield


class _EnvPoolVectorEnv(NativeVectorEnv):
    """Recreate the envs where a seed is asked for."""

    def __init__(self, make: Callable[..., Any], num_envs: int, *, clip_rewards: bool) -> None:
        self._make = make
        self.closed = True  # until there is something to close: gymnasium 1.1 closes what it deletes
        with _quiet():
            try:
                self._pool = make(seed=0)
            except TypeError as error:
                raise ConfigError(f"envpool cannot make this env with env.kwargs: {error}.") from error
            self.closed = False
            spaces = self._pool.single_observation_space, self._pool.single_action_space
        super().__init__(num_envs, *spaces, AutoresetMode.NEXT_STEP, clip_rewards=clip_rewards)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset all lanes; with a seed, env i is recreated with seed + i."""
        self._return[:] = 0.0
        with _quiet():
            if seed is not None:
                self._pool.close()
                self._pool = self._make(seed=seed)
            return self._pool.reset()[0], {}

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        obs, reward, terminated, truncated, _ = self._pool.step(actions)
        reward, info = self._rewarded(reward, terminated | truncated)
        return obs, reward, terminated, truncated, info

    def close(self, **kwargs: Any) -> None:
        self._pool.close()

    def __repr__(self) -> str:
        return f"envpool({self.num_envs} envs)"
