"""Run gymnasium's vector envs, whichever way they reset ended lanes; env manager 'gym_vector'."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from ding_like.data.obs import copy_obs, take_lanes, write_obs
from ding_like.envs.di_engine_style import SEED_LIMIT
from ding_like.envs.factory import check_command, config_of, env_class, make_lane_env
from ding_like.envs.manager.array_manager import NO_LANES, ArrayEnvManager, rows_equal, without_lanes
from ding_like.envs.manager.lane import CrashBudget
from ding_like.envs.spaces import AnyEnv
from ding_like.envs.wrappers import load_wrapper_states, wrapper_states
from ding_like.errors import ConfigError, EnvError
from ding_like.types import Array, Config, EnvFn, EnvObs, Obs, Report, Section, State, StepBatch
from ding_like.utils.registries import ENV_MANAGER_REGISTRY
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
        check = check_command(env_fn[0]) if env_fn else ""
        super().__init__(len(env_fn), cfg, check=check)
        self._env_fn = list(env_fn)
        self._crashes = CrashBudget("the vector env", self._cfg, check=check)
        self._vector = self._make()
        try:
            self._mode = self._autoreset_mode()
            self._set_spaces(self._vector.single_observation_space, self._vector.single_action_space)
        except BaseException:
            self.close()
            raise
        self._takes_lane_seeds = self._takes_seed_per_lane()
        self.lane_seeds = self._takes_lane_seeds and self._mode is AutoresetMode.DISABLED
        if not self.lane_seeds:
            logger.info("%s cannot bring back single lanes: a resumed run begins new episodes", self._vector)
        self._obs = self._layout.allocate(self.num_lanes)
        self._in_dummy_step = np.zeros(self.num_lanes, bool)
        self._is_adrift = np.zeros(self.num_lanes, bool)
        self._is_open = np.zeros(self.num_lanes, bool)  # a part of the running episode was reported
        self._are_all_ready = True

    def _make(self) -> AnyVectorEnv:
        entry = _vector_entry(self._env_fn)
        if entry is not None:
            return gymnasium.make_vec(num_envs=self.num_envs, **entry)
        mode = _parse_mode(self._cfg["autoreset_mode"] or AutoresetMode.DISABLED)
        return SyncVectorEnv(
            [functools.partial(make_lane_env, make) for make in self._env_fn], copy=False, autoreset_mode=mode
        )

    def _read_obs(self, obs: EnvObs) -> Obs:
        """Return the vector env's observations as memory that it does not write into later."""
        return self._layout.from_batch(obs, copy=not self._gives_fresh_memory)

    def _takes_seed_per_lane(self) -> bool:
        """Return whether the vector env resets lanes by a mask, each with a seed or None of its own."""
        return isinstance(self._vector, SyncVectorEnv)

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
        if not is_full:
            taken = self._among_random_ones(chosen, taken)
        if self.lane_seeds:
            for lane, action in zip(self._lanes, self._actions.split(taken), strict=True):
                lane.journal.append(action)
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
            true_obs = self._with_final_obs(ended, info["final_obs"])
        batch = StepBatch(
            lanes=chosen,
            # Where nothing is going to be written into it, `obs` itself is handed out: frames are large.
            next_obs=true_obs if is_full and not ended else take_lanes(true_obs, chosen),
            reward=np.array(reward, np.float32)[chosen],
            terminated=terminated[chosen],
            truncated=truncated[chosen],
            info=_infos(info, chosen.tolist(), done) if info else {},
            dropped=broken_off,
        )
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
        if not self._ready[chosen].all():
            raise EnvError(f"lanes {chosen[~self._ready[chosen]].tolist()} are not ready; step only lanes of `ready`.")
        idle = self._ready.copy()
        idle[chosen] = False
        broken_off = np.flatnonzero(idle & self._is_open)
        self._is_adrift |= idle
        self._is_open &= ~idle
        self._update_ready()
        return broken_off

    def _among_random_ones(self, chosen: Array, actions: Array) -> Array:
        """Return actions for all lanes: `actions` for the chosen ones, random ones for the rest."""
        filled = self._actions.for_envs(self._actions.sample(self._rng, self.num_lanes), self.num_lanes)
        filled[chosen] = actions
        return filled

    def _with_final_obs(self, ended: list[int], final_obs: Any) -> Obs:
        """Return a copy of `obs` in which ended lanes hold the true last observation (same-step autoreset)."""
        true_obs = copy_obs(self._obs)
        write = self._layout.writer(true_obs)
        for index in ended:
            write(index, _at(final_obs, index))
        return true_obs

    def _begin_episodes(self, done: Array, failed: list[int]) -> list[int]:
        """Begin new episodes in lanes that are done, at once or after their dummy step.

        Return the lanes whose episodes are dropped: `failed`, and every open one if a reset breaks the vector env.
        """
        self._is_open &= ~done
        ended = np.flatnonzero(done).tolist()
        for index in set(ended) - set(failed):
            self._crashes.record_finished_episode()
            self._lanes[index].crashes.record_finished_episode()
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
        np.logical_not(self._in_dummy_step | self._is_adrift, out=self._ready)
        self._are_all_ready = bool(self._ready.all())

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
        bad = np.flatnonzero(self._ready & ~self._is_open & ~self._layout.finite_rows(self._obs)).tolist()
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
                self._load_wrapper_states(dict(enumerate(states)))
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
        return {
            **super().state_dict(),
            "is_adrift": self._is_adrift.copy(),
            "is_open": self._is_open.copy(),
            "rng": rng_state(self._rng),
        }

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
        total = max(len(stretch) for stretch in stretches)
        starts = [total - len(stretch) for stretch in stretches]
        rng = make_rng(0, "replay")  # for the steps of a lane before its own stretch, which its reset forgets
        self._load_wrapper_states({index: lane["wrappers"] for index, lane in enumerate(saved)})
        self._reset_some({index: lane["reset_seed"] for index, lane in enumerate(saved)})
        for time in range(total + 1):
            begin = {index: saved[index]["reset_seed"] for index in self._all if time and starts[index] == time}
            if begin:
                self._load_wrapper_states({index: saved[index]["wrappers"] for index in begin})
                self._reset_some(begin)
            if time == total:
                return
            actions = self._actions.for_envs(self._actions.sample(rng, self.num_lanes), self.num_lanes)
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

    def _load_wrapper_states(self, states: Mapping[int, list[State]]) -> None:
        for index, env in enumerate(self._wrapped_envs()):
            if index in states:
                load_wrapper_states(env, states[index])

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


def _vector_entry(env_fn: Sequence[EnvFn]) -> Section | None:
    """Return the arguments of `gymnasium.make_vec` if all lanes have one config with a vectorised entry point."""
    first, *others = [config_of(make) for make in env_fn]
    if first is None or any(cfg != first for cfg in others):
        return None
    find = getattr(env_class(first), "vector_entry", None)
    entry: dict[str, Any] | None = None if find is None else find(first)
    return entry


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
