"""Run all envs in this process, one after the other; env manager 'base'."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, SupportsFloat

import numpy as np

from ding_like.data.obs import take_lanes, write_obs
from ding_like.envs.factory import check_command, make_lane_env
from ding_like.envs.manager.array_manager import NO_LANES, ArrayEnvManager, constant, rows_equal, without_lanes
from ding_like.envs.manager.lane import close_envs, first_obs_fault, play_again, recreate, reward_fault
from ding_like.envs.spaces import AnyEnv, check_equal_spaces
from ding_like.envs.wrappers import load_wrapper_states, wrapper_states
from ding_like.errors import EnvError
from ding_like.types import Array, Config, EnvFn, Obs, State, StepBatch
from ding_like.utils.registries import ENV_MANAGER_REGISTRY

logger = logging.getLogger(__name__)

_Ended = tuple[int, int, bool, bool]  # row, lane, terminated, truncated


@ENV_MANAGER_REGISTRY.register("base")
class BaseEnvManager(ArrayEnvManager):
    """Manager that steps envs in a loop, writes straight into arrays, and resets ended envs at once.

    All lanes are always ready, and all lanes that are stepped answer. `obs` alternates between two buffers: what `step`
    returns stays as it is until the next `step`, and so does the `obs` that was there before it.
    """

    def __init__(self, env_fn: Sequence[EnvFn], cfg: Config | None = None) -> None:
        super().__init__(len(env_fn), cfg, check=check_command(env_fn[0]) if env_fn else "")
        self._env_fn = list(env_fn)
        self._envs: list[AnyEnv] = []
        try:
            for make in self._env_fn:
                self._envs.append(make_lane_env(make))
            first = self._envs[0]
            if hasattr(first, "num_players"):
                raise EnvError(f"{first!r} has several players: set env.manager.type='game'.")
            check_equal_spaces(first, dict(enumerate(self._envs)))
            self._set_spaces(first.observation_space, first.action_space)
        except BaseException:
            self.close()
            raise
        self._buffers = [self._layout.allocate(self.num_lanes) for _ in range(2)]
        self._writers = [self._layout.writer(buffer) for buffer in self._buffers]
        self._current = 0
        self._has_stepped = False
        # Bound once: looking up env.step and journal.append each time costs 2 % of a CartPole step.
        self._step_env = [env.step for env in self._envs]
        self._note_action = [lane.journal.append for lane in self._lanes]
        self._all_lanes = constant(np.arange(self.num_lanes, dtype=np.int64))
        self._all_false = constant(np.zeros(self.num_lanes, bool))

    @property
    def obs(self) -> Obs:
        return self._buffers[self._current]

    def step(self, lanes: Array, actions: Array, *, timeout_s: float | None = None) -> StepBatch:
        """Step `lanes` with `actions` [R, A...]; `timeout_s` cannot be kept in process and is ignored."""
        self._check_running()
        chosen = self._check_lanes(lanes)
        is_full = chosen == self._all
        rows = self._all_lanes if is_full else np.array(chosen, np.int64)
        before = self._buffers[self._current]
        self._current ^= 1
        after, write = self._buffers[self._current], self._writers[self._current]
        if not is_full:
            write_obs(after, before)  # idle lanes keep their observation
        taken = self._actions.split(self._actions.for_envs(actions, len(chosen)))
        step_env, note_action = self._step_env, self._note_action
        rewards: list[SupportsFloat] = []
        infos: dict[int, Mapping[str, Any]] = {}
        ended: list[_Ended] = []
        failed: dict[int, Exception] = {}
        for lane, action in zip(chosen, taken, strict=True):
            note_action[lane](action)
            obs = None
            try:
                obs, reward, terminated, truncated, info = step_env[lane](action)
                write(lane, obs)
            except Exception as error:  # an env may raise anything; the lane is recreated
                failed[lane] = self._layout.explained(error, obs)
                rewards.append(0.0)
                continue
            if terminated or truncated:
                ended.append((len(rewards), lane, terminated, truncated))
            if info:
                infos[lane] = info
            rewards.append(reward)
        try:
            reward_row = np.array(rewards, np.float32)
        except (TypeError, ValueError):
            _check_rewards(rewards)
            raise
        if reward_row.ndim != 1 or not self._has_stepped:
            self._has_stepped = True
            _check_rewards(rewards)
        if not (math.isfinite(sum(reward_row.tolist())) and self._layout.all_finite(after)):
            self._find_nonfinite(chosen, after, reward_row, failed)
        if ended or failed:
            # The first observations of new episodes overwrite `after`: report a copy.
            batch = _report(rows, take_lanes(after, rows), reward_row, ended, infos)
            return self._counted(self._settle(batch, ended, failed))
        no_flag = self._all_false[: len(chosen)]
        next_obs = after if is_full else take_lanes(after, rows)
        self.game_steps += len(chosen)
        self.ended_games = []
        return StepBatch(rows, next_obs, reward_row, no_flag, no_flag, infos, NO_LANES)

    def _find_nonfinite(self, chosen: list[int], after: Obs, reward: Array, failed: dict[int, Exception]) -> None:
        """Add the lanes whose reward or observation is not finite to those that failed."""
        finite_obs = self._layout.finite_rows(after)
        for row, lane in enumerate(chosen):
            if lane not in failed and not math.isfinite(reward[row]):
                failed[lane] = self._nonfinite(lane, "reward")
            elif lane not in failed and not finite_obs[lane]:
                failed[lane] = self._nonfinite(lane, "observation")

    def _settle(self, batch: StepBatch, ended: list[_Ended], failed: dict[int, Exception]) -> StepBatch:
        """Begin new episodes where one ended or failed, and return the batch without the failed lanes."""
        for _, index, _, _ in ended:
            if index not in failed:
                lane = self._lanes[index]
                lane.crashes.record_finished_episode()
                self._begin_episode(index, lane.seed_after_episode())
        if not failed:
            return batch
        for index, error in failed.items():
            self._lanes[index].record_crash(error)
            self._begin_episode(index, self._lanes[index].draw_seed(), make_anew=True)
        return without_lanes(batch, sorted(failed))

    def _begin_episode(self, index: int, seed: int | None, *, make_anew: bool = False) -> None:
        """Reset one env and write its first observation; one that breaks is recreated and tried again."""
        lane = self._lanes[index]
        while True:
            try:
                if make_anew:
                    self._make_anew(index)
                if seed is not None:
                    lane.wrappers = wrapper_states(self._envs[index])
                obs, _ = self._envs[index].reset(seed=seed, options=lane.options)
            except Exception as error:  # an env may raise anything; record_crash ends a crash loop
                lane.record_crash(error)
            else:
                if fault := first_obs_fault(self._layout, index, obs):
                    raise EnvError(fault)
                if lane.reset_seed is None and index == 0:
                    self._warn_of_cut(self._layout.cut_values(obs))
                self._writers[self._current](index, obs)
                if self._layout.all_finite(_row(self.obs, index)):
                    lane.record_reset(seed)
                    return
                lane.record_crash(self._nonfinite(index, "first observation"))
            seed, make_anew = lane.draw_seed(), True

    def _make_anew(self, index: int) -> None:
        make = functools.partial(make_lane_env, self._env_fn[index])
        self._envs[index] = recreate(make, self._envs[index])
        self._step_env[index] = self._envs[index].step

    def _wrapped_envs(self) -> Sequence[AnyEnv]:
        return self._envs

    def _reset_lanes(self, lanes: list[int]) -> None:
        for index in lanes:
            self._begin_episode(index, self._lanes[index].draw_seed())

    def _restore(self, state: State) -> list[int]:
        is_back = [self._replay(index, state["lanes"][index]) for index in self._all]
        is_equal = rows_equal(self.obs, state["obs"])
        return [index for index in self._all if not (is_back[index] and is_equal[index])]

    def _replay(self, index: int, saved: State) -> bool:
        """Reset one env with its seed and play its actions again; return whether that was possible."""
        load_wrapper_states(self._envs[index], saved["wrappers"])
        if not saved["can_replay"]:
            return False
        lane, env = self._lanes[index], self._envs[index]
        seed, actions = saved["reset_seed"], self._actions.split(saved["actions"].astype(self._actions.dtype))
        lane.record_reset(seed)
        try:
            obs = play_again(env, seed=seed, options=lane.options, actions=actions, note=lane.journal.append)
        except Exception as error:  # an env may raise anything; the lane counts as lost
            logger.warning("env %d broke while its actions were played again: %s", index, error)
            return False
        self._writers[self._current](index, obs)
        return True

    def _close_envs(self) -> None:
        close_envs(dict(enumerate(self._envs)))


def _check_rewards(rewards: list[SupportsFloat]) -> None:
    for reward in rewards:
        if fault := reward_fault(reward):
            raise EnvError(fault)


def _report(
    rows: Array, next_obs: Obs, reward: Array, ended: list[_Ended], infos: dict[int, Mapping[str, Any]]
) -> StepBatch:
    terminated, truncated = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
    for row, _, is_terminated, is_truncated in ended:
        terminated[row], truncated[row] = is_terminated, is_truncated
    return StepBatch(rows, next_obs, reward, terminated, truncated, infos, NO_LANES)


def _row(obs: Obs, index: int) -> Obs:
    """Return a view of one row, [1, O...]."""
    if isinstance(obs, dict):
        return {key: array[index : index + 1] for key, array in obs.items()}
    return obs[index : index + 1]
