"""Atari's memory, or the vectors of any gymnasium env, observed in part; env type 'pomdp'."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from ding_like.envs.gymnasium_env import DiEngineGymEnv
from ding_like.envs.spaces import AnyEnv
from ding_like.envs.wrappers.common import EpisodeReturn
from ding_like.errors import ConfigError
from ding_like.types import Array, EnvAction, EnvObs, Info
from ding_like.utils.bounds import FROM_0, FROM_1, SHARE, Bounds
from ding_like.utils.log import one_time_info
from ding_like.utils.registries import ENV_REGISTRY


class PartialObservation(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that shows an env's vector disturbed, float32, and its reward too; bytes are scaled to [0, 1] before.

    In every step each number gets normal noise of deviation `noise_scale` and is then lost (0) with probability
    `zero_p`; with probability `duplicate_p` a step shows the observation of the last one again. Rewards get normal
    noise of deviation `reward_noise`; `info["eval_episode_return"]` is the sum of the env's own. All draws are the
    env's own generator's. Raises ConfigError for observations that are no vector.
    """

    def __init__(
        self, env: AnyEnv, *, noise_scale: float = 0.01, zero_p: float = 0.2, reward_noise: float = 0.01,
        duplicate_p: float = 0.2,
    ) -> None:  # fmt: skip
        space = env.observation_space
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            raise ConfigError(f"partial observation is of vectors, the env has {space}: flatten it first.")
        super().__init__(EpisodeReturn(env))
        self._noise, self._zero_p, self._reward_noise, self._duplicate_p = (
            noise_scale,
            zero_p,
            reward_noise,
            duplicate_p,
        )
        self._scale = np.float32(1 / 255) if space.dtype == np.uint8 else np.float32(1)
        self.observation_space = spaces.Box(-np.inf, np.inf, space.shape, np.float32)
        self._shown: Array = np.zeros(space.shape, np.float32)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[EnvObs, Info]:
        """Begin an episode."""
        obs, info = self.env.reset(seed=seed, options=options)
        self._shown = self._disturbed(obs)
        return self._shown, info

    def step(self, action: EnvAction) -> tuple[EnvObs, float, bool, bool, Info]:
        """Step the env and show what is left of it."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        rng = self.unwrapped.np_random
        if rng.random() >= self._duplicate_p:
            self._shown = self._disturbed(obs)
        noisy = float(reward) + self._reward_noise * float(rng.standard_normal())
        return self._shown.copy(), noisy, terminated, truncated, info

    def _disturbed(self, obs: EnvObs) -> Array:
        rng = self.unwrapped.np_random
        seen = self._scale * np.asarray(obs, np.float32)
        seen = seen + np.float32(self._noise) * rng.standard_normal(seen.shape, dtype=np.float32)
        shown: Array = seen * (rng.random(seen.shape) >= self._zero_p)
        return shown


@ENV_REGISTRY.register("pomdp")
class PomdpEnv(DiEngineGymEnv):
    """Env by its id, observed in part: of an Atari game the 128 bytes of its memory, of others their vector.

    `frame_stack` lays the last observations side by side, [frame_stack * O], as a memory. Evaluations are disturbed as
    training is, and reported returns are the env's own.
    """

    config = {
        **DiEngineGymEnv.config,
        "env_id": "ALE/Pong-v5",
        "pomdp": {"noise_scale": 0.01, "zero_p": 0.2, "reward_noise": 0.01, "duplicate_p": 0.2},
        "frame_stack": 4,
        "frame_skip": 4,  # of Atari: game frames for each action
        "use_ram": True,
        "warp_frame": False,
        "clip_reward": False,  # DI-engine's other name for rew_clip
    }
    config_bounds: ClassVar[Mapping[str, Bounds]] = {
        **dict.fromkeys(("pomdp.noise_scale", "pomdp.reward_noise"), FROM_0),
        **dict.fromkeys(("pomdp.zero_p", "pomdp.duplicate_p"), SHARE),
        **dict.fromkeys(("frame_stack", "frame_skip"), FROM_1),
    }
    without_effect: ClassVar[dict[str, str]] = {
        **DiEngineGymEnv.without_effect,
        "warp_frame": "observations are vectors: there is no frame",
    }

    @classmethod
    def check_config(cls, cfg: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield (path, what is wrong) for every contradiction."""
        yield from super().check_config(cfg)
        if not cfg["use_ram"]:
            yield "use_ram", "is False; pictures of Atari games are create_config.env.type='atari'"

    @classmethod
    def translated(cls, cfg: Mapping[str, Any]) -> dict[str, Any]:
        """Return a section of type 'gymnasium' for the same env; 'Pong-ramNoFrameskip-v4' is 'PongNoFrameskip-v4'."""
        given = str({**cls.config, **cfg}["env_id"])
        same = given.replace("-ramNoFrameskip", "NoFrameskip")
        if same != given:
            one_time_info(f"env.env_id '{given}' is made as '{same}'")
        return super().translated({**cfg, "env_id": same})

    @classmethod
    def own_kwargs(cls, cfg: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the env's constructor."""
        is_atari = cfg["env_id"].startswith("ALE/") or "NoFrameskip" in cfg["env_id"]
        memory = {"obs_type": "ram", "frameskip": cfg["frame_skip"]} if is_atari else {}
        return {**memory, **super().own_kwargs(cfg)}

    @classmethod
    def key_wrappers(cls, cfg: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the wrappers that the keys of a whole section stand for, the innermost first."""
        disturbed = {"type": f"{__name__}:PartialObservation", **cfg["pomdp"]}
        clip = cfg["rew_clip"] or cfg["clip_reward"]
        own = super().key_wrappers({**cfg, "rew_clip": clip, "frame_stack": 0})
        stack = [{"type": "frame_stack", "stack_size": cfg["frame_stack"]}, {"type": "FlattenObservation"}]
        return [disturbed, *own, *(stack if cfg["frame_stack"] > 1 else [])]
