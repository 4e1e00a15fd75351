"""Env managers under DI-engine's names and with its interface: dicts by env id.

Collectors and evaluators take them as they take ours: they step the `array_manager` inside, so that a script pays for
dicts only where it steps envs itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from easydict import EasyDict

from ding_like.config.legacy import LEGACY_KEYS, reason_of
from ding_like.config.report import suggestion
from ding_like.data.obs import copy_obs
from ding_like.envs.di_engine_style import BaseEnvTimestep
from ding_like.envs.manager.array_manager import ArrayEnvManager
from ding_like.envs.spaces import Space
from ding_like.envs.wrappers.record_gif import RecordedEnv
from ding_like.errors import ConfigError, EnvError
from ding_like.types import Array, Config, EnvAction, EnvFn, EnvObs, Obs, Section, StepBatch
from ding_like.utils.log import one_time_warning
from ding_like.utils.registries import ENV_MANAGER_REGISTRY

# What an env observes, takes and is configured by differs from env to env: hence Any in this file.
ResetParam = Mapping[int, Mapping[str, Any] | None]
Self = TypeVar("Self", bound="BaseEnvManager")

_NOTHING = np.zeros(0, np.int64)

# DI-engine's key -> ours; None, which is no deadline there, leaves ours at its default.
_RENAMED = {
    "step_timeout": "step_timeout_s",
    "reset_timeout": "reset_timeout_s",
    "connect_timeout": "launch_timeout_s",
}
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
        given = dict(cfg or {})
        self._env_fn = list(env_fn)
        self._array_cfg = _array_config(self.manager_type, given)
        self._auto_reset = bool(given.get("auto_reset", True))
        self._seeding: tuple[int, bool] | None = None
        self._made: ArrayEnvManager | None = None
        self._games: ArrayEnvManager | None = None
        self._episode_num = given.get("episode_num", math.inf)
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
            self.array_manager.step(_NOTHING, _NOTHING)
        obs = copy_obs(self.array_manager.obs)
        return {int(lane): _row(obs, lane) for lane in waiting}

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
            obs = _row(batch.next_obs, row)
            timesteps[lane] = BaseEnvTimestep(obs, batch.reward[row : row + 1].copy(), is_done, info)
        current = copy_obs(self.array_manager.obs) if len(batch.dropped) else {}
        for lane in batch.dropped.tolist():
            self._return[lane] = 0.0
            nothing = np.zeros(1, np.float32)
            timesteps[lane] = BaseEnvTimestep(_row(current, lane), nothing, False, {"abnormal": True})
        return timesteps

    def launch(self, reset_param: ResetParam | None = None) -> None:
        """Reset every env for the first time."""
        self.reset(reset_param)

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
        seeds = {**self._seeds, **{index: own.pop("seed") for index, own in param.items() if "seed" in own}}
        self._seeds = {index: seed for index, seed in self._seeds.items() if index not in chosen}
        options = {index: own for index, own in param.items() if own}
        seeded = [index for index in chosen if index in seeds]
        others = [index for index in chosen if index not in seeds]
        if seeded:
            self.array_manager.reset(np.array(seeded), seeds=[seeds[index] for index in seeded], options=options)
        if others:
            self.array_manager.reset(np.array(others), options=options)

    def seed(self, seed: int | Sequence[int] | Mapping[int, int], dynamic_seed: bool | None = None) -> None:
        """Seed the next resets: env i from `seed + i`, or from its own number of a list or dict."""
        is_dynamic = dynamic_seed is not False
        if isinstance(seed, int):
            self._seeds = {}
            self._seed_all(seed, is_dynamic)
            return
        self._seeds = dict(seed) if isinstance(seed, Mapping) else dict(enumerate(seed))
        if not set(self._seeds) <= set(range(self.env_num)):
            raise EnvError(f"seeds are for envs {sorted(self._seeds)}; this manager has envs 0 to {self.env_num - 1}.")
        self._seed_all(next(iter(self._seeds.values())), is_dynamic)

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

    def _seed_all(self, seed: int, is_dynamic: bool) -> None:
        self._seeding = (seed, is_dynamic)
        for manager in (self._made, self._games):
            if manager is not None:
                manager.seed(seed, is_dynamic)

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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


def _row(obs: Obs, row: int) -> Any:
    if isinstance(obs, dict):
        return {key: array[row] for key, array in obs.items()}
    return obs[row]
