"""Collect a number of training samples at a time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from ding_like.data.batch import TransitionBatch
from ding_like.data.records import EpisodeRecord
from ding_like.errors import ConfigError
from ding_like.types import EnvManager, State
from ding_like.utils.log import one_time_warning
from ding_like.utils.registries import SERIAL_COLLECTOR_REGISTRY
from ding_like.worker.collector.base import LoopCollector


@SERIAL_COLLECTOR_REGISTRY.register("sample")
class SampleSerialCollector(LoopCollector):
    """Collect `n_sample` training samples: transitions, n-step rows or sequences, as the policy's `segment` makes them.

    Every step asks all ready lanes, so a call may make more than it was asked for: the surplus leads the next call
    (on-policy: it is dropped and counted, as the policy that made it is gone).
    """

    config: dict[str, Any] = dict(
        type="sample",
        # Keys of DI-engine's configs: see `without_effect`.
        deepcopy_obs=False,
        transform_obs=False,
        # Iterations of the learner between two log lines.
        collect_print_freq=100,
    )

    def reset(self, _policy: Any = None, _env: EnvManager | None = None) -> None:
        """Reset env, policy, surplus and all counters."""
        self._surplus: Any = None
        super().reset(_policy, _env)

    def collect(
        self,
        n_sample: int | None = None,
        train_iter: int = 0,
        drop_extra: bool = True,
        random_collect: bool = False,
        record_random_collect: bool = True,
        policy_kwargs: Mapping[str, Any] | None = None,
        level_seeds: Mapping[int, int] | None = None,
    ) -> Any:
        """Return `n_sample` training samples (default: the policy's), as a TransitionBatch where rows stack.

        `train_iter` is stored as the rows' `policy_version`. With `drop_extra=False` the surplus is returned too.
        `policy_kwargs` goes to the actor (`eps`). `level_seeds` (env id -> seed) adds a column `seed`.
        With `record_random_collect=False` a call with `random_collect` leaves the statistics alone. Raises ConfigError
        if neither `n_sample` nor the policy says how many.
        """
        loop, _ = self._parts()
        target = self._policy_attribute("n_sample", None) if n_sample is None else n_sample
        if target is None:
            raise ConfigError("collect() needs n_sample: pass it, or set policy.collect.n_sample in the config.")
        if target % loop.rollout.num_lanes and not random_collect:
            one_time_warning(
                f"n_sample {target} is not a multiple of {loop.rollout.num_lanes} envs: each call keeps a surplus "
                "for the next one."
            )
        if random_collect and not record_random_collect:
            return self._collect_unrecorded(target, dict(policy_kwargs or {}), drop_extra=drop_extra)
        started, first_step = time.perf_counter(), loop.env_steps
        samples, episodes = self._collect_rows(target, dict(policy_kwargs or {}), train_iter, level_seeds)
        samples = self._put_surplus_by(samples, target, drop_extra=drop_extra)
        self._count(episodes, first_step=first_step, samples=len(samples), started_s=started, train_iter=train_iter)
        return samples

    def _collect_unrecorded(self, target: int, setting: dict[str, Any], *, drop_extra: bool) -> Any:
        """Collect without a trace in the statistics; episodes that are open at the end count as usual."""
        samples, _ = self._collect_rows(target, setting, 0)
        return self._put_surplus_by(samples, target, drop_extra=drop_extra)

    def _collect_rows(
        self, target: int, setting: dict[str, Any], train_iter: int, level_seeds: Mapping[int, int] | None = None
    ) -> tuple[Any, list[EpisodeRecord]]:
        """Step until there are `target` samples, the surplus of the last call included."""
        loop, policy = self._parts()
        samples, episodes = self._surplus, []
        self._surplus = None
        have = 0 if samples is None else len(samples)
        while have < target:
            episodes += loop.step(setting, policy_version=train_iter)
            # A policy never makes more samples than rows, so most steps need no closer look.
            if have + len(loop.rollout) < target or have + loop.num_ready(policy.num_ready) < target:
                continue
            rows = loop.take(policy.segment)
            # Before it is joined: the surplus of the last call has the seeds of that call.
            rows = rows if level_seeds is None else _with_seeds(rows, level_seeds)
            samples, dropped = _join(samples, rows)
            self._report.total.dropped_steps += dropped
            have = len(samples)
        return samples, episodes

    def _put_surplus_by(self, samples: Any, target: int, *, drop_extra: bool) -> Any:
        loop, _ = self._parts()
        if self._on_policy:
            # What is left over was made by the policy that the next update replaces.
            extra = max(len(samples) - target, 0) if drop_extra else 0
            self._report.total.dropped_steps += extra + len(loop.rollout)
            loop.forget_rows()
            return samples[:target] if extra else samples
        if drop_extra and len(samples) > target:
            self._surplus = samples[target:]
            return samples[:target]
        return samples

    def state_dict(self) -> State:
        """Return everything that an exact resume needs, the env manager's journal included."""
        surplus = self._surplus
        columns = dict(surplus.columns) if isinstance(surplus, TransitionBatch) else surplus
        return {**super().state_dict(), "surplus": columns}

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned; open episodes are played again by the env manager."""
        super().load_state_dict(state)
        surplus = state["surplus"]
        self._surplus = TransitionBatch(surplus) if isinstance(surplus, dict) else surplus


def _with_seeds(rows: Any, level_seeds: Mapping[int, int]) -> TransitionBatch:
    """Return the rows with a column `seed`, the level of the env that each was made in."""
    if not isinstance(rows, TransitionBatch) or "env_id" not in rows.columns:
        raise ConfigError(
            "level_seeds needs rows that say which env made them, but the policy's rows have no 'env_id': "
            "let its segment (in DI-engine's style, process_transition) keep the loop's columns."
        )
    envs, of_row = np.unique(rows["env_id"], return_inverse=True)
    return rows.with_columns(seed=np.array([level_seeds[int(env)] for env in envs], np.int64)[of_row])


def _join(first: Any, second: Any) -> tuple[Any, int]:
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
