"""Run Atari games in ALE's own vector env, which prepares frames in C++ threads; env manager 'ale_vector'."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium.vector import AutoresetMode

from ding_like.envs.gymnasium_env import env_spec
from ding_like.envs.manager.gym_vector import GymVectorEnvManager
from ding_like.envs.manager.native import (
    AtariOptions,
    NativeVectorEnv,
    atari_options,
    import_library,
    native_config,
)
from ding_like.errors import ConfigError
from ding_like.types import Array
from ding_like.utils.bounds import FROM_0, Bounds
from ding_like.utils.registries import ENV_MANAGER_REGISTRY


@ENV_MANAGER_REGISTRY.register("ale_vector")
class AleVectorEnvManager(GymVectorEnvManager):
    """Step an Atari game given by `env_id` and the wrapper 'atari', as other managers would, without opencv.

    Frames are scaled by ALE's own code, so that pixels differ a little from those of the wrapper. Lanes are seeded one
    by one and reset when their episode ends, so that a run can be resumed exactly.
    """

    # A seeded reset of ALE reloads the game: some 70 ms, in which all lanes wait. Every 5,000 steps that was a tenth of
    # the time of 8 lanes; the price of 30,000 is that a resumed run first plays for up to half a minute. The longest
    # episode, 108,000 frames, may follow: hence 60,000.
    config = {
        **GymVectorEnvManager.config,
        "reseed_after": 30_000,
        "resume_replay_steps": 60_000,
        # Threads that step games; 0: as many as there are cores.
        "num_threads": 0,
    }
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        "num_threads": FROM_0,
    }

    _gives_fresh_memory = True

    def _make(self) -> NativeVectorEnv:
        config = native_config(self._env_fn, manager="ale_vector")
        library = import_library("ale_py.vector_env", manager="ale_vector", extra="atari")
        id_kwargs = dict(env_spec(config["env_id"]).kwargs)
        game = id_kwargs.pop("game", None)
        if game is None:
            raise ConfigError(
                f"env_manager type 'ale_vector' plays Atari games such as env_id='ALE/Pong-v5', got "
                f"'{config['env_id']}'; use manager type 'base' or 'subprocess' for other envs."
            )
        options = atari_options(config, id_kwargs, manager="ale_vector")
        num_threads = int(self._cfg["num_threads"])
        return _AleVectorEnv(library.AtariVectorEnv, game, self.num_envs, num_threads, options)

    def _takes_seed_per_lane(self) -> bool:
        return True


class _AleVectorEnv(NativeVectorEnv):
    """Reset lanes by a mask and with seeds of their own; ALE's automatic reset never comes to act."""

    def __init__(
        self, make: Callable[..., Any], game: str, num_envs: int, num_threads: int, options: AtariOptions
    ) -> None:
        self._ale = make(
            game,
            num_envs,
            num_threads=num_threads,
            stack_num=options.stack_size,
            noop_max=options.noop_max,
            frameskip=options.frame_skip,
            img_height=options.screen_size,
            img_width=options.screen_size,
            episodic_life=options.terminal_on_life_loss,
            use_fire_reset=options.fire_reset,
            reward_clipping=False,
            repeat_action_probability=options.repeat_action_probability,
            full_action_space=options.full_action_space,
            max_num_frames_per_episode=options.max_num_frames_per_episode,
        )
        super().__init__(
            num_envs,
            self._ale.single_observation_space,
            self._ale.single_action_space,
            AutoresetMode.DISABLED,
            clip_rewards=options.clip_rewards,
        )

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Reset the lanes of `options["reset_mask"]`, or all; those with a seed from it. Others stay as they are."""
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        seeds = list(seed) if isinstance(seed, Sequence) else [None] * self.num_envs
        is_seeded = mask & np.array([own is not None for own in seeds])
        self._return[mask] = 0.0
        obs: Array
        if is_seeded.any():
            own = np.array([seeds[lane] for lane in np.flatnonzero(is_seeded)])
            obs, _ = self._ale.reset(seed=own, options={"reset_mask": is_seeded})
        if (mask & ~is_seeded).any():
            # ALE resets an ended lane with its next step, unless it was reset by then.
            obs, _ = self._ale.reset(options={"reset_mask": mask & ~is_seeded})
        return obs, {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        obs, reward, terminated, truncated, _ = self._ale.step(actions)
        reward, info = self._rewarded(reward, terminated | truncated)
        return obs, reward, terminated, truncated, info

    def close(self, **kwargs: Any) -> None:
        self._ale.close()

    def __repr__(self) -> str:
        return f"ALE's AtariVectorEnv({self.num_envs} envs)"
