"""Take a run's turns: collect what is ordered, then train on what came, whoever does either."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from ding_like.comm.channels import Version
from ding_like.comm.local import BatchOnce, LocalRows
from ding_like.config import FrozenConfig
from ding_like.data.rows import adapt_collect_mode
from ding_like.errors import CommError
from ding_like.pipeline.build import SerialParts
from ding_like.pipeline.learners.lock_step import LockStep
from ding_like.pipeline.roles.collect import CollectRole
from ding_like.pipeline.roles.loaded_weights import LoadedWeights
from ding_like.pipeline.roles.train import TrainRole
from ding_like.pipeline.update_ratio import UpdateRatio
from ding_like.policy import Policy
from ding_like.policy.random_policy import random_collect_mode
from ding_like.types import EnvManager, Setting, State
from ding_like.worker import EpisodeSerialCollector, IBuffer, SampleSerialCollector


class TurnsLostError(CommError):
    """Report that those who take a run's turns are lost; its parts stand between two updates and can be saved."""


class Turns(Protocol):
    """Be what a `SerialRun` takes its turns from, over parts that stand where the run begins or goes on."""

    @property
    def setting(self) -> Setting:
        """Return what collectors were told last."""

    def begin(self) -> None:
        """Begin a run, and not go on with one: collect the rows of random actions."""

    def take(self) -> None:
        """Take one turn. Raises TurnsLostError where those who take it are lost."""

    def settle(self) -> None:
        """Bring the parts to a state that can be saved or evaluated: nothing is under way that would be torn."""

    def workers(self) -> Mapping[str, str]:
        """Return how those who work for the run stand, for its panel."""

    def state_dict(self) -> State:
        """Return what the turns of a resumed run go on from, beside the parts; empty where it is nothing."""

    def load_state_dict(self, state: State) -> None:
        """Go on from what `state_dict` returned, in place of `begin`."""

    def close(self) -> None:
        """End what was started, within 10 s; may be called again."""


class SerialTurns:
    """Collect and train in this process; several learners do so in lock step.

    With a buffer `update_per_collect` updates follow each segment of rows, fewer while it holds too little; without
    one, each batch is learned from once. Collector and learner share the policy.
    """

    def __init__(self, cfg: FrozenConfig, parts: SerialParts, *, lock_step: LockStep, batch_size: int) -> None:
        policy = cfg.policy
        self._policy_cfg = policy
        self._parts = parts
        self._lock_step = lock_step
        self._rows = rows = LocalRows(
            lock_step.store(BatchOnce() if parts.buffer is None else parts.buffer),
            UpdateRatio.per_segment(1 if parts.buffer is None else policy.learn.update_per_collect),
            segment_rows=policy.collect.get("n_sample") or policy.collect.get("n_episode") or 1,
            batch_size=batch_size,
            newest=lambda: Version(0, parts.learner.train_iter),
            env_step=parts.collector.envstep,
        )
        self._collect = CollectRole(
            parts.own_collector,
            LoadedWeights(parts.policy),
            sink=lock_step.sink(rows),
            settings=lambda _: parts.commander.step(),
        )
        with_priority = parts.buffer is not None and bool(policy.priority)
        self._train = TrainRole(parts.learner, rows, with_priority=with_priority)

    @property
    def setting(self) -> Setting:
        """Return what the collector was told last."""
        return self._collect.setting

    def begin(self) -> None:
        """Choose a league's first opponent, and fill the buffer with rows of random actions."""
        parts, policy = self._parts, self._policy_cfg
        if parts.league is not None:
            parts.league.begin()
        if policy.random_collect_size > 0:
            random_collect(
                policy, parts.policy, parts.own_collector, parts.own_env, parts.commander, parts.replay_buffer
            )
            self._lock_step.count_steps()
            self._rows.env_step = parts.collector.envstep

    def take(self) -> None:
        """Collect a segment, and train on every batch that it allows."""
        parts = self._parts
        self._collect.collect(self._rows.order(timeout_s=0.0))
        self._train.train_ready()
        if parts.league is not None:
            parts.league.turn(train_iter=parts.learner.train_iter, env_step=parts.collector.envstep)

    def settle(self) -> None:
        """Do nothing: between two turns nothing is under way."""

    def workers(self) -> Mapping[str, str]:
        """Return nothing: there are no others."""
        return {}

    def state_dict(self) -> State:
        """Return nothing: each turn ends with all updates that it allowed."""
        return {}

    def load_state_dict(self, state: State) -> None:
        """Take nothing over."""

    def close(self) -> None:
        """Do nothing: the parts are their owner's."""


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
    mode = adapt_collect_mode(policy.collect_mode)
    collector.reset_policy(random_collect_mode(mode, collector_env.action_space))
    for samples in _random_samples(collector, policy_cfg.random_collect_size, num_lanes=collector_env.num_lanes):
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
