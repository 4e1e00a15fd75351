"""Collect a number of training samples at a time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ding_like.data.batch import TransitionBatch
from ding_like.data.records import EpisodeRecord
from ding_like.errors import ConfigError
from ding_like.types import EnvManager, Setting, State
from ding_like.utils.log import one_time_warning
from ding_like.utils.registries import SERIAL_COLLECTOR_REGISTRY
from ding_like.worker.collector.base import LoopCollector
from ding_like.worker.collector.interface import PolicyMode, Unit
from ding_like.worker.collector.loop import step_until
from ding_like.worker.collector.row_taker import RowTaker, Samples
from ding_like.worker.collector.stop_rule import StopRule


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
        # Updates between two lines in the collector's log.
        collect_print_freq=100,
    )

    unit: ClassVar[Unit] = "rows"

    _has_told_of_surplus = False

    def reset(self, _policy: PolicyMode | None = None, _env: EnvManager | None = None) -> None:
        """Reset env, policy, surplus and all counters."""
        self._surplus: Samples | None = None
        super().reset(_policy, _env)

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
        With `record_random_collect=False` a call with `random_collect` leaves the statistics alone. If `stop` is met
        before, there are fewer samples: those that can be made by then. Raises ConfigError if neither `n_sample` nor
        the policy says how many.
        """
        loop, policy = self._parts()
        target = self._target(n_sample, "n_sample")
        if target % loop.rollout.num_lanes and not random_collect and not self._has_told_of_surplus:
            self._has_told_of_surplus = True  # whatever later calls ask for
            one_time_warning(
                f"n_sample {target} is not a multiple of {loop.rollout.num_lanes} envs: each call keeps a surplus "
                "for the next one."
            )
        started, first_step = time.perf_counter(), loop.env_steps
        mark = None if level_seeds is None else partial(_with_seeds, level_seeds=level_seeds)
        taker = RowTaker(loop, policy, target, first=self._surplus, mark=mark)
        rule = taker.rule() if stop is None else taker.rule() | stop
        self._surplus = None
        episodes: list[EpisodeRecord] = []
        for ended in step_until(loop, rule, dict(policy_kwargs or {}), policy_version=train_iter):
            episodes += ended
        samples, self._surplus, dropped = taker.divide(on_policy=self._on_policy, drop_extra=drop_extra)
        self._report.total.dropped_steps += dropped
        if record_random_collect or not random_collect:
            self._count(episodes, first_step=first_step, samples=len(samples), started_s=started, train_iter=train_iter)
        return samples

    def collect_rows(
        self,
        rows: int | None = None,
        *,
        train_iter: int = 0,
        policy_kwargs: Setting | None = None,
        stop: StopRule | None = None,
    ) -> Samples:
        """Collect exactly `rows` samples, as `collect` does."""
        return self.collect(rows, train_iter=train_iter, policy_kwargs=policy_kwargs, stop=stop)

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


def _with_seeds(rows: Samples, *, level_seeds: Mapping[int, int]) -> TransitionBatch:
    """Return the rows with a column `seed`, the level of the env that each was made in."""
    if not isinstance(rows, TransitionBatch) or "env_id" not in rows.columns:
        raise ConfigError(
            "level_seeds needs rows that say which env made them, but the policy's rows have no 'env_id': "
            "let its segment (in DI-engine's style, process_transition) keep the loop's columns."
        )
    envs, of_row = np.unique(rows["env_id"], return_inverse=True)
    return rows.with_columns(seed=np.array([level_seeds[int(env)] for env in envs], np.int64)[of_row])
