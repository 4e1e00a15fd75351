"""Have gradient workers compute a minibatch each, and hand on what comes, whichever comes first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ding_like.pipeline.roles.gradient_rounds import Driver
from ding_like.pipeline.roles.gradient_workers import Computed, GradientTask, GradientWorkers
from ding_like.pipeline.roles.measured_rows import MeasuredRows
from ding_like.policy.sharing import begun_of, check_sharing, noise_seed_of, parts_of, weaken
from ding_like.types import Array, Info


class GradientStream:
    """Be `minibatches` and `grad` of a learn mode: hand minibatches out, and hand on the gradients that come.

    `minibatches` of no rows hands on all that is under way. A gradient that is older than `max_staleness` updates when
    it comes is computed again with newer weights, or counts less (`GradientSettings.staleness`). Rows that only the
    present policy may learn from are learned from to the end before others are collected; of other rows gradients stay
    under way from call to call. With `learn.target_kl` a policy's epochs end by the gradients that have come by then.
    """

    def __init__(self, driver: Driver, workers: GradientWorkers, rows: MeasuredRows) -> None:
        check_sharing(workers.policy, 1)
        self._driver = driver
        self._learner = driver.learner
        self._workers = workers
        self._rows = rows
        self._is_on_policy = bool(workers.policy.cfg.on_policy)
        self._minibatches_of: Callable[..., Iterator[Any]] = driver.learner.policy.minibatches
        self._waiting: deque[GradientTask] = deque()  # for a worker; also those to be computed again
        self._num_tasks = driver.learner.train_iter  # a run that goes on does not begin again at 0

    def minibatches(self, batch: Any, rng: np.random.Generator) -> Iterator[Computed]:  # Any: rows of any kind
        """Hand out a batch's minibatches, and yield what comes meanwhile, of whichever batch; of no batch, all."""
        is_end = len(batch) == 0
        for minibatch in () if is_end else self._minibatches_of(batch, rng):
            [part] = parts_of(self._workers.policy, minibatch, 1)
            # Noise of its own: what is computed at the same time would draw the same.
            seed = noise_seed_of(self._workers.policy, self._num_tasks)
            self._waiting.append(GradientTask(self._num_tasks, part, self._workers.begun, seed, batch))
            self._num_tasks += 1
            while self._waiting:
                yield from self._next(wait=not self._workers.idle)
        while (self._is_on_policy or is_end) and (self._waiting or self._workers.tasks):
            yield from self._next(wait=True)

    def _next(self, *, wait: bool) -> Iterator[Computed]:
        """Have idle workers begin, and yield what has come; `wait` for the first."""
        settings = self._driver.settings
        for worker in self._workers.idle[: len(self._waiting)]:
            self._workers.begin(worker, self._waiting.popleft())
        for each in self._workers.ready(timeout_s=settings.step_timeout_s if wait else 0.0):
            is_stale = each.gradient is not None and self._is_stale(each)
            self._rows.stale_gradients += is_stale
            if each.gradient is None or (is_stale and settings.staleness == "drop"):
                self._waiting.append(each.task)
            else:
                yield each

    def _is_stale(self, computed: Computed) -> bool:
        limit = self._driver.settings.max_staleness
        return limit is not None and self._learner.train_iter - computed.version > limit

    def grad(self, computed: Computed) -> tuple[Info, Array | None]:
        """Do what `grad` does: take over a gradient that a worker has found, and tell its rows their priorities."""
        policy, asynchrony = self._workers.policy, self._learner.train_iter - computed.version
        batch, gradient = computed.task.batch, computed.gradient
        assert gradient is not None and computed.info is not None, "what was lost is computed again"
        if not self._is_on_policy:  # schedules go on from where they are now, not from where they were then
            next(iter(self._minibatches_of(batch, np.random.default_rng(0))))
        if self._is_stale(computed):
            gradient = weaken(policy, gradient, 1.0 / (1.0 + asynchrony))
        policy.load_gradient({**gradient, "moves": begun_of(policy)})
        self._rows.note_lag(batch, computed.version)
        self._rows.note_applied(asynchrony)
        if self._driver.with_priority:
            self._rows.feedback(self._learner.train_iter + 1, priority=computed.priority, info=dict, batch=batch)
        return {**computed.info, "GradientAsynchrony": asynchrony}, None
