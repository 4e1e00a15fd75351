"""Collectors of one policy's training samples, and of whole episodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ding_like.data.batch import EpisodeBatch, TransitionBatch
from ding_like.data.records import EpisodeRecord
from ding_like.data.rollout import Rollout
from ding_like.data.rows import INFO_COLUMN, CollectMode, as_batch
from ding_like.errors import ConfigError, TrainingError
from ding_like.types import Array, EnvManager, RewardShaping, Setting, State
from ding_like.utils.log import one_time_warning
from ding_like.utils.registries import SERIAL_COLLECTOR_REGISTRY
from ding_like.worker.collector.base import BaseSerialCollector, LoopCollector, PolicyMode, Samples, Unit, attribute_of
from ding_like.worker.collector.loop import Episodes, RolloutLoop, StopRule, step_until, whole_number


class RowTaker:
    """Samples of one policy, `first` (an earlier surplus) before all others, until there are `target`.

    `mark` is applied to samples as they are taken.
    """

    def __init__(
        self,
        loop: RolloutLoop,
        mode: CollectMode,
        target: int,
        *,
        first: Samples | None = None,
        mark: Callable[[Samples], Samples] | None = None,
    ) -> None:
        self._loop = loop
        self._mode = mode
        self._mark = mark
        self._target = target
        self._samples = first
        self._have = len(first) if first is not None else 0
        self._dropped = 0  # of `first`, because the columns of a later policy are others

    @property
    def is_full(self) -> bool:
        """Whether all samples are there."""
        return self._have >= self._target

    def count(self) -> None:
        """Take the loop's rows after a step, if they are all that is missing."""
        missing, loop = self._target - self._have, self._loop
        # A policy never makes more samples than rows, so most steps need no closer look.
        if 0 < missing <= len(loop.rollout) and loop.num_ready(self._mode.num_ready) >= missing:
            self._take()

    def _take(self) -> None:
        rows: Samples = self._loop.take(self._mode.segment)
        # Before they are joined: the surplus of the last call was marked in that call.
        rows = rows if self._mark is None else self._mark(rows)
        self._samples, dropped = join(self._samples, rows)
        self._dropped += dropped
        self._have = len(self._samples)

    def divide(self, *, on_policy: bool, drop_extra: bool) -> tuple[Samples, Samples | None, int]:
        """Return (samples, at most `target` with `drop_extra`; those of the next call; how many are dropped).

        With `on_policy` the surplus is dropped, with the rows that no sample was made of: the policy that made them is
        gone by the next call. A collection that was stopped early has fewer samples: all that can be made.
        """
        if not self.is_full and len(self._loop.rollout):
            self._take()
        samples: Samples = TransitionBatch({}) if self._samples is None else self._samples
        extra = max(self._have - self._target, 0) if drop_extra else 0
        surplus = samples[self._target :] if extra else None
        samples = samples[: self._target] if extra else samples
        if not on_policy:
            return samples, surplus, self._dropped
        dropped = self._dropped + extra + len(self._loop.rollout)
        self._loop.forget_rows()
        return samples, None, dropped


def join(first: Samples | None, second: Samples) -> tuple[Samples, int]:
    """Return samples in order, batches as columns and anything else as a list, and how many of `first` were dropped.

    Those are dropped whose columns are others: an earlier policy left them, and no batch can hold both.
    """
    if first is None or not len(first):
        return second, 0
    if not len(second):
        return first, 0
    if not isinstance(first, TransitionBatch) or not isinstance(second, TransitionBatch):
        return [*first, *second], 0
    if first.schema != second.schema:
        return second, len(first)
    return TransitionBatch.concat([first, second]), 0


@SERIAL_COLLECTOR_REGISTRY.register("sample")
class SampleSerialCollector(LoopCollector):
    """Collector of `n_sample` training samples: transitions, n-step rows or sequences, as the policy segments them.

    Every step asks all ready lanes, so a call may make more than it was asked for: the surplus leads the next call
    (on-policy: it is dropped and counted, as the policy that made it is gone).
    """

    config: dict[str, Any] = {"type": "sample", **BaseSerialCollector.config}
    unit: ClassVar[Unit] = "rows"

    _has_warned_of_surplus = False

    def reset(self, _policy: PolicyMode | None = None, _env: EnvManager | None = None) -> None:
        """Reset env, policy, surplus and all counters."""
        self._surplus: Samples | None = None
        super().reset(_policy, _env)

    def collect_rows(self, rows: int | None = None, **settings: Any) -> Samples:  # those of `collect`
        """Collect `rows` training samples, which is what `collect` counts."""
        return self.collect(rows, **settings)

    def collect(
        self,
        n_sample: int | None = None,
        train_iter: int = 0,
        drop_extra: bool = True,
        random_collect: bool = False,
        record_random_collect: bool = True,
        policy_kwargs: Setting | None = None,
        level_seeds: Mapping[int, int] | None = None,
        *,
        stop: StopRule | None = None,
    ) -> Samples:
        """Return `n_sample` training samples (default: the policy's), as a TransitionBatch where rows stack.

        `train_iter` is stored as the rows' `policy_version`. With `drop_extra=False` the surplus is returned too.
        `policy_kwargs` goes to the actor (`eps`). `level_seeds` (env id -> seed) adds a column `seed`.
        With `record_random_collect=False` a call with `random_collect` leaves the statistics alone. If `stop` returns
        True before, there are fewer samples: those that can be made by then. Raises ConfigError if neither `n_sample`
        nor the policy gives a number.
        """
        loop, policy = self._parts()
        target = self._target(n_sample, "n_sample", policy)
        if target % loop.rollout.num_lanes and not random_collect and not self._has_warned_of_surplus:
            self._has_warned_of_surplus = True  # whatever later calls ask for
            one_time_warning(
                f"n_sample {target} is not a multiple of {loop.rollout.num_lanes} envs: each call keeps a surplus "
                "for the next one."
            )
        started, first_step = time.perf_counter(), loop.env_steps
        mark = None if level_seeds is None else partial(_with_seeds, level_seeds=level_seeds)
        taker = RowTaker(loop, policy, target, first=self._surplus, mark=mark)
        self._surplus = None
        setting = dict(policy_kwargs or {})
        episodes: list[EpisodeRecord] = []
        while not taker.is_full and not (stop is not None and stop()):
            episodes += loop.step(setting, policy_version=train_iter)
            taker.count()
        samples, self._surplus, dropped = taker.divide(on_policy=self._on_policy, drop_extra=drop_extra)
        self._report.total.dropped_steps += dropped
        if record_random_collect or not random_collect:
            self._count(episodes, first_step=first_step, samples=len(samples), started_s=started, train_iter=train_iter)
        return samples

    @property
    def num_surplus(self) -> int:
        """Number of samples of the last call that lead the next one."""
        return 0 if self._surplus is None else len(self._surplus)

    def num_ready(self) -> int:
        """Return the number of samples that the steps taken so far would make, beside a surplus."""
        loop, policy = self._parts()
        return loop.num_ready(policy.num_ready)

    def state_dict(self) -> State:
        """Return everything that an exact resume needs, the env manager's journal included."""
        surplus = self._surplus
        columns = dict(surplus.columns) if isinstance(surplus, TransitionBatch) else surplus
        return {**super().state_dict(), "surplus": columns}

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned; open episodes are played again by the env manager."""
        super().load_state_dict(state)
        surplus = state["surplus"]
        self._surplus = TransitionBatch(surplus) if isinstance(surplus, dict) else surplus


def _with_seeds(rows: Samples, *, level_seeds: Mapping[int, int]) -> TransitionBatch:
    """Return the rows with a column `seed`, the level of the env that each was made in."""
    if not isinstance(rows, TransitionBatch) or "env_id" not in rows.columns:
        raise ConfigError(
            "level_seeds needs the env of each row, but the policy's rows have no 'env_id': let its segment (in "
            "DI-engine's style, process_transition) keep the loop's columns."
        )
    envs, of_row = np.unique(rows["env_id"], return_inverse=True)
    return rows.with_columns(seed=np.array([level_seeds[int(env)] for env in envs], np.int64)[of_row])


@SERIAL_COLLECTOR_REGISTRY.register("episode")
class EpisodeSerialCollector(LoopCollector):
    """Collector of exactly `n_episode` episodes, all begun within the call, so that short ones are not preferred."""

    config: dict[str, Any] = {
        "type": "episode",
        **BaseSerialCollector.config,
        # Return training rows, as the policy's `segment` makes them, in place of episodes.
        "get_train_sample": False,
        # Pass each episode to the env manager's `reward_shaping(env_id, transitions)`.
        "reward_shaping": False,
    }
    unit: ClassVar[Unit] = "episodes"

    def collect(
        self, n_episode: int | None = None, train_iter: int = 0, policy_kwargs: Setting | None = None
    ) -> EpisodeBatch | Samples:
        """Return `n_episode` episodes (default: the policy's) as an EpisodeBatch, or training samples.

        Raises ConfigError without a number of episodes, if there are fewer than envs, or if rewards are to be
        shaped and the env manager does not.
        """
        loop, policy = self._parts()
        rule = Episodes(self._target(n_episode, "n_episode", policy), loop.rollout.num_lanes)
        shape = self._reward_shaping()
        if loop.is_mid_episode:  # left by an earlier call with another collector or policy
            self.reset_env()
            loop, _ = self._parts()
        started, first_step = time.perf_counter(), loop.env_steps
        episodes: list[EpisodeRecord] = []
        for ended in step_until(loop, rule, dict(policy_kwargs or {}), policy_version=train_iter):
            episodes += ended
        if shape is not None:
            _shape_rewards(loop.rollout, shape)
        gives_samples = bool(self._cfg.get("get_train_sample"))
        data = loop.take(policy.segment if gives_samples else whole_episodes)
        self._count(episodes, first_step=first_step, samples=len(data), started_s=started, train_iter=train_iter)
        return data if gives_samples else as_episodes(data)

    def collect_rows(
        self,
        rows: int | None = None,
        *,
        train_iter: int = 0,
        policy_kwargs: Setting | None = None,
        stop: StopRule | None = None,
    ) -> Samples:
        """Collect the policy's `n_episode` episodes (default: one a lane), and again while they have fewer than `rows`.

        Episodes are never cut, so there may be more rows; `stop` is called between two lots of episodes.
        Raises ConfigError if whole episodes are to be handed out, TrainingError if episodes make no row.
        """
        if not self._cfg.get("get_train_sample"):
            raise ConfigError("collector.get_train_sample is False: whole episodes are no rows. Set it to True.")
        loop, policy = self._parts()
        number = attribute_of(policy, "n_episode", None) or loop.rollout.num_lanes
        samples: Samples | None = None
        while samples is None or (len(samples) < (rows or 1) and (stop is None or not stop())):
            more = self.collect(whole_number("n_episode", number), train_iter, policy_kwargs)
            assert not isinstance(more, EpisodeBatch), "get_train_sample is set"
            if not len(more):
                raise TrainingError(f"{number} whole episodes made no training row: see the policy's `segment`.")
            samples, _ = join(samples, more)
        return samples

    def _reward_shaping(self) -> RewardShaping | None:
        """Return what shapes rewards, None if nothing is to. Raises ConfigError if the env manager cannot."""
        if not self._cfg.get("reward_shaping"):
            return None
        shape = None if self._env is None else self._env.reward_shaping
        if shape is None:
            raise ConfigError(
                "collector.reward_shaping is True, but the env manager has no reward_shaping(env_id, transitions)."
            )
        return shape


def _shape_rewards(rollout: Rollout, shape: RewardShaping) -> None:
    """Replace each episode's rewards by those of the env manager."""
    data, _ = whole_episodes(rollout)
    rewards = []
    for episode in as_episodes(data):
        shaped = as_batch(shape(int(episode["env_id"][0]), episode.to_list()))
        if shaped is None or len(shaped) != len(episode):
            raise ConfigError("reward_shaping must return the transitions it was given, with their `reward`.")
        rewards.append(shaped["reward"])
    lanes = rollout.as_lanes()
    rollout["reward"][lanes.row.T[lanes.valid.T]] = np.concatenate(rewards)


def whole_episodes(rollout: Rollout) -> tuple[TransitionBatch, Array]:
    """Return the rows lane by lane in order of time, and nothing to keep."""
    lanes = rollout.as_lanes()
    rows = lanes.row.T[lanes.valid.T]
    # The envs' `info` was for `process_transition` alone: dicts are no column to be stored.
    columns = {name: column for name, column in rollout.columns().items() if name != INFO_COLUMN}
    return TransitionBatch(columns).take(rows), np.zeros(rollout.num_lanes, np.int64)


def as_episodes(rows: TransitionBatch) -> EpisodeBatch:
    """Split the rows of `whole_episodes` into episodes."""
    return EpisodeBatch(rows, np.append(0, np.flatnonzero(rows["done"]) + 1))
