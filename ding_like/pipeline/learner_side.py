"""Learner's side of a run whose rows workers collect: its components, all rows, and the newest weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from ding_like.comm.channels import CollectRequest, Version, Weights
from ding_like.comm.weights.extract import state_of
from ding_like.config import FrozenConfig, deep_merge
from ding_like.errors import ConfigError
from ding_like.pipeline.checks import has_league, plays_episodes, steps_per_row
from ding_like.pipeline.collect import collect_at_random, segment_of
from ding_like.pipeline.components import Components, build_serial
from ding_like.pipeline.envs import EnvSetting
from ding_like.pipeline.remote_collectors import Collected, RemoteCollectors, RowReceiver
from ding_like.pipeline.rows import RowQueue
from ding_like.pipeline.statistics import ENV_WRAPPERS, MergedStatistics
from ding_like.policy.base import device_named
from ding_like.types import Array, Info, State

# Later than that of a policy as a collector has made it, so that even the first weights are taken.
ATTEMPT = 1
_RANDOM_STEPS = 1_024  # env steps of a call at a run's begin: one call of all of them may take longer than it may
_LEAST_STEPS = 64  # env steps of an asynchronous call: fewer cost more to send than to collect


def build_driver(
    cfg: FrozenConfig, *, seed: int, env_setting: EnvSetting | None = None, model: torch.nn.Module | None = None,
    dynamic_seed: bool = True, collects: bool = False, device: str | None = None,
) -> Components:  # fmt: skip
    """Return the components of a run with remote collectors: as a serial run's, but for envs to collect in.

    The policy, the learner and the buffer draw what those of a serial run draw. With `collects` the run's process
    collects by itself, and the components are a serial run's. `device` replaces that of `policy.cuda`. Raises
    ConfigError for a league, whose games are played where the player learns, and for a device that is absent.
    """
    if device is not None:
        named = device_named(device)
        cfg = FrozenConfig(deep_merge(cfg, {"policy": {"cuda": False if named.type == "cpu" else str(named)}}))
    if not collects and has_league(cfg):
        raise ConfigError("policy.other.league needs its games where its player learns: run it with `ding -m serial`.")
    return build_serial(
        cfg, seed=seed, env_setting=env_setting, model=model, dynamic_seed=dynamic_seed,
        with_buffer=not cfg.policy.on_policy, collects=collects,
    )  # fmt: skip


class LearnerSide:
    """Learner, rows and newest weights of a run, or of one of its gradient workers, whose storage it is.

    The rows of remote collectors come through `receiver`, which drops those that are more than `max_policy_lag` updates
    old. No update is made while the buffer holds fewer than
    `least_rows` rows. `close` closes what was opened for this side alone.
    """

    def __init__(
        self, cfg: FrozenConfig, parts: Components, *, max_policy_lag: int | None = None, least_rows: int = 0,
        close: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        policy, buffer = cfg.policy, parts.buffer
        self.cfg, self.parts, self.close = cfg, parts, close
        self.rows = RowQueue(cfg, buffer, newest=self.newest, env_step=parts.collector.envstep, least_rows=least_rows)
        self._receiver: RowReceiver | None = None
        if isinstance(parts.collector, RemoteCollectors):
            self._receiver = RowReceiver(
                self.rows, parts.collector, newest=self.newest, max_policy_lag=max_policy_lag,
                statistics=parts.statistics if isinstance(parts.statistics, MergedStatistics) else None,
                follows_episodes=buffer is not None and buffer.needs_env,
            )  # fmt: skip
        self.run_env_step = 0  # of all gradient workers, as last reported here
        self._came: list[Collected] = []  # that `before_gradients` stores together
        self._first_iter = parts.learner.train_iter
        self.random_rows = int(policy.random_collect_size)  # rows of random actions that a run begins with
        self.is_on_policy = bool(policy.on_policy)  # rows are learned from only by the policy that collected them
        self.collects_episodes = plays_episodes(policy)
        # Fewest rows that a worker can collect at a time, or whole episodes: one in each lane.
        self.least_share = int(cfg.env.collector_env_num) if self.collects_episodes else 1
        # Rows of random actions that a worker is asked for at a time, so that it answers soon.
        self.random_share = self.least_share
        if not self.collects_episodes:
            self.random_share = max(1, _RANDOM_STEPS // steps_per_row(policy))

    @property
    def env_step(self) -> int:
        """Number of env steps of the run."""
        return self.rows.env_step

    @property
    def collects(self) -> bool:
        """Whether this process collects by itself: there are no remote collectors."""
        return self._receiver is None

    @property
    def receiver(self) -> RowReceiver:
        """Receiver of the rows of remote collectors."""
        assert self._receiver is not None, "the components were built for remote collectors"
        return self._receiver

    def newest(self) -> Version:
        """Return the version of the learner's weights."""
        return Version(ATTEMPT, self.parts.learner.train_iter)

    def segment_rows(self, asked: int, workers: int) -> int:
        """Return the rows of an asynchronous call (of whole episodes: episodes), by default what suits the policy."""
        collect = self.cfg.policy.collect
        if asked or not collect.get("n_sample"):
            return asked or max(self.least_share, -(-int(collect.get("n_episode") or 1) // workers))
        least = 1 if self.is_on_policy else -(-_LEAST_STEPS // steps_per_row(self.cfg.policy))
        return max(int(collect.n_sample), least)

    def collect_at_random(self) -> None:
        """Fill the buffer with random actions by the run's own collector."""
        collect_at_random(self.cfg, self.parts)
        self.rows.env_step = self.parts.collector.envstep

    # --- rows in

    def order_round(self) -> CollectRequest:
        """Return how many rows a round of collecting is to bring; 0: updates are behind."""
        request = self.rows.order()
        return request._replace(env_step=max(request.env_step, self.run_env_step))

    def insert_data_slice(self, data: object, info: Info) -> None:
        """Take the rows that one collector returned; `before_gradients` stores those of a round together."""
        self._came.append(Collected(info["Worker"], segment_of(data, info), info["CameS"], info["Asked"]))

    def before_gradients(self) -> None:
        """Store the rows that came."""
        came, self._came = self._came, []
        if self._receiver is not None:
            self._receiver.put(came, self.rows.order())
        else:
            for each in came:
                self.rows.put(each.segment)

    def insert_random(self) -> int:
        """Store the rows that came as those of random actions, which allow no updates; return how many there are."""
        came, self._came = self._came, []
        return self.receiver.put_random(came)

    def count_remote(self, infos: Iterable[Info]) -> Mapping[str, Any]:
        """Count the segments of other gradient workers; return the statistics of the envs' wrappers."""
        for info in infos:
            self.receiver.count_elsewhere(info["Worker"], info["Segment"], age_s=info["data_age_s"])
        return self.receiver.statistics()

    # --- batches out

    def generate_batches(self, num_mini_batch: int, mini_batch_size: int, num_epochs: int) -> Iterator[Any]:
        """Yield minibatches of the batches that are allowed by now, and None after the last one of each batch.

        The policy's config says how large they are.
        """
        learner = self.parts.learner
        while (batch := self.rows.next()) is not None:
            yield from learner.minibatches(batch, self.rows.env_step)
            self.rows.update_priorities(learner.priority_info.get("priority"))
            yield None

    # --- weights and reports

    def acting(self, statistics: Mapping[str, Any] | None = None) -> Weights:
        """Return all that an actor needs: the collect mode's state, and `statistics` that its envs normalise by.

        They are by default those that the run's workers have sent. The tensors are the learner's own.
        """
        state = self.parts.policy.collect_mode.state_dict()
        merged = self.statistics() if statistics is None else statistics
        return Weights("policy", self.newest(), state_of({**state, ENV_WRAPPERS: merged} if merged else state))

    def statistics(self) -> dict[str, dict[str, Array]]:
        """Return what the envs' wrappers have observed, by wrapper and field; empty where none learns anything."""
        statistics = self.parts.statistics
        return statistics.weights() if isinstance(statistics, MergedStatistics) else {}

    def describe(self) -> dict[str, str]:
        """Return the status of remote collectors: rows of a run's panel."""
        return {} if self.collects else self.receiver.report.describe()

    def rows_state(self) -> State:
        """Return how much was collected, and how many updates were made of it: those lost on their way are not."""
        if self.parts.buffer is None:
            return self.rows.state_dict()
        made = self.parts.learner.train_iter - self._first_iter  # of a buffer, each update is of a batch of its own
        return self.rows.state_dict(num_lost=max(0, self.rows.num_drawn - made))
