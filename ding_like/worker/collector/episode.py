"""Collector of a number of whole episodes at a time."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import numpy as np

from ding_like.data.batch import EpisodeBatch, TransitionBatch
from ding_like.data.records import EpisodeRecord
from ding_like.data.rollout import Rollout
from ding_like.data.rows import INFO_COLUMN, as_batch
from ding_like.errors import ConfigError, TrainingError
from ding_like.types import Array, RewardShaping, Setting
from ding_like.utils.registries import SERIAL_COLLECTOR_REGISTRY
from ding_like.worker.collector.base import BaseSerialCollector, LoopCollector, Samples, Unit, attribute_of
from ding_like.worker.collector.loop import step_until
from ding_like.worker.collector.sample import join
from ding_like.worker.collector.stop_rule import Episodes, StopRule, whole_number


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
