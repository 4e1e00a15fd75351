"""Collect a number of whole episodes at a time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from ding_like.data.batch import EpisodeBatch, TransitionBatch
from ding_like.data.records import EpisodeRecord
from ding_like.data.rollout import Rollout
from ding_like.data.rows import as_batch
from ding_like.errors import ConfigError
from ding_like.utils.registries import SERIAL_COLLECTOR_REGISTRY
from ding_like.worker.collector.base import LoopCollector


@SERIAL_COLLECTOR_REGISTRY.register("episode")
class EpisodeSerialCollector(LoopCollector):
    """Collect exactly `n_episode` episodes, all begun within the call, so that short ones are not preferred.

    Stopping at the first n episodes that *end* would favour short ones; here n episodes are begun, an env takes the
    next one when it ends its own, and an env with none left stands still until all are over.
    """

    config: dict[str, Any] = dict(
        type="episode",
        # Keys of DI-engine's configs: see `without_effect`.
        deepcopy_obs=False,
        transform_obs=False,
        # Iterations of the learner between two log lines.
        collect_print_freq=100,
        # Return training samples, as the policy's `segment` makes them, in place of episodes.
        get_train_sample=False,
        # Hand each episode to the env manager's `reward_shaping(env_id, transitions)`.
        reward_shaping=False,
    )

    def collect(
        self, n_episode: int | None = None, train_iter: int = 0, policy_kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Return `n_episode` episodes (default: the policy's) as an EpisodeBatch, or training samples.

        Raises ConfigError if nobody says how many, or if there are fewer episodes than envs.
        """
        loop, policy = self._parts()
        target = self._policy_attribute("n_episode", None) if n_episode is None else n_episode
        if target is None:
            raise ConfigError("collect() needs n_episode: pass it, or set policy.collect.n_episode in the config.")
        if target < loop.rollout.num_lanes:
            raise ConfigError(
                f"n_episode {target} is fewer than {loop.rollout.num_lanes} envs: every env begins one. "
                "Raise policy.collect.n_episode, or lower env.collector_env_num."
            )
        self._begin_at_episode_starts()
        loop, _ = self._parts()
        started, first_step = time.perf_counter(), loop.env_steps
        episodes = self._play(target, dict(policy_kwargs or {}), train_iter)
        if self._cfg.get("reward_shaping"):
            self._shape_rewards(loop.rollout)
        data = loop.take(policy.segment if self._cfg.get("get_train_sample") else _whole_episodes)
        self._count(episodes, first_step=first_step, samples=len(data), started_s=started, train_iter=train_iter)
        if self._cfg.get("get_train_sample"):
            return data
        return EpisodeBatch(data, np.append(0, np.flatnonzero(data["done"]) + 1))

    def _begin_at_episode_starts(self) -> None:
        """Break off open episodes that an earlier call with another collector or policy may have left."""
        loop, _ = self._parts()
        if loop.is_mid_episode:
            self.reset_env()

    def _play(self, target: int, setting: dict[str, Any], train_iter: int) -> list[EpisodeRecord]:
        loop, _ = self._parts()
        left = target - loop.rollout.num_lanes
        idle = np.zeros(loop.rollout.num_lanes, bool)
        episodes: list[EpisodeRecord] = []
        while len(episodes) < target:
            for episode in loop.step(setting, policy_version=train_iter, idle=idle):
                episodes.append(episode)
                if left:
                    left -= 1
                else:
                    idle[episode.lane] = True
        return episodes

    def _shape_rewards(self, rollout: Rollout) -> None:
        shape = getattr(self._env, "reward_shaping", None)
        if shape is None:
            raise ConfigError(
                "collector.reward_shaping is True, but the env manager has no reward_shaping(env_id, transitions)."
            )
        data, _ = _whole_episodes(rollout)
        rewards = []
        for episode in EpisodeBatch(data, np.append(0, np.flatnonzero(data["done"]) + 1)):
            shaped = as_batch(shape(int(episode["env_id"][0]), episode.to_list()))
            if shaped is None or len(shaped) != len(episode):
                raise ConfigError("reward_shaping must return the transitions it was given, with their `reward`.")
            rewards.append(shaped["reward"])
        lanes = rollout.as_lanes()
        rollout["reward"][lanes.row.T[lanes.valid.T]] = np.concatenate(rewards)


def _whole_episodes(rollout: Rollout) -> tuple[TransitionBatch, np.ndarray]:
    """Return the rows lane by lane in order of time, and nothing to keep."""
    lanes = rollout.as_lanes()
    rows = lanes.row.T[lanes.valid.T]
    return TransitionBatch(rollout.columns()).take(rows), np.zeros(rollout.num_lanes, np.int64)
