"""Make what the driver of a scheme is made of: it has the learner, all rows, and the newest weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ding_like.comm.channels import Version, Weights
from ding_like.comm.weights.extract import state_of
from ding_like.comm.workers.host import WorkerHandle
from ding_like.comm.workers.weights import HostWeightPublisher
from ding_like.config import FrozenConfig
from ding_like.pipeline.build.factories import Algorithm
from ding_like.pipeline.build.scheme import build_driver
from ding_like.pipeline.build.serial import Components
from ding_like.pipeline.roles.collect import CollectRole
from ding_like.pipeline.roles.gradient_rounds import Driver, GradientSettings
from ding_like.pipeline.roles.intake import Intake
from ding_like.pipeline.roles.remote_collectors import RemoteCollectors
from ding_like.pipeline.roles.train import TrainRole
from ding_like.pipeline.runner import collect_at_random, collect_role, has_priorities, rows_of, store_of
from ding_like.pipeline.sample_unit import plays_episodes, steps_per_row
from ding_like.pipeline.statistics import ENV_WRAPPERS, MergedStatistics
from ding_like.types import Array, State

# Later than that of a policy as a collector has made it, so that even the first weights are taken.
_ATTEMPT = 1
_RANDOM_STEPS = 1_024  # env steps of a call at a run's begin: one call of all of them may take longer than it may
_LEAST_STEPS = 64  # env steps of an asynchronous call: fewer cost more to send than to collect


class DriverEnd:
    """Hold a run's parts, the way of its rows and its weights, for those that collect and learn for it.

    No update is taken while the buffer holds fewer than `least_rows` rows.
    """

    def __init__(self, cfg: FrozenConfig, parts: Components, *, least_rows: int = 0) -> None:
        self._policy_cfg = cfg.policy
        self._cfg = cfg
        self.parts = parts
        self.rows = rows_of(
            cfg,
            parts,
            store=store_of(parts),
            batch_size=cfg.policy.learn.batch_size,
            counts_rows=True,
            attempt=_ATTEMPT,
            least_rows=least_rows,
        )
        self._published: Version | None = None
        self._first_iter = parts.learner.train_iter

    @classmethod
    def of(cls, algo: Algorithm, *, collects: bool) -> DriverEnd:
        """Return what the config says that an algorithm was made from; with `collects` the driver has envs for that."""
        own = algo.factories
        parts = build_driver(
            own.cfg,
            seed=own.seed,
            env_setting=own.env_setting,
            model=own.model,
            dynamic_seed=own.dynamic_seed,
            collects=collects,
        )
        return cls(own.cfg, parts)

    @property
    def random_rows(self) -> int:
        """Return the rows of random actions that a run begins with."""
        return int(self._policy_cfg.random_collect_size)

    @property
    def random_share(self) -> int:
        """Return the rows of random actions that a worker is asked for at a time, so that it answers soon.

        Of whole episodes it plays one in each of its lanes, as a serial run does at a time.
        """
        if self.collects_episodes:
            return self.least_share
        return max(1, _RANDOM_STEPS // steps_per_row(self._policy_cfg))

    @property
    def least_share(self) -> int:
        """Return the fewest rows that a worker can collect at a time, or whole episodes: one in each lane."""
        return int(self._cfg.env.collector_env_num) if self.collects_episodes else 1

    @property
    def collects_episodes(self) -> bool:
        """Tell whether collectors are asked for whole episodes."""
        return plays_episodes(self._policy_cfg)

    @property
    def is_on_policy(self) -> bool:
        """Tell whether rows may be learned from only by the policy that collected them."""
        return bool(self._policy_cfg.on_policy)

    def segment_rows(self, asked: int, workers: int) -> int:
        """Return the rows of an asynchronous call (of whole episodes: episodes), by default what suits the policy."""
        collect = self._policy_cfg.collect
        if asked or not collect.get("n_sample"):
            return asked or max(self.least_share, -(-int(collect.get("n_episode") or 1) // workers))
        least = 1 if self.is_on_policy else -(-_LEAST_STEPS // steps_per_row(self._policy_cfg))
        return max(int(collect.n_sample), least)

    def newest(self) -> Version:
        """Return the version of the learner's weights."""
        return Version(_ATTEMPT, self.parts.learner.train_iter)

    # --- collecting

    def collect_role(self) -> CollectRole:
        """Return the role of the driver's own collector."""
        return collect_role(self.parts, self.rows)

    def collect_at_random(self) -> None:
        """Fill the buffer with random actions by the driver's own collector."""
        collect_at_random(self._cfg, self.parts)
        self.rows.env_step = self.parts.collector.envstep

    def intake(self, *, max_policy_lag: int | None) -> Intake:
        """Return what takes in the rows of other collectors."""
        report, statistics = self.parts.collector, self.parts.statistics
        assert isinstance(report, RemoteCollectors), "the parts were built for collectors elsewhere"
        return Intake(
            self.rows,
            report,
            newest=self.newest,
            statistics=statistics if isinstance(statistics, MergedStatistics) else None,
            max_policy_lag=max_policy_lag,
            follows_episodes=self.parts.buffer is not None and self.parts.buffer.needs_env,
        )

    def publish(
        self, publisher: HostWeightPublisher, wait_s: float | None, *, interval: int, timeout_s: float
    ) -> list[WorkerHandle]:
        """Send the weights to all collectors after every `interval` updates, and wait for `wait_s` until they came.

        Return the collectors that do not have them then. The first weights are waited for in any case: a collector
        has none before.
        """
        update = self.parts.learner.train_iter
        if self._published is None or update - self._published.update >= interval:
            wait_s = timeout_s if self._published is None else wait_s
            self._published = self.newest()
            publisher.publish(self.acting(), wait_s=None)
        return [] if wait_s is None else publisher.bring(wait_s=wait_s)

    def oldest(self) -> Version | None:
        """Return the version of the weights that rows of a round must be collected with; None: they may be of any."""
        return self._published if self.is_on_policy else None

    def acting(self, *, with_statistics: bool = True) -> Weights:
        """Return all that an actor needs: the collect mode's state, and by what its envs are normalised.

        Those who only compute actions need no statistics of envs. The tensors are the learner's own.
        """
        state, merged = self.parts.policy.collect_mode.state_dict(), self.statistics() if with_statistics else {}
        return Weights("policy", self.newest(), state_of({**state, ENV_WRAPPERS: merged} if merged else state))

    def statistics(self) -> dict[str, dict[str, Array]]:
        """Return what the envs' wrappers have observed, by wrapper and field; empty where none learns anything."""
        statistics = self.parts.statistics
        return statistics.weights() if isinstance(statistics, MergedStatistics) else {}

    def said(self) -> dict[str, Any]:
        """Return what is said of the rows so far, by the names of a collector's info."""
        collector = self.parts.collector
        episodes = {"TrainReward": collector.mean_return, "TrainLength": collector.mean_length}
        return {"Episodes": episodes, "EnvSteps": self.rows.env_step, "NumberSamples": self.rows.num_rows}

    def describe(self) -> dict[str, str]:
        """Return how collectors elsewhere fare: rows of a run's panel."""
        return self.parts.collector.describe() if isinstance(self.parts.collector, RemoteCollectors) else {}

    # --- learning

    def rows_state(self) -> State:
        """Return how much was collected, and how many updates were made of it: those lost on their way are not."""
        if self.parts.buffer is None:
            return self.rows.state_dict()
        made = self.parts.learner.train_iter - self._first_iter  # of a buffer, each update is of a batch of its own
        return self.rows.state_dict(num_lost=max(0, self.rows.num_drawn - made))

    def train_role(self) -> TrainRole:
        """Return the role that learns in this process, from the run's rows."""
        return TrainRole(self.parts.learner, self.rows, with_priority=has_priorities(self._cfg, self.parts))

    def driver(self, collect: Callable[[], Mapping[str, Any]], settings: GradientSettings) -> Driver:
        """Return what gradient strategies are given."""
        parts = self.parts
        priorities = has_priorities(self._cfg, parts)
        return Driver(parts.learner, parts.policy, self.rows, collect, priorities, settings)
