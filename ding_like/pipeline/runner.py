"""Run one iteration of a run at a time: collect what is ordered, then train on what came."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from ding_like.comm.channels import Version
from ding_like.comm.local import BatchOnce, LocalRows, RowStore
from ding_like.config import FrozenConfig
from ding_like.data.rows import adapt_collect_mode
from ding_like.errors import CommError
from ding_like.pipeline.build.serial import Components
from ding_like.pipeline.learners.lock_step import LockStep
from ding_like.pipeline.roles.collect import CollectRole
from ding_like.pipeline.roles.policy_weights import PolicyWeights
from ding_like.pipeline.roles.train import TrainRole
from ding_like.pipeline.update_ratio import UpdateRatio
from ding_like.policy import Policy
from ding_like.policy.random_policy import random_collect_mode
from ding_like.types import EnvManager, Setting, State
from ding_like.worker import EpisodeSerialCollector, IBuffer, SampleSerialCollector
from ding_like.worker.collector.base import array_manager


class RunnerLostError(CommError):
    """Loss of the workers that a runner needs; `Runner.rescue` tells whether its parts can be saved."""


class Runner(Protocol):
    """Steps of a run, called by `TrainingLoop`: one step is one iteration (collect, update)."""

    @property
    def setting(self) -> Setting:
        """Return what collectors were told last."""

    def start(self) -> None:
        """Begin a run, and not go on with one: collect the rows of random actions."""

    def step(self) -> None:
        """Run one iteration: collect and update. Raises RunnerLostError where the workers are lost."""

    def flush(self) -> None:
        """Bring the parts to a state that can be saved or evaluated: nothing is under way that would be torn."""

    def rescue(self) -> bool:
        """Settle after RunnerLostError, with whoever is left; tell whether the parts can be saved as they stand."""

    def workers(self) -> Mapping[str, str]:
        """Return how those who work for the run stand, for its panel."""

    def state_dict(self) -> State:
        """Return what a resumed run go on from, beside the parts; empty where it is nothing."""

    def load_state_dict(self, state: State) -> None:
        """Go on from what `state_dict` returned, in place of `start`. Raises RunnerLostError as `step` does."""

    def close(self) -> None:
        """End what was started, within 10 s; may be called again."""


class SerialRunner:
    """Runner that collects and trains in this process; several learners do so in lock step.

    With a buffer `update_per_collect` updates follow each segment of rows, fewer while it holds too little; without
    one, each batch is learned from once. Collector and learner share the policy. Once `is_leaving` a turn ends after
    the update under way; those that are still due are saved with the run, and made first when it goes on.
    """

    def __init__(
        self,
        cfg: FrozenConfig,
        parts: Components,
        *,
        lock_step: LockStep,
        batch_size: int,
        is_leaving: Callable[[], bool] = lambda: False,
    ) -> None:
        self._is_leaving = is_leaving
        self._is_broken_off = False  # the last turn
        self._cfg = cfg
        self._parts = parts
        self._lock_step = lock_step
        store = lock_step.store(BatchOnce() if parts.buffer is None else parts.buffer)
        self._rows = local_rows(
            cfg, store, newest=lambda: Version(0, parts.learner.train_iter), batch_size=batch_size,
            env_step=parts.collector.envstep, has_buffer=parts.buffer is not None,
        )  # fmt: skip
        self._collect = CollectRole(
            parts.own_collector, PolicyWeights(parts.policy), sink=lock_step.sink(self._rows),
            settings=lambda _: parts.commander.step(),
        )  # fmt: skip
        self._train = TrainRole(parts.learner, self._rows, with_priority=has_priorities(cfg, parts))

    @property
    def setting(self) -> Setting:
        """Return what the collector was told last."""
        return self._collect.setting

    def start(self) -> None:
        """Choose a league's first opponent, and fill the buffer with rows of random actions."""
        parts = self._parts
        if parts.league is not None:
            parts.league.begin()
        if self._cfg.policy.random_collect_size > 0:
            collect_at_random(self._cfg, parts)
            self._lock_step.count_steps()
            self._rows.env_step = parts.collector.envstep

    def step(self) -> None:
        """Collect a segment, and train on every batch that it allows."""
        self._collect.collect(self._rows.order(timeout_s=0.0))
        self._learn()

    def _learn(self) -> None:
        parts = self._parts
        self._is_broken_off = not self._train.train_ready(is_leaving=self._is_leaving)
        if parts.league is not None and not self._is_broken_off:
            parts.league.turn(train_iter=parts.learner.train_iter, env_step=parts.collector.envstep)

    def flush(self) -> None:
        """Do nothing: between two turns nothing is under way."""

    def rescue(self) -> bool:
        """Return True: the parts are all here."""
        return True

    def workers(self) -> Mapping[str, str]:
        """Return nothing: there are no others."""
        return {}

    def state_dict(self) -> State:
        """Return how many updates the last turn allowed and made, nothing where it was taken to its end."""
        return self._rows.state_dict() if self._is_broken_off else {}

    def load_state_dict(self, state: State) -> None:
        """Take the turn that was broken off to its end."""
        if state:
            self._rows.load_state_dict(state)
            self._learn()

    def close(self) -> None:
        """Do nothing: the parts are their owner's."""


def local_rows(
    cfg: FrozenConfig,
    store: RowStore,
    *,
    newest: Callable[[], Version],
    batch_size: int,
    counts_rows: bool = False,  # or episodes, of what goes to a buffer; on-policy, each segment is learned from once
    env_step: int = 0,
    least_rows: int = 0,  # in the store before the first update
    has_buffer: bool | None = None,
) -> LocalRows:
    """Return the queue of rows into a store, by the ratio of a config; without a buffer each batch is used once."""
    has_buffer = not isinstance(store, BatchOnce) if has_buffer is None else has_buffer
    collect, updates = cfg.policy.collect, cfg.policy.learn.update_per_collect if has_buffer else 1
    segment_rows = collect.get("n_sample") or collect.get("n_episode") or 1
    counts = counts_rows and has_buffer
    return LocalRows(
        store,
        UpdateRatio.per_rows(updates, segment_rows) if counts else UpdateRatio.per_segment(updates),
        segment_rows=segment_rows,
        batch_size=batch_size,
        newest=newest,
        env_step=env_step,
        counts_rows=counts and bool(collect.get("n_sample")),
        counts_episodes=counts and not collect.get("n_sample"),
        least_rows=least_rows,
    )


def has_priorities(cfg: FrozenConfig, parts: Components) -> bool:
    """Tell whether a run's rows are drawn by priority."""
    return parts.buffer is not None and bool(cfg.policy.priority)


def collect_at_random(cfg: FrozenConfig, parts: Components) -> None:
    """Fill a run's buffer with rows of random actions, by its own collector."""
    random_collect(cfg.policy, parts.policy, parts.own_collector, parts.own_env, parts.commander, parts.replay_buffer)


def random_collect(
    policy_cfg: Any,
    policy: Policy,
    collector: SampleSerialCollector,
    collector_env: EnvManager,
    commander: Any,  # unused: random actions need no settings; a place of DI-engine's signature
    replay_buffer: IBuffer,
    postprocess_data_fn: Callable[[Any], Any] | None = None,
) -> None:
    """Fill the buffer with `policy_cfg.random_collect_size` samples made by random actions."""
    mode, num_lanes = adapt_collect_mode(policy.collect_mode), array_manager(collector_env).num_lanes
    collector.reset_policy(random_collect_mode(mode, collector_env.action_space))
    for samples in _random_samples(collector, policy_cfg.random_collect_size, num_lanes=num_lanes):
        rows = samples if postprocess_data_fn is None else postprocess_data_fn(samples)
        replay_buffer.push(rows, cur_collector_envstep=collector.envstep)
    collector.reset_policy(mode)


def _random_samples(collector: Any, num_samples: int, *, num_lanes: int) -> Iterator[Any]:
    """Yield at least `num_samples` rows: exactly as many, or those of whole episodes where these are collected."""
    if not isinstance(collector, EpisodeSerialCollector):
        yield collector.collect(n_sample=num_samples, random_collect=True, record_random_collect=False)
        return
    while num_samples > 0:
        samples = collector.collect(n_episode=num_lanes)
        num_samples -= len(samples)
        yield samples
