"""Runners, which make one iteration of a run at a time: collect, then train on what came."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from ding_like.comm.channels import Version
from ding_like.comm.local import BatchOnce, LocalRows, RowStore, draw, update_priorities
from ding_like.config import FrozenConfig
from ding_like.data.rows import adapt_collect_mode
from ding_like.errors import CommError, SchemaError
from ding_like.pipeline.components import Components
from ding_like.pipeline.learners.lock_step import Alone
from ding_like.pipeline.update_ratio import UpdateRatio
from ding_like.policy import Policy
from ding_like.policy.random_policy import random_collect_mode
from ding_like.types import Array, EnvManager, Setting, State
from ding_like.worker import BaseLearner, EpisodeSerialCollector, IBuffer, SampleSerialCollector
from ding_like.worker.collector.base import array_manager


class RunnerLostError(CommError):
    """Loss of the workers that a runner needs; `Runner.rescue` returns whether its parts can be saved."""


class Runner(Protocol):
    """Steps of a run, called by `TrainingLoop`: one step is one iteration (collect, update)."""

    @property
    def setting(self) -> Setting:
        """Setting of the collectors, as the commander set it last."""

    def start(self) -> None:
        """Begin a new run: collect the rows of random actions."""

    def step(self) -> None:
        """Run one iteration: collect and update. Raises RunnerLostError where the workers are lost."""

    def flush(self) -> None:
        """Wait for what is under way, so that the parts can be saved or evaluated."""

    def rescue(self) -> bool:
        """Finish after RunnerLostError with the remaining workers; return whether the parts can be saved."""

    def workers(self) -> Mapping[str, str]:
        """Return the status of the run's workers, for its panel."""

    def state_dict(self) -> State:
        """Return what a resumed run needs beside the parts; empty where it is nothing."""

    def load_state_dict(self, state: State) -> None:
        """Resume from what `state_dict` returned, in place of `start`. Raises RunnerLostError as `step` does."""

    def close(self) -> None:
        """End what was started, within 10 s; may be called again."""


MakeRunner = Callable[[Callable[[], bool]], Runner]  # (is_leaving) -> runner, once its parts have been restored


class SerialRunner:
    """Runner that collects and trains in this process; several learners do so in lock step.

    With a buffer `update_per_collect` updates follow each segment of rows, fewer while it holds too little; without
    one, each batch is learned from once. Collector and learner share the policy. Once `is_leaving` an iteration ends
    after the update under way; the updates that are still due are saved with the run, and made first when it resumes.
    """

    def __init__(
        self,
        cfg: FrozenConfig,
        parts: Components,
        *,
        lock_step: Alone,
        batch_size: int,
        is_leaving: Callable[[], bool] = lambda: False,
    ) -> None:
        self._cfg, self._parts, self._lock_step, self._batch_size = cfg, parts, lock_step, batch_size
        self._is_leaving = is_leaving
        self._store: RowStore = BatchOnce() if parts.buffer is None else parts.buffer
        self._updates_due = 0
        self._is_broken_off = False  # the last iteration
        self.setting: Setting = {}  # of the collector, as the commander set it last

    def start(self) -> None:
        """Choose a league's first opponent, and fill the buffer with rows of random actions."""
        parts = self._parts
        if parts.league is not None:
            parts.league.begin()
        if self._cfg.policy.random_collect_size > 0:
            collect_at_random(self._cfg, parts)
            self._lock_step.count_steps()

    def step(self) -> None:
        """Collect a segment, and make the updates that follow it."""
        parts, collect = self._parts, self._cfg.policy.collect
        collector, self.setting = parts.own_collector, parts.commander.step()
        rows = collector.collect_rows(
            collect.get("n_sample") or collect.get("n_episode") or 1,
            train_iter=parts.learner.train_iter,
            policy_kwargs=self.setting,
        )
        self._lock_step.count_steps()
        self._lock_step.merge_statistics()
        self._store.push(rows, cur_collector_envstep=collector.envstep)
        self._updates_due = 1 if parts.buffer is None else self._cfg.policy.learn.update_per_collect
        self._learn()

    def _learn(self) -> None:
        parts, learner = self._parts, self._parts.learner
        self._is_broken_off = False
        while self._updates_due and not self._is_broken_off:
            batch = self._lock_step.draw(lambda: draw(self._store, self._batch_size, learner.train_iter))
            if batch is None:
                break  # the store has too few rows: these updates are not made up later
            learner.train(batch, parts.collector.envstep)
            if has_priorities(self._cfg, parts):
                update_priorities(self._store, batch, priority_of(learner))
            self._updates_due -= 1
            self._is_broken_off = self._is_leaving()
        if parts.league is not None and not self._is_broken_off:
            parts.league.turn(train_iter=learner.train_iter, env_step=parts.collector.envstep)

    def flush(self) -> None:
        """Do nothing: between two iterations nothing is under way."""

    def rescue(self) -> bool:
        """Return True: all parts are in this process."""
        return True

    def workers(self) -> Mapping[str, str]:
        """Return nothing: there are no workers."""
        return {}

    def state_dict(self) -> State:
        """Return the updates that are due where the last iteration was broken off, else nothing."""
        return {"updates_due": self._updates_due} if self._is_broken_off else {}

    def load_state_dict(self, state: State) -> None:
        """Finish the iteration that was broken off."""
        if state:
            self._updates_due = state["updates_due"]
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


class TrainRole:
    """Training on the batches of a source, without waiting for them."""

    def __init__(self, learner: BaseLearner, source: LocalRows, *, with_priority: bool = False) -> None:
        """With `with_priority` each update reports the priorities of its rows [B]."""
        self._learner = learner
        self._source = source
        self._with_priority = with_priority

    def train_ready(self, *, is_leaving: Callable[[], bool] = lambda: False) -> bool:
        """Train on every batch that can be had without waiting; False: `is_leaving` ended that after a batch."""
        while self.train_next():
            if is_leaving():
                return False
        return True

    def train_next(self) -> bool:
        """Train on a batch if one can be had without waiting, and tell whether there was one."""
        learner, source = self._learner, self._source
        batch = source.next(timeout_s=0.0)
        if batch is None:
            return False
        learner.train(batch, source.env_step)
        priority = priority_of(learner) if self._with_priority else None
        source.feedback(learner.train_iter, priority=priority, info=self._averages)
        return True

    def _averages(self) -> Mapping[str, Any]:
        monitor = self._learner.monitor
        return {} if monitor is None else {name: float(value) for name, value in monitor.averages().items()}


def priority_of(learner: BaseLearner) -> Array:
    """Return the priorities of the rows of the last update. Raises SchemaError if the policy gave none."""
    priority: Array | None = learner.priority_info.get("priority")
    if priority is None:
        raise SchemaError(
            "policy.priority is True, but the policy gave no priorities: return them as the second value of "
            "`grad` (in DI-engine's style, as 'priority'), or set policy.priority=False."
        )
    return priority
