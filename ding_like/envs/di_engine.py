"""Env managers under DI-engine's names and with its interface: dicts by env id.

Collectors and evaluators take them as they take ours: they step the `array_manager` inside, so that a script pays for
dicts only where it steps envs itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NoReturn, TypeVar

import gymnasium
import numpy as np
from easydict import EasyDict
from gymnasium.wrappers import FlattenObservation

from ding_like.config import to_plain
from ding_like.config.di_engine import LEGACY_KEYS, reason_of
from ding_like.config.report import suggestion
from ding_like.data.batch import copy_obs, map_obs
from ding_like.envs.di_engine_style import SEED_LIMIT, BaseEnv, BaseEnvTimestep
from ding_like.envs.gymnasium_env import GymnasiumEnv
from ding_like.envs.manager.base import NO_LANES, ArrayEnvManager
from ding_like.envs.spaces import AnyEnv, Space
from ding_like.envs.wrappers import wrap
from ding_like.envs.wrappers.common import ActionRepeat, EpisodeReturn, ObsNorm, clip_reward, obs_transpose
from ding_like.envs.wrappers.pictures import (
    EpisodicLife,
    FireReset,
    NoopReset,
    RecordedEnv,
    RecordGif,
    max_and_skip,
    scaled_float_frame,
    warp_frame,
)
from ding_like.errors import ConfigError, EnvError
from ding_like.types import Array, Config, EnvAction, EnvFn, EnvObs, Section, StepBatch
from ding_like.utils.log import one_time_warning
from ding_like.utils.registries import ENV_MANAGER_REGISTRY

# What an env observes, takes and is configured by differs from env to env: hence Any in this file.
ResetParam = Mapping[int, Mapping[str, Any] | None]
Self = TypeVar("Self", bound="BaseEnvManager")

# DI-engine's key -> ours; None, which is no deadline there, leaves ours at its default.
_RENAMED = {"step_timeout": "step_timeout_s", "reset_timeout": "reset_timeout_s", "connect_timeout": "launch_timeout_s"}
# Keys that name the manager's class.
_NAMES = frozenset(("type", "import_names", "cfg_type"))


class BaseEnvManager:
    """Manager of envs in this process, in DI-engine's way: `ready_obs`, `step({id: action})` and `done`.

    `env_fn` are callables that make one env each: gymnasium envs or DI-engine's. `cfg` may hold DI-engine's keys and
    those of the env manager 'base'; without `auto_reset` an env whose episode has ended waits for `reset`.

    An env takes part in `episode_num` episodes, then it is done. A timestep's `obs` is the true next observation, its
    reward an array [1]; at an episode's end `info["eval_episode_return"]` holds the sum of rewards, unless the env
    sets it itself. A timestep with `info["abnormal"]` means that the env broke and its episode is void.
    Raises ConfigError for other keys.
    """

    # The name of what it is made of, in create_config.env_manager.
    manager_type: ClassVar[str] = "base"

    @classmethod
    def default_config(cls) -> EasyDict:
        """Return the defaults, with `cfg_type` naming the class."""
        own = _array_class(cls.manager_type).config
        return EasyDict({"episode_num": math.inf, "auto_reset": True, **own}, cfg_type=f"{cls.__name__}Dict")

    def __init__(self, env_fn: Sequence[EnvFn], cfg: Config | None = None) -> None:
        given = {"auto_reset": True, "episode_num": math.inf, **(cfg or {})}
        self._env_fn = list(env_fn)
        self._array_cfg = _array_config(self.manager_type, given)
        self._auto_reset, self._episode_num = bool(given["auto_reset"]), given["episode_num"]
        self._seeding: tuple[int, bool] | None = None
        self._made: ArrayEnvManager | None = None
        self._games: ArrayEnvManager | None = None
        self._finished = np.zeros(len(env_fn), np.int64)
        self._return = np.zeros(len(env_fn))
        self._seeds: dict[int, int] = {}  # for the next reset of these envs
        self._waits_for_reset = np.zeros(len(env_fn), bool)
        self._is_launched = False

    @property
    def array_manager(self) -> ArrayEnvManager:
        """The manager that collectors and evaluators step, made on first use: `games` may take its place until then."""
        if self._made is None:
            self._made = self._make(self.manager_type, self._array_cfg)
        return self._made

    @property
    def env_num(self) -> int:
        return len(self._return)

    @property
    def observation_space(self) -> Space:
        return self.array_manager.observation_space

    @property
    def action_space(self) -> Space:
        return self.array_manager.action_space

    @property
    def closed(self) -> bool:
        return self._made is not None and self._made.closed

    @property
    def done(self) -> bool:
        """Whether every env has had its episodes."""
        return bool((self._finished >= self._episode_num).all())

    @property
    def ready_obs(self) -> dict[int, EnvObs]:
        """{env id: observation} of the envs that wait for an action; empty when `done`."""
        if self.done or self._waits_for_reset.all():
            return {}
        while not len(waiting := self._waiting()):
            # No env takes an action yet, in a dummy autoreset step for instance: step the envs on.
            self.array_manager.step(NO_LANES, NO_LANES)
        obs = copy_obs(self.array_manager.obs)
        return {int(lane): map_obs(itemgetter(lane), obs) for lane in waiting}

    def _waiting(self) -> Array:
        is_open = (self._finished < self._episode_num) & ~self._waits_for_reset
        return np.flatnonzero(self.array_manager.ready & is_open)

    @property
    def ready_obs_id(self) -> list[int]:
        """The ids of `ready_obs`."""
        return [] if self.done else self._waiting().tolist()

    def step(self, actions: Mapping[int, EnvAction]) -> dict[int, BaseEnvTimestep]:
        """Step the envs in `actions`, which must be among `ready_obs`."""
        over = [index for index in actions if self._finished[index] >= self._episode_num]
        if over:
            raise EnvError(f"envs {over} have had their {self._episode_num} episodes; step only envs of ready_obs.")
        lanes = np.array(sorted(actions), np.int64)
        space = self.array_manager.action_space
        stacked = [np.asarray(actions[int(lane)], space.dtype).reshape(space.shape or ()) for lane in lanes]
        return self._timesteps(self.array_manager.step(lanes, np.array(stacked)))

    def _timesteps(self, batch: StepBatch) -> dict[int, BaseEnvTimestep]:
        timesteps: dict[int, BaseEnvTimestep] = {}
        for row, lane in enumerate(batch.lanes.tolist()):
            info = dict(batch.info.get(lane, {}))
            self._return[lane] += batch.reward[row]
            is_done = bool(batch.terminated[row] or batch.truncated[row])
            if is_done:
                info.setdefault("eval_episode_return", float(self._return[lane]))
                info.setdefault("TimeLimit.truncated", bool(batch.truncated[row] and not batch.terminated[row]))
                self._finished[lane] += 1
                self._return[lane] = 0.0
                self._waits_for_reset[lane] = not self._auto_reset
            obs = map_obs(itemgetter(row), batch.next_obs)
            timesteps[lane] = BaseEnvTimestep(obs, batch.reward[row : row + 1].copy(), is_done, info)
        current = copy_obs(self.array_manager.obs) if len(batch.dropped) else {}
        for lane in batch.dropped.tolist():
            self._return[lane] = 0.0
            nothing = np.zeros(1, np.float32)
            obs = map_obs(itemgetter(lane), current)
            timesteps[lane] = BaseEnvTimestep(obs, nothing, False, {"abnormal": True})
        return timesteps

    def reset(self, reset_param: ResetParam | None = None) -> None:
        """Begin new episodes: in all envs, which get their full number again, or in those that `reset_param` names.

        A value is None or a dict: its `seed` seeds this reset, the rest are parameters of this and every later one.
        """
        param = {index: dict(own or {}) for index, own in (reset_param or {}).items()}
        if not param:
            self._finished[:] = 0
        chosen = sorted(param) or list(range(self.env_num))
        self._is_launched = True
        self._waits_for_reset[chosen] = False
        self._return[chosen] = 0.0
        waiting = {index: self._seeds.pop(index) for index in chosen if index in self._seeds}
        seeds = {**waiting, **{index: own.pop("seed") for index, own in param.items() if "seed" in own}}
        options = {index: own for index, own in param.items() if own}
        seeded = sorted(seeds)
        others = [index for index in chosen if index not in seeds]
        if seeded:
            self.array_manager.reset(np.array(seeded), seeds=[seeds[index] for index in seeded], options=options)
        if others:
            self.array_manager.reset(np.array(others), options=options)

    def launch(self, reset_param: ResetParam | None = None) -> None:
        """Reset every env for the first time."""
        self.reset(reset_param)

    def seed(self, seed: int | Sequence[int] | Mapping[int, int], dynamic_seed: bool | None = None) -> None:
        """Seed the next resets: env i from `seed + i`, or from its own number of a list or dict."""
        if isinstance(seed, int):
            first, self._seeds = seed, {}
        else:
            self._seeds = dict(seed) if isinstance(seed, Mapping) else dict(enumerate(seed))
            first = next(iter(self._seeds.values()))
        if not set(self._seeds) <= set(range(self.env_num)):
            raise EnvError(f"seeds are for envs {sorted(self._seeds)}; this manager has envs 0 to {self.env_num - 1}.")
        self._seeding = (first, dynamic_seed is not False)
        for manager in (self._made, self._games):
            if manager is not None:
                manager.seed(*self._seeding)

    def _make(self, manager_type: str, cfg: Config) -> ArrayEnvManager:
        manager: ArrayEnvManager = _array_class(manager_type)(self._env_fn, cfg)
        if self._seeding is not None:
            manager.seed(*self._seeding)
        return manager

    def games(self) -> ArrayEnvManager:
        """Return a manager of the envs as games, for battle collectors and evaluators.

        The observations, rewards and infos of such envs have an entry for each player; see `PairGame`.
        """
        if self._games is None:
            known = _array_class("game").config
            cfg = {name: value for name, value in self._array_cfg.items() if name in known}
            self._games = self._make("game", {**cfg, "subprocess": self.manager_type == "subprocess"})
        return self._games

    def close(self) -> None:
        """Close the envs; may be called again."""
        for manager in (self._games, self._made):
            if manager is not None:
                manager.close()

    def enable_save_replay(self, replay_path: str | Sequence[str]) -> None:
        """Write a GIF of every episode of every env into `replay_path`, or env i's into the i-th of several folders.

        Several envs get folders of their own in one path, `env_0` and so on. Call it before `launch`, and before the
        manager is given to a collector or evaluator: the envs are made anew. Raises EnvError after that.
        """
        if self._is_launched or (self._made is not None and self._made.is_launched):
            raise EnvError("enable_save_replay makes the envs anew: call it before launch(), and before a collector.")
        if isinstance(replay_path, str):
            num = len(self._env_fn)
            folders = [replay_path] if num == 1 else [str(Path(replay_path, f"env_{index}")) for index in range(num)]
        else:
            folders = list(replay_path)
        if len(folders) != len(self._env_fn):
            raise EnvError(
                f"replay_path has {len(folders)} folders for {len(self._env_fn)} envs; give one, or as many."
            )
        self.close()
        self._env_fn = [RecordedEnv(make, folder) for make, folder in zip(self._env_fn, folders, strict=True)]
        self._made, self._games = self._make(self.manager_type, self._array_cfg), None

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class SyncSubprocessEnvManager(BaseEnvManager):
    """Manager of envs in processes of their own, in DI-engine's way; a step waits for all that are stepped."""

    manager_type = "subprocess"


class AsyncSubprocessEnvManager(SyncSubprocessEnvManager):
    """`SyncSubprocessEnvManager` whose step, with `wait_num` in its config, waits for as many envs only."""


class SubprocessEnvManager(SyncSubprocessEnvManager):
    """Another name of `SyncSubprocessEnvManager`."""


class TimestepV2(NamedTuple):
    """Result of one step of one env, in the second version of DI-engine's managers."""

    obs: Any
    reward: Any
    done: bool
    info: dict[str, Any]
    env_id: int


class BaseEnvManagerV2(BaseEnvManager):
    """Manager of envs in this process, as DI-engine's second version: arrays and lists, in the order of env ids."""

    @property
    def ready_obs(self) -> Any:
        """The observations of the envs that wait for an action, stacked [R, O...], or a dict of such."""
        rows = list(super().ready_obs.values())
        if rows and isinstance(rows[0], Mapping):
            return {key: np.stack([row[key] for row in rows]) for key in rows[0]}
        return np.array(rows)

    def step(self, actions: Any) -> Any:
        """Step the envs of `ready_obs_id` with `actions` [R, A...] and return a list of `TimestepV2`."""
        ids = self.ready_obs_id
        if len(actions) != len(ids):
            raise EnvError(f"step got {len(actions)} actions for {len(ids)} envs; give one for each of ready_obs.")
        timesteps = super().step(dict(zip(ids, actions, strict=True)))
        return [TimestepV2(**timesteps[index]._asdict(), env_id=index) for index in sorted(timesteps)]


class SubprocessEnvManagerV2(BaseEnvManagerV2):
    """`BaseEnvManagerV2` with envs in processes of their own."""

    manager_type = "subprocess"


_BY_TYPE: dict[str, type[BaseEnvManager]] = {
    "base": BaseEnvManager,
    "subprocess": SyncSubprocessEnvManager,
    "async_subprocess": AsyncSubprocessEnvManager,
    "base_v2": BaseEnvManagerV2,
    "subprocess_v2": SubprocessEnvManagerV2,
}


def get_env_manager_cls(cfg: Config) -> type[BaseEnvManager | ArrayEnvManager]:
    """Return the class in DI-engine's style for `cfg.type`, or ours where there is none; RegistryError if unknown."""
    found = _BY_TYPE.get(cfg.get("type", "base"))
    return _array_class(cfg["type"], cfg.get("import_names", ())) if found is None else found


def _array_class(name: str, import_names: Any = ()) -> type[Any]:
    cls: type[Any] = ENV_MANAGER_REGISTRY.get(name, import_names)
    return cls


def _array_config(manager_type: str, given: Mapping[str, Any]) -> Section:
    """Return what of a config is the array manager's; keys that change nothing are named once."""
    known = _array_class(manager_type).config
    own: dict[str, Any] = {}
    for key, value in given.items():
        target = _RENAMED.get(key, key)
        if target in known:
            if key == target or value is not None:
                own[target] = value
        elif key not in _NAMES and key not in ("episode_num", "auto_reset"):
            reason = reason_of(LEGACY_KEYS, f"env.manager.{target}") or reason_of(LEGACY_KEYS, f"env.manager.{key}")
            if reason is None:
                raise ConfigError(f"env manager '{manager_type}': unknown key '{key}'; {suggestion(key, known, known)}")
            one_time_warning(f"env manager '{manager_type}': {key} is ignored: {reason}")
    return own


# DI-engine's names of our wrappers' arguments.
_ARGUMENTS = {"n_frames": "stack_size", "reward_discount": "gamma", "max_limit": "max_episode_steps"}
_LISTS = ("default", "mujoco_default", "gym_hybrid_default", "atari_default")

# DI-engine's names of our wrappers; those with other arguments are functions below.
ActionRepeatWrapper = ActionRepeat
ClipRewardWrapper = clip_reward
EpisodicLifeWrapper = EpisodicLife
EvalEpisodeReturnWrapper = EpisodeReturn
FireResetWrapper = FireReset
FlatObsWrapper = FlattenObservation
MaxAndSkipWrapper = max_and_skip
NoopResetWrapper = NoopReset
ObsNormWrapper = ObsNorm
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
        path = replay_path or "./video"
        if self._env.render_mode != "rgb_array" and self._given is None:
            silent, self._env = self._env, self._make("rgb_array")
            silent.close()
        self._env, self._replay_path = RecordGif(self._env, path), path

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
    if env_wrapper_name not in _LISTS:
        raise ConfigError(f"env_wrapper is {env_wrapper_name!r}; expected one of {', '.join(_LISTS)}, or a list.")
    if env_wrapper_name != "atari_default":
        return [{"type": "eval_episode_return"}]
    is_training = caller == "collector"
    return [
        {"type": "noop_reset", "noop_max": 30},
        {"type": "max_and_skip", "skip": 4},
        {"type": "eval_episode_return"},
        *([{"type": "episodic_life"}] if is_training else []),
        {"type": "fire_reset"},
        {"type": "warp_frame", "size": 84},
        *([{"type": "clip_reward"}] if is_training else []),
        {"type": "frame_stack", "stack_size": 4},
    ]


def FrameStackWrapper(env: AnyEnv, n_frames: int = 4) -> AnyEnv:  # noqa: N802  # DI-engine's name, as all here
    """Observe the last `n_frames` observations, stacked along a new first axis."""
    return wrap(env, [{"type": "frame_stack", "stack_size": n_frames}])


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


def affine_transform(
    data: Array,
    action_clip: bool = True,
    alpha: float | None = None,
    beta: float | None = None,
    min_val: Array | float | None = None,
    max_val: Array | float | None = None,
) -> Array:
    """Return `alpha * data + beta`, clipped to [-1, 1] before with `action_clip`.

    Instead of `alpha` and `beta`, `min_val` and `max_val` are where -1 and 1 go. Raises ConfigError without either.
    """
    values: Array = np.clip(data, -1.0, 1.0) if action_clip else np.asarray(data)
    if min_val is not None and max_val is not None:
        half = (np.asarray(max_val) - np.asarray(min_val)) / 2
        return np.asarray(np.asarray(min_val) + half + half * values)
    if alpha is None:
        raise ConfigError("affine_transform needs min_val and max_val, or alpha.")
    return np.asarray(alpha * values + (0.0 if beta is None else beta))
