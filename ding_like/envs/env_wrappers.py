"""DI-engine's `DingEnvWrapper`, and its wrappers by their names and arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import gymnasium
import numpy as np
from easydict import EasyDict
from gymnasium.wrappers import FlattenObservation

from ding_like.config import to_plain
from ding_like.envs.di_engine_style import SEED_LIMIT, BaseEnv, BaseEnvTimestep
from ding_like.envs.gymnasium_env import GymnasiumEnv
from ding_like.envs.spaces import AnyEnv
from ding_like.envs.wrappers import wrap
from ding_like.envs.wrappers.atari import (
    EpisodicLife,
    FireReset,
    NoopReset,
    max_and_skip,
    scaled_float_frame,
    warp_frame,
)
from ding_like.envs.wrappers.common import ActionRepeat, EpisodeReturn, obs_transpose
from ding_like.envs.wrappers.record_gif import RecordGif
from ding_like.errors import ConfigError, EnvError
from ding_like.types import Config, EnvAction, EnvObs, Section

# DI-engine's names of our wrappers' arguments.
_ARGUMENTS = {"n_frames": "stack_size", "reward_discount": "gamma", "max_limit": "max_episode_steps"}
_RETURN: dict[str, Any] = {"type": "eval_episode_return"}
_NAMES = ("default", "mujoco_default", "gym_hybrid_default", "atari_default")

# DI-engine's names of our wrappers; those with other arguments are functions below.
ActionRepeatWrapper = ActionRepeat
EpisodicLifeWrapper = EpisodicLife
EvalEpisodeReturnWrapper = EpisodeReturn
FireResetWrapper = FireReset
FlatObsWrapper = FlattenObservation
MaxAndSkipWrapper = max_and_skip
NoopResetWrapper = NoopReset
ObsTransposeWrapper = obs_transpose
ScaledFloatFrameWrapper = scaled_float_frame
WarpFrameWrapper = warp_frame


class DingEnvWrapper(BaseEnv):
    """DI-engine's style of a gymnasium env, given itself or by `cfg.env_id`: a `BaseEnv`.

    `cfg.env_wrapper` lists what goes around it, innermost first: functions that take an env, names of wrappers, or
    dicts with `type` and the wrapper's arguments, beside it or in `kwargs`; or it is the name of such a
    list, 'default' or another of `get_default_wrappers`. With `cfg.act_scale` continuous actions go from -1 to 1. With
    `cfg.env_id` the env is made from `cfg.kwargs`, `cfg.max_episode_steps` and `cfg.render_mode`; the other keys are
    the caller's own.

    A timestep's reward is float32 [1]. At an episode's end `info` holds `eval_episode_return` and
    `TimeLimit.truncated`, so that the two ways to end stay apart; `gymnasium_env` is the env itself, with both flags.
    """

    def __init__(
        self,
        env: AnyEnv | None = None,
        cfg: Config | None = None,
        seed_api: bool = True,  # a place of DI-engine's signature: gymnasium seeds through reset
        caller: str = "collector",  # or "evaluator": `env_wrapper='atari_default'` differs
        is_gymnasium: bool = True,  # likewise: there is nothing but gymnasium here
    ) -> None:
        self._cfg = EasyDict(to_plain(dict(cfg or {})))
        self._caller = caller
        self._given = env
        if env is not None and not isinstance(env, gymnasium.Env):
            raise EnvError(
                f"DingEnvWrapper got {env!r}, expected a gymnasium.Env; for a config write DingEnvWrapper(cfg=...)."
            )
        self._replay_path: str | None = None
        self._seed: int | None = None
        self._rng: np.random.Generator | None = None
        self._env = self._make(self._cfg.get("render_mode"))
        self._observation_space = self._env.observation_space
        self._action_space = self._env.action_space
        self._reward_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def _make(self, render_mode: str | None) -> AnyEnv:
        env = self._given
        if env is None:
            keys = ("env_id", "kwargs", "max_episode_steps")
            env = GymnasiumEnv({**{k: self._cfg[k] for k in keys if k in self._cfg}, "render_mode": render_mode})
        wrappers = self._cfg.get("env_wrapper") or ()
        if isinstance(wrappers, str):
            is_default = wrappers.endswith("default")
            wrappers = get_default_wrappers(wrappers, caller=self._caller) if is_default else [wrappers]
        for spec in [wrappers] if callable(wrappers) else wrappers:
            env = _wrapped(env, spec)
        if self._cfg.get("act_scale") and isinstance(env.action_space, gymnasium.spaces.Box):
            env = wrap(env, ["rescale_action"])
        return env

    @property
    def gymnasium_env(self) -> AnyEnv:
        """The gymnasium env inside, wrapped as the config asks for."""
        return self._env

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        """Start the next reset from `seed`, and later ones from numbers drawn from it, or from it again."""
        self._seed = int(seed)
        self._rng = np.random.default_rng(self._seed) if dynamic_seed else None
        self._action_space.seed(self._seed)

    def reset(self, **reset_param: object) -> EnvObs:
        """Begin an episode and return its first observation; parameters reach the env as `options`.

        An env that was never seeded draws from its own generator.
        """
        seed = self._seed
        if self._rng is not None:
            self._seed = int(self._rng.integers(SEED_LIMIT))
        self._return = 0.0
        obs, _ = self._env.reset(seed=seed, options=reset_param or None)
        return obs

    def step(self, action: EnvAction) -> BaseEnvTimestep:
        """Step the env; a discrete action may be a number or an array of one."""
        if isinstance(self._action_space, gymnasium.spaces.Discrete):
            action = int(np.asarray(action).reshape(()))
        obs, reward, terminated, truncated, info = self._env.step(action)
        self._return += float(reward)
        done = bool(terminated or truncated)
        if done:
            is_cut = bool(truncated and not terminated)
            info = {"eval_episode_return": self._return, **info, "TimeLimit.truncated": is_cut}
        return BaseEnvTimestep(obs, np.array([reward], np.float32), done, info)

    def enable_save_replay(self, replay_path: str | None = None) -> None:
        """Write every episode from the next reset on as a GIF into the folder `replay_path`, by default ./video.

        An env that was made from `cfg.env_id` is recreated with `render_mode="rgb_array"` if it was not; one that was
        given must have it. Raises EnvError where it has not, or pillow is missing.
        """
        if self._replay_path is not None:
            raise EnvError(f"episodes are recorded already, to '{self._replay_path}'; make a new env for another path.")
        env = self._env
        if env.render_mode != "rgb_array" and self._given is None:
            env = self._make("rgb_array")
        path = replay_path or "./video"
        try:
            recording = RecordGif(env, path)
        except EnvError:
            if env is not self._env:
                env.close()
            raise
        if env is not self._env:
            self._env.close()
        self._env, self._replay_path = recording, path

    def render(self) -> Any:
        """Return what the env draws."""
        return self._env.render()

    def close(self) -> None:
        """Close the env."""
        self._env.close()

    def clone(self, caller: str = "collector") -> DingEnvWrapper:
        """Return a new wrapper of the same config. Raises EnvError for an env that was given as an object."""
        if self._given is not None:
            raise EnvError("an env that was given as an object cannot be cloned; give its id: cfg=dict(env_id=...).")
        return DingEnvWrapper(cfg=self._cfg, caller=caller)

    def __repr__(self) -> str:
        return f"DingEnvWrapper({self._env!r})"


def _wrapped(env: AnyEnv, spec: Callable[[AnyEnv], AnyEnv] | str | Mapping[str, Any]) -> AnyEnv:
    if isinstance(spec, str):
        return wrap(env, [{"type": spec}])
    if isinstance(spec, Mapping):
        flat = {**spec, **spec.get("kwargs", {})}
        return wrap(env, [{_ARGUMENTS.get(key, key): value for key, value in flat.items() if key != "kwargs"}])
    if not callable(spec):
        raise ConfigError(
            f"cfg.env_wrapper holds {spec!r}; expected a function, a wrapper's name or a dict with 'type'."
        )
    return spec(env)


def get_default_wrappers(env_wrapper_name: str, env_id: str | None = None, caller: str = "collector") -> list[Section]:
    """Return the wrappers of a named list, innermost first, as `DingEnvWrapper` takes them in `env_wrapper`.

    'default', 'mujoco_default' and 'gym_hybrid_default' report episodes' returns and leave the env as it is.
    'atari_default' is the preparation of Mnih et al. 2015: grey frames [4, 84, 84] of uint8, which our models scale
    themselves; what is learned from ends with a life and has clipped rewards, while a `caller` "evaluator" plays whole
    games for the game's own score. `env_id` is ignored: FIRE is pressed in the games that have it.
    Raises ConfigError for another name or caller.
    """
    if caller not in ("collector", "evaluator"):
        raise ConfigError(f"caller is {caller!r}; expected 'collector' or 'evaluator'.")
    if env_wrapper_name not in _NAMES:
        raise ConfigError(f"env_wrapper is {env_wrapper_name!r}; expected one of {', '.join(_NAMES)}, or a list.")
    if env_wrapper_name != "atari_default":
        return [dict(_RETURN)]
    is_training = caller == "collector"
    return [
        {"type": "noop_reset", "noop_max": 30},
        {"type": "max_and_skip", "skip": 4},
        dict(_RETURN),
        *([{"type": "episodic_life"}] if is_training else []),
        {"type": "fire_reset"},
        {"type": "warp_frame", "size": 84},
        *([{"type": "clip_reward"}] if is_training else []),
        {"type": "frame_stack", "stack_size": 4},
    ]


def ClipRewardWrapper(env: AnyEnv) -> AnyEnv:  # noqa: N802  # DI-engine's name, as all here
    """Clip rewards to -1 .. 1; the reported return stays the env's own."""
    return wrap(env, ["clip_reward"])


def FrameStackWrapper(env: AnyEnv, n_frames: int = 4) -> AnyEnv:  # noqa: N802
    """Observe the last `n_frames` observations, stacked along a new first axis."""
    return wrap(env, [{"type": "frame_stack", "stack_size": n_frames}])


def ObsNormWrapper(env: AnyEnv) -> AnyEnv:  # noqa: N802
    """Bring observations to mean 0 and variance 1 by running statistics."""
    return wrap(env, ["obs_norm"])


def RewardNormWrapper(env: AnyEnv, reward_discount: float = 0.99) -> AnyEnv:  # noqa: N802
    """Divide rewards by the deviation of the return discounted by `reward_discount`."""
    return wrap(env, [{"type": "reward_norm", "gamma": reward_discount}])


def TimeLimitWrapper(env: AnyEnv, max_limit: int) -> AnyEnv:  # noqa: N802
    """Truncate episodes after `max_limit` steps."""
    return wrap(env, [{"type": "time_limit", "max_episode_steps": max_limit}])


def script_env(**kwargs: object) -> NoReturn:
    """Raise EnvError: only the script itself can make its envs."""
    raise EnvError(
        "this config was compiled from classes by a script that makes its envs itself, so they cannot be made from the "
        "config. Pass env_setting=(env_fn, collector env configs, evaluator env configs), or name the env: "
        "create_config.env=dict(type='gymnasium') and env.env_id."
    )
