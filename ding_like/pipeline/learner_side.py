"""Components of a run whose collectors are remote: the learner, all rows, and the newest weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from ding_like.comm.channels import CollectRequest, RowSink, Version, Weights
from ding_like.comm.weights.encode import Encoded, encode
from ding_like.comm.weights.extract import state_of
from ding_like.config import FrozenConfig, deep_merge
from ding_like.errors import ConfigError
from ding_like.pipeline.checks import plays_episodes, steps_per_row
from ding_like.pipeline.collect import PolicyWeights, RolloutWorker, collect_at_random
from ding_like.pipeline.components import Components, build_serial
from ding_like.pipeline.envs import EnvSetting
from ding_like.pipeline.factories import ATTEMPT, Algorithm, LearnRows, SchemeFactories
from ding_like.pipeline.remote_collectors import RemoteCollectors, RowReceiver
from ding_like.pipeline.rows import RowQueue
from ding_like.pipeline.self_play import has_league
from ding_like.pipeline.statistics import ENV_WRAPPERS, MergedStatistics
from ding_like.policy.base import device_named
from ding_like.types import Array, EnvManager, Info, Setting, State
from ding_like.worker.collector.stop_rule import StopRule


def build_driver(
    cfg: FrozenConfig,
    *,
    seed: int,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    dynamic_seed: bool = True,
    collects: bool = False,
    device: str | None = None,
) -> Components:
    """Return the parts of a run with remote collectors: as a serial run's, but for envs to collect in.

    The policy, the learner and the buffer draw what those of a serial run draw. With `collects` the run's driver
    collects by itself, and the parts are a serial run's. `device` stands in place of what `policy.cuda` says. Raises
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


_RANDOM_STEPS = 1_024  # env steps of a call at a run's begin: one call of all of them may take longer than it may
_LEAST_STEPS = 64  # env steps of an asynchronous call: fewer cost more to send than to collect


class LearnerSide:
    """Learner's side of a run: its components, rows and weights, for workers that collect and learn for it.

    No update is taken while the buffer holds fewer than `least_rows` rows.
    """

    def __init__(self, cfg: FrozenConfig, parts: Components, *, least_rows: int = 0) -> None:
        policy = cfg.policy
        self.cfg = cfg
        self.parts = parts
        self.rows = RowQueue(
            cfg, parts.buffer, newest=self.newest, env_step=parts.collector.envstep, least_rows=least_rows
        )
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

    @classmethod
    def of(cls, own: SchemeFactories, *, collects: bool) -> LearnerSide:
        """Return the side of a run that factories were made for; with `collects` it has envs to collect in."""
        parts = build_driver(
            own.cfg, seed=own.seed, env_setting=own.env_setting, model=own.model, dynamic_seed=own.dynamic_seed,
            collects=collects,
        )  # fmt: skip
        return cls(own.cfg, parts)

    def segment_rows(self, asked: int, workers: int) -> int:
        """Return the rows of an asynchronous call (of whole episodes: episodes), by default what suits the policy."""
        collect = self.cfg.policy.collect
        if asked or not collect.get("n_sample"):
            return asked or max(self.least_share, -(-int(collect.get("n_episode") or 1) // workers))
        least = 1 if self.is_on_policy else -(-_LEAST_STEPS // steps_per_row(self.cfg.policy))
        return max(int(collect.n_sample), least)

    def newest(self) -> Version:
        """Return the version of the learner's weights."""
        return Version(ATTEMPT, self.parts.learner.train_iter)

    # --- collecting

    def collect_at_random(self) -> None:
        """Fill the buffer with random actions by the driver's own collector."""
        collect_at_random(self.cfg, self.parts)
        self.rows.env_step = self.parts.collector.envstep

    def intake(self, *, max_policy_lag: int | None) -> RowReceiver:
        """Return the receiver of the rows of remote collectors."""
        report, statistics = self.parts.collector, self.parts.statistics
        assert isinstance(report, RemoteCollectors), "the parts were built for remote collectors"
        return RowReceiver(
            self.rows,
            report,
            newest=self.newest,
            statistics=statistics if isinstance(statistics, MergedStatistics) else None,
            max_policy_lag=max_policy_lag,
            follows_episodes=self.parts.buffer is not None and self.parts.buffer.needs_env,
        )

    def acting(self, *, with_statistics: bool = True) -> Weights:
        """Return all that an actor needs: the collect mode's state, and by what its envs are normalised.

        Inference servers need no statistics of envs. The tensors are the learner's own.
        """
        state, merged = self.parts.policy.collect_mode.state_dict(), self.statistics() if with_statistics else {}
        return Weights("policy", self.newest(), state_of({**state, ENV_WRAPPERS: merged} if merged else state))

    def statistics(self) -> dict[str, dict[str, Array]]:
        """Return what the envs' wrappers have observed, by wrapper and field; empty where none learns anything."""
        statistics = self.parts.statistics
        return statistics.weights() if isinstance(statistics, MergedStatistics) else {}

    def describe(self) -> dict[str, str]:
        """Return the status of remote collectors: rows of a run's panel."""
        return self.parts.collector.describe() if isinstance(self.parts.collector, RemoteCollectors) else {}

    # --- learning

    def rows_state(self) -> State:
        """Return how much was collected, and how many updates were made of it: those lost on their way are not."""
        if self.parts.buffer is None:
            return self.rows.state_dict()
        made = self.parts.learner.train_iter - self._first_iter  # of a buffer, each update is of a batch of its own
        return self.rows.state_dict(num_lost=max(0, self.rows.num_drawn - made))

    def train_next(self) -> bool:
        """Train on the next batch of the run's rows; return False if there is none."""
        return self.rows.train_next(self.parts.learner)


class RunAlgorithm(Algorithm):
    """Algorithm of a run's local gradient worker: its learner computes and applies, with its hooks and counts."""

    keeps_parts = True  # what the run learns with is not replaced

    def __init__(self, factories: SchemeFactories, end: LearnerSide) -> None:
        self._end = end
        super().__init__(factories, end.parts.policy)
        self.start_steps = 0  # rows of random actions are collected before the first order

    @property
    def num_updates(self) -> int:
        """Number of updates of the learner."""
        return self._end.parts.learner.train_iter

    @num_updates.setter
    def num_updates(self, value: int) -> None:
        if self._end.parts.learner.train_iter < value:
            self._end.parts.learner.last_iter.update(value)

    def learning_storage(self, index_worker: int, max_policy_lag: int | None) -> LearnRows:
        """Return the run's rows."""
        end, parts = self._end, self._end.parts
        has_remote = isinstance(parts.collector, RemoteCollectors)
        intake = end.intake(max_policy_lag=max_policy_lag) if has_remote else None
        return LearnRows(end.rows, self, intake=intake)

    def minibatches(self, batch: Any, env_step: int) -> Iterable[Any]:
        """Divide a batch as the policy wants it."""
        return self._end.parts.learner.minibatches(batch, env_step)

    def rollout_worker(
        self, envs: EnvManager, index_worker: int, index_parent: int, weights: PolicyWeights | None = None,
        storage: RowSink | None = None,
    ) -> RolloutWorker:  # fmt: skip
        """Return the run's own collector, which acts with the learner's policy."""
        assert storage is not None, "a worker collects into its storage"
        return RunRolloutWorker(self.factories, self._end, storage)

    def compute_gradients(self, minibatch: Any) -> tuple[None, Info]:
        """Compute the gradient of a minibatch, which stays in the policy."""
        return None, self._end.parts.learner.compute_gradients(minibatch)

    def apply_gradients(self, gradients: State | None = None, info: Info | None = None) -> None:
        """Take the step, and run the learner's hooks."""
        if gradients is not None:
            self.policy.load_gradient(gradients)
        learner = self._end.parts.learner
        learner.apply_gradients(info)
        self.priority = learner.priority_info.get("priority")

    def count_update(self, info: Info) -> None:
        """Count an update that other processes have applied, and run the learner's hooks."""
        self._end.parts.learner.count_update(info)

    def fetch_before_saving(self, fetch: Callable[[], None]) -> None:
        """Have `fetch` bring what other processes have learned before the learner's state is read."""
        learner = self._end.parts.learner
        own, counts = learner.policy.state_dict, learner.state_dict()

        def state_dict() -> State:
            fetch()
            return own()

        learner.policy = learner.policy._replace(state_dict=state_dict)
        learner.load_state_dict(counts)

    def acting_weights(self, version: int, statistics: Mapping[str, Any]) -> Encoded:
        """Return what collectors act with, and by what their envs normalise."""
        return encode(self._end.acting())

    def save_model(self, name: str) -> None:
        """Write a checkpoint of the learner under this name."""
        self._end.parts.learner.save_checkpoint(name)


class RunRolloutWorker(RolloutWorker):
    """Run's own collector, whose segments go to a worker's storage."""

    def __init__(self, factories: SchemeFactories, end: LearnerSide, storage: RowSink) -> None:
        parts = end.parts
        self._cfg, self._fitted = factories.cfg, factories.fitted
        self.envs, self.policy, self.collector = parts.own_env, parts.policy, parts.own_collector
        self.weights, self.sink = PolicyWeights(parts.policy), storage
        self._commander = parts.commander
        self.random_steps, self.setting, self._acts_at_random = 0, {}, False

    def collect(self, request: CollectRequest, *, stop: StopRule | None = None) -> CollectRequest:
        return self.collect_segment(request, stop=stop)

    def collect_setting(self, request: CollectRequest) -> Setting:
        setting: Setting = self._commander.step()
        return setting

    def _observed(self) -> Mapping[str, Array]:
        return {}  # the envs normalise by what they observe themselves

    def close(self) -> None:
        """Do nothing: the collector is the run's."""
