"""Run gymnasium's vector envs, whichever way they reset ended lanes; env manager 'gym_vector'."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import logging
import math
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from ding_like.data.batch import copy_obs, take_lanes, write_obs
from ding_like.envs.di_engine_style import SEED_LIMIT
from ding_like.envs.factory import config_of, env_class, make_lane_env
from ding_like.envs.gymnasium_env import env_spec
from ding_like.envs.manager.base import NO_LANES, ArrayEnvManager, CrashBudget, rows_equal, without_lanes
from ding_like.envs.spaces import AnyEnv
from ding_like.envs.wrappers import load_wrapper_states, wrapper_states
from ding_like.envs.wrappers.pictures import atari
from ding_like.errors import ConfigError, EnvError
from ding_like.types import Array, Config, EnvFn, EnvObs, Info, Obs, Report, Section, State, StepBatch
from ding_like.utils.bounds import FROM_0, Bounds
from ding_like.utils.registries import ENV_MANAGER_REGISTRY, pip_line
from ding_like.utils.seeding import make_rng, rng_state, set_rng_state

logger = logging.getLogger(__name__)

AnyVectorEnv = VectorEnv[Any, Any, Any]  # what an env observes and takes differs from env to env
_MODES = [mode.value for mode in AutoresetMode]


@ENV_MANAGER_REGISTRY.register("gym_vector")
class GymVectorEnvManager(ArrayEnvManager):
    """Manager of a vector env: the id's vectorised entry point where there is one, else gymnasium's SyncVectorEnv.

    A lane is not ready while it is in the dummy step of next-step autoreset, which never appears as a transition.
    A vector env steps all its lanes or none: a ready lane that is left out of `step` drifts on with random actions
    and is not ready until its episode ends and the next begins; an episode that this breaks off is dropped.

    `lane_seeds` is True for SyncVectorEnv with autoreset disabled, which is built where there is no entry point.
    Other vector envs draw from generators of their own after an episode, so that resume begins new episodes.
    """

    config = {
        **ArrayEnvManager.config,
        # Autoreset mode of the vector env; None: that of its metadata, 'Disabled' for a SyncVectorEnv made here.
        "autoreset_mode": None,
    }
    config_types: ClassVar[dict[str, tuple[type, ...]]] = {"autoreset_mode": (str, type(None))}
    _gives_fresh_memory = False  # True where the vector env's observations are never written into again

    @classmethod
    def check_config(cls, cfg: Config) -> Iterable[tuple[str, str]]:
        yield from super().check_config(cfg)
        if cfg["autoreset_mode"] not in (None, *_MODES):
            yield "autoreset_mode", f"is {cfg['autoreset_mode']!r}; expected None or one of {_MODES}"

    def __init__(self, env_fn: Sequence[EnvFn], cfg: Config | None = None) -> None:
        super().__init__(env_fn, cfg)
        self._crashes = CrashBudget("the vector env", self._cfg, check=self._check)
        self._vector = self._make()
        try:
            self._mode = self._autoreset_mode()
            self._set_spaces(self._vector.single_observation_space, self._vector.single_action_space)
        except BaseException:
            self.close()
            raise
        # Whether the vector env resets lanes by a mask, each with a seed or None of its own.
        self._takes_lane_seeds = isinstance(self._vector, (SyncVectorEnv, _AleVector))
        self.lane_seeds = self._takes_lane_seeds and self._mode is AutoresetMode.DISABLED
        if not self.lane_seeds:
            logger.info("%s cannot bring back single lanes: a resumed run begins new episodes", self._vector)
        self._obs = self._layout.allocate(self.num_lanes)
        self._in_dummy_step = np.zeros(self.num_lanes, bool)
        self._is_adrift = np.zeros(self.num_lanes, bool)
        self._is_open = np.zeros(self.num_lanes, bool)  # a part of the running episode was reported
        self._are_all_ready = True

    def _make(self) -> AnyVectorEnv:
        config = self._config_of_all()
        find = None if config is None else getattr(env_class(config), "vector_entry", None)
        entry: Section | None = None if find is None else find(config)
        if entry is not None:
            return gymnasium.make_vec(num_envs=self.num_envs, **entry)
        mode = _parse_mode(self._cfg["autoreset_mode"] or AutoresetMode.DISABLED)
        return SyncVectorEnv(
            [functools.partial(make_lane_env, make) for make in self._env_fn], copy=False, autoreset_mode=mode
        )

    def _config_of_all(self) -> Config | None:
        """Return the config that all lanes have, None where they have several, or none."""
        first, *others = [config_of(make) for make in self._env_fn]
        return None if any(other != first for other in others) else first

    def _read_obs(self, obs: EnvObs) -> Obs:
        """Return the vector env's observations as memory that it does not write into later."""
        return self._layout.from_batch(obs, copy=not self._gives_fresh_memory)

    def _autoreset_mode(self) -> AutoresetMode:
        declared, asked = self._vector.metadata.get("autoreset_mode"), self._cfg["autoreset_mode"]
        if declared is None and asked is None:
            raise EnvError(
                f"{self._vector} does not say in metadata['autoreset_mode'] how it resets ended lanes; set "
                f"env.manager.autoreset_mode to one of {_MODES}."
            )
        if declared is not None and asked is not None and _parse_mode(declared) is not _parse_mode(asked):
            raise ConfigError(
                f"env.manager.autoreset_mode is '{asked}', but {self._vector} resets in mode "
                f"'{_parse_mode(declared).value}'; leave it at None."
            )
        return _parse_mode(declared if asked is None else asked)

    @property
    def obs(self) -> Obs:
        return self._obs

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        super().seed(seed, dynamic_seed)
        self._rng = make_rng(seed, "drift")

    def step(self, lanes: Array, actions: Array, *, timeout_s: float | None = None) -> StepBatch:
        """Step `lanes` with `actions` [R, A...] and all others with random ones; `timeout_s` is ignored."""
        self._check_running()
        in_order = self._check_lanes(lanes) == self._all
        chosen = np.array(lanes, np.int64)
        is_full = in_order and self._are_all_ready
        broken_off = NO_LANES if is_full else self._let_idle_drift(chosen)
        taken = self._actions.for_envs(actions, len(chosen))
        if not is_full:  # random ones for the rest
            given, taken = taken, self._random_actions(self._rng)
            taken[chosen] = given
        if self.lane_seeds:
            for note, action in zip(self._note_action, self._actions.split(taken), strict=True):
                note(action)
        try:
            obs, reward, terminated, truncated, info = self._vector.step(taken)
        except Exception as error:  # an env may raise anything; the vector env is recreated as a whole
            self._is_open[chosen] = True
            dropped = np.union1d(np.flatnonzero(self._is_open), broken_off)
            self._recreate(error)
            no_obs, no_flags = take_lanes(self._obs, NO_LANES), np.zeros(0, bool)
            batch = StepBatch(NO_LANES, no_obs, np.zeros(0, np.float32), no_flags, no_flags, {}, dropped)
            return self._counted(batch, has_ended=False)
        self._is_open[chosen] = True
        done = (terminated | truncated) & ~self._in_dummy_step
        ended = np.flatnonzero(done).tolist()
        self._obs = true_obs = self._read_obs(obs)
        if ended and self._mode is AutoresetMode.SAME_STEP:
            true_obs = copy_obs(self._obs)
            write = self._layout.writer(true_obs)
            for index in ended:
                write(index, _at(info["final_obs"], index))
        # Where nothing is going to be written into it, `obs` itself is handed out: frames are large.
        next_obs = true_obs if is_full and not ended else take_lanes(true_obs, chosen)
        rewards, infos = np.array(reward, np.float32)[chosen], _infos(info, chosen.tolist(), done) if info else {}
        batch = StepBatch(chosen, next_obs, rewards, terminated[chosen], truncated[chosen], infos, broken_off)
        failed = self._failed_lanes(batch)
        if ended or failed or not self._are_all_ready:
            failed = self._begin_episodes(done, failed)
        if failed or not self._layout.all_finite(self._obs):
            self._replace([index for index in failed if self._is_open[index]])
            self._replace_bad_beginnings()
            batch = without_lanes(batch, failed)
        return self._counted(batch, has_ended=bool(ended))

    def _let_idle_drift(self, chosen: Array) -> Array:
        """Mark the ready lanes that are not stepped as adrift; return those whose episode this breaks off."""
        if not self.ready[chosen].all():
            raise EnvError(f"lanes {chosen[~self.ready[chosen]].tolist()} are not ready; step only lanes of `ready`.")
        idle = self.ready.copy()
        idle[chosen] = False
        broken_off = np.flatnonzero(idle & self._is_open)
        self._is_adrift |= idle
        self._is_open &= ~idle
        self._update_ready()
        return broken_off

    def _random_actions(self, rng: np.random.Generator) -> Array:
        return self._actions.for_envs(self._actions.sample(rng, self.num_lanes), self.num_lanes)

    def _begin_episodes(self, done: Array, failed: list[int]) -> list[int]:
        """Begin new episodes in lanes that are done, at once or after their dummy step.

        Return the lanes whose episodes are dropped: `failed`, and every open one if a reset breaks the vector env.
        """
        self._is_open &= ~done
        ended = np.flatnonzero(done).tolist()
        for index in set(ended) - set(failed):
            self._crashes.in_a_row = self._lanes[index].crashes.in_a_row = 0
        begun = done
        if self._mode is AutoresetMode.NEXT_STEP:
            begun, self._in_dummy_step = self._in_dummy_step, done
        elif self._mode is AutoresetMode.DISABLED and ended:
            try:
                self._reset_some({index: self._lanes[index].seed_after_episode() for index in ended})
            except Exception as error:  # an env may raise anything; the vector env is recreated as a whole
                failed = sorted({*failed, *np.flatnonzero(self._is_open).tolist()})
                self._recreate(error)
        self._is_adrift &= ~begun
        self._update_ready()
        return failed

    def _update_ready(self) -> None:
        np.logical_not(self._in_dummy_step | self._is_adrift, out=self.ready)
        self._are_all_ready = bool(self.ready.all())

    def _failed_lanes(self, batch: StepBatch) -> list[int]:
        """Return the lanes that answered with a NaN or an infinity, each counted as a crash."""
        if math.isfinite(sum(batch.reward.tolist())) and self._layout.all_finite(batch.next_obs):
            return []
        is_finite = self._layout.finite_rows(batch.next_obs) & np.isfinite(batch.reward)
        failed: list[int] = batch.lanes[~is_finite].tolist()
        for index in failed:
            self._lanes[index].record_crash(self._nonfinite(index, "observation or reward"))
        return failed

    def _replace(self, lanes: list[int]) -> None:
        """Break off what lanes are doing: by a reset if the vector env resets single lanes, else they drift on."""
        if lanes and self._takes_lane_seeds:
            self._reset_lanes(lanes)
        else:
            self._is_adrift[lanes] = True
            self._is_open[lanes] = False
            self._update_ready()

    def _replace_bad_beginnings(self) -> None:
        """Break off episodes whose first observation is not finite."""
        bad = np.flatnonzero(self.ready & ~self._is_open & ~self._layout.finite_rows(self._obs)).tolist()
        for index in bad:
            self._lanes[index].record_crash(self._nonfinite(index, "first observation"))
        if bad:
            self._replace(bad)

    def _recreate(self, error: Exception) -> None:
        """Count a crash and recreate the vector env; all lanes begin new episodes."""
        while True:
            self._crashes.record_crash(error)
            try:
                states = self.wrapper_states()
                self._close_envs()
                self._vector = self._make()
                self.load_wrapper_states(states)
                return self._reset_vector(self._all)
            except Exception as again:  # an env may raise anything; record_crash ends a crash loop
                error = again

    def _reset_lanes(self, lanes: list[int]) -> None:
        if any(self._lanes[index].options for index in lanes):
            raise EnvError("a vector env hands options to all its lanes alike; use manager type 'base' for options.")
        try:
            self._reset_vector(lanes)
        except EnvError:
            raise
        except Exception as error:  # an env may raise anything; the vector env is recreated as a whole
            self._recreate(error)

    def _reset_vector(self, lanes: list[int]) -> None:
        """Begin new episodes in `lanes`, with the seeds that they draw."""
        seeds = {index: self._lanes[index].draw_seed() for index in lanes}
        if self._takes_lane_seeds:
            self._reset_some(seeds)
        elif lanes == self._all:
            # One generator for all lanes: one seed made of all seeds.
            seed = np.random.SeedSequence(list(seeds.values())).generate_state(1)[0] % SEED_LIMIT
            self._obs = self._read_obs(self._vector.reset(seed=int(seed))[0])
        else:
            raise EnvError(f"{self._vector} resets all its lanes or none; call reset() without lanes.")
        for flags in (self._in_dummy_step, self._is_adrift, self._is_open):
            flags[lanes] = False
        self._update_ready()
        self._replace_bad_beginnings()

    def _reset_some(self, seeds: Mapping[int, int | None]) -> None:
        """Reset lanes with their seeds, None for a lane that draws from its env's own generator."""
        mask = np.zeros(self.num_lanes, bool)
        mask[list(seeds)] = True
        options = None if mask.all() else {"reset_mask": mask}
        own = [seeds.get(index) for index in self._all] if self._takes_lane_seeds else None
        for index, env in enumerate(self._wrapped_envs()):
            if seeds.get(index) is not None:
                self._lanes[index].wrappers = wrapper_states(env)
        obs, _ = self._vector.reset(seed=own, options=options)  # type: ignore[arg-type]  # SyncVectorEnv takes lists
        lanes = np.flatnonzero(mask)
        write_obs(self._obs, take_lanes(self._read_obs(obs), lanes), lanes)
        for index, seed in seeds.items():
            self._lanes[index].record_reset(seed)

    def state_dict(self) -> State:
        flags = {"is_adrift": self._is_adrift.copy(), "is_open": self._is_open.copy()}
        return {**super().state_dict(), **flags, "rng": rng_state(self._rng)}

    def _restore(self, state: State) -> list[int]:
        set_rng_state(self._rng, state["rng"])
        if not self.lane_seeds:
            return list(self._all)
        try:
            self._replay(state["lanes"])
        except Exception as error:  # an env may raise anything; its lanes count as lost
            logger.warning("the vector env broke while actions were played again: %s: %s", type(error).__name__, error)
            self._close_envs()
            self._vector = self._make()
            return list(self._all)
        self._is_adrift, self._is_open = state["is_adrift"].copy(), state["is_open"].copy()
        self._update_ready()
        came_back = rows_equal(self._obs, state["obs"])
        return [index for index in self._all if not (state["lanes"][index]["can_replay"] and came_back[index])]

    def _replay(self, saved: list[State]) -> None:
        """Play every lane's actions again, side by side, so that all lanes arrive with the last step."""
        stretches = [lane["actions"] for lane in saved]
        total = max(map(len, stretches))
        starts = [total - len(stretch) for stretch in stretches]
        rng = make_rng(0, "replay")  # for the steps of a lane before its own stretch, which its reset forgets
        self.load_wrapper_states([lane["wrappers"] for lane in saved])
        self._reset_some({index: lane["reset_seed"] for index, lane in enumerate(saved)})
        for time in range(total + 1):
            begin = {index: saved[index]["reset_seed"] for index in self._all if time and starts[index] == time}
            for index in begin if self._wrapped_envs() else ():
                load_wrapper_states(self._wrapped_envs()[index], saved[index]["wrappers"])
            if begin:
                self._reset_some(begin)
            if time == total:
                return
            actions = self._random_actions(rng)
            playing = [index for index in self._all if time >= starts[index]]
            for index in playing:
                actions[index] = stretches[index][time - starts[index]]
            played = self._actions.split(actions)
            for index in playing:
                self._lanes[index].journal.append(played[index])
            obs, _, terminated, truncated, _ = self._vector.step(actions)
            self._obs = self._read_obs(obs)
            if (terminated | truncated).any():
                self._reset_some(dict.fromkeys(np.flatnonzero(terminated | truncated).tolist()))

    def _wrapped_envs(self) -> Sequence[AnyEnv]:
        return self._vector.envs if isinstance(self._vector, SyncVectorEnv) else ()

    def _close_envs(self) -> None:
        try:
            self._vector.close()
        except Exception as error:  # close() may raise anything; this vector env is not used any more
            logger.warning("closing %s failed: %s: %s", self._vector, type(error).__name__, error)


def _parse_mode(value: object) -> AutoresetMode:
    try:
        return AutoresetMode(value)
    except ValueError as error:
        raise ConfigError(f"autoreset mode is {value!r}; expected one of {_MODES}.") from error


def _at(value: Any, index: int) -> Any:
    """Return one lane's part of a vector env's nested arrays."""
    if isinstance(value, Mapping):
        return {key: _at(inner, index) for key, inner in value.items() if not key.startswith("_")}
    return value[index]


def _infos(info: Report, lanes: Sequence[int], done: Array) -> dict[int, Mapping[str, Any]]:
    """Take a vector env's info apart: `{key: array, "_key": mask}` becomes `{lane: {key: value}}`."""
    # With same-step autoreset the outer info of an ended lane is that of its next episode's reset.
    found = {lane: _info_of(info.get("final_info", info) if done[lane] else info, lane) for lane in lanes}
    return {lane: mine for lane, mine in found.items() if mine}


def _info_of(info: Report, lane: int) -> Section:
    mine: dict[str, Any] = {}
    for key, value in info.items():
        mask = info.get(f"_{key}")
        if mask is None or not mask[lane] or key in ("final_obs", "final_info"):
            continue
        mine[key] = _info_of(value, lane) if isinstance(value, Mapping) else value[lane]
    return mine


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
    config_bounds: ClassVar[Mapping[str, Bounds]] = {"num_threads": FROM_0}
    name: ClassVar[str]
    _gives_fresh_memory = True

    def _shared_config(self) -> Section:
        """Return the config of all lanes: `env_id`, `kwargs`, `wrappers`, `max_episode_steps`.

        Raises ConfigError where a library that makes its own envs cannot make these.
        """
        shared = self._config_of_all()
        read = None if shared is None else getattr(env_class(shared), "plain_config", None)
        config: Section | None = None if read is None else read(shared)
        if config is None:
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
