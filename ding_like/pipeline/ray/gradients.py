"""Compute and apply gradients by one of four patterns: here or in workers, together or one by one, or on every rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from ding_like.comm.workers.host import Host
from ding_like.comm.workers.pool import WorkerPool
from ding_like.errors import ConfigError, TrainingError
from ding_like.pipeline.roles.gradient_ranks import GradientRanks
from ding_like.pipeline.roles.gradient_rounds import Driver, GradientRounds
from ding_like.pipeline.roles.gradient_stream import GradientStream
from ding_like.pipeline.roles.gradient_workers import GradientWorkers
from ding_like.pipeline.roles.measured_rows import MeasuredRows
from ding_like.pipeline.roles.train import TrainRole
from ding_like.types import Array, Info

_NOTHING: tuple[()] = ()  # what the learner is given where it only applies what is under way


class Gradients(Protocol):
    """Be how a scheme learns, chosen once for a learner that stands where the run begins or goes on."""

    def train_ready(self) -> int:
        """Train on every batch that can be had without waiting; return the number of updates that were applied."""

    def settle(self) -> None:
        """Apply what is under way, and have in this process all that was learned."""

    def measures(self) -> Mapping[str, float]:
        """Return recent means of PolicyLag and GradientAsynchrony, in updates, and counts of what was left out."""

    def close(self) -> None:
        """End what was begun; parts and workers are their owners'."""


class CentralGradients:
    """Compute and apply in this process, as a serial run does."""

    def __init__(self, driver: Driver) -> None:
        self._learner = learner = driver.learner
        self._rows = MeasuredRows(driver.rows, train_iter=lambda: learner.train_iter)
        self._role = TrainRole(learner, self._rows, with_priority=driver.with_priority)

    def train_ready(self) -> int:
        before = self._learner.train_iter
        self._role.train_ready()
        return self._learner.train_iter - before

    def settle(self) -> None:
        """Do nothing: between two turns nothing is under way."""

    def measures(self) -> Mapping[str, float]:
        return self._rows.means()

    def close(self) -> None:
        """Do nothing: nothing was begun."""

    def _train_by(self, **fields: Callable[..., Any]) -> None:  # Any: of a learn mode's fields
        """Have the learner train by other functions of its mode; its counts and its monitor stay."""
        state = self._learner.state_dict()
        self._learner.policy = self._learner.policy._replace(**fields)
        self._learner.load_state_dict(state)


class SynchronousGradients(CentralGradients):
    """Share each minibatch among the workers and apply the mean of what they find: the whole's gradient, to rounding.

    `GradientRounds` says what happens where workers are lost or late.
    """

    def __init__(self, driver: Driver, workers: GradientWorkers) -> None:
        super().__init__(driver)
        self._train_by(grad=GradientRounds(workers, driver.settings, self._rows).grad)


class AsynchronousGradients(CentralGradients):
    """Give each worker a minibatch of its own, and apply what comes first; it alone is sent the newest weights then.

    `GradientStream` says what happens to gradients that are too old, and what stays under way from turn to turn.
    """

    def __init__(self, driver: Driver, workers: GradientWorkers) -> None:
        super().__init__(driver)
        self._role = TrainRole(self._learner, self._rows)  # the stream knows whose priorities come
        stream = GradientStream(driver, workers, self._rows)
        self._train_by(minibatches=stream.minibatches, grad=stream.grad)

    def settle(self) -> None:
        self._learner.train(_NOTHING)


class DecentralisedUpdates(CentralGradients):
    """Let every worker compute its share, average with the others and apply the mean; this process counts.

    After each turn the policy here acts as the ranks' do, and once settled it is all that they have learned. A rank
    that is lost ends the run, with what the others have learned; see `GradientRanks`.
    """

    def __init__(self, driver: Driver, ranks: GradientRanks) -> None:
        super().__init__(driver)
        self._ranks = ranks
        own_state = self._learner.policy.state_dict

        def state_dict() -> dict[str, Any]:  # Any: of a checkpoint
            ranks.take_learned()
            return own_state()

        self._train_by(minibatches=self._updates, grad=lambda found: found, apply=lambda: None, state_dict=state_dict)

    def _updates(self, batch: Any, rng: np.random.Generator) -> Iterator[tuple[Info, Array | None]]:  # Any: any rows
        try:
            yield from self._ranks.train(batch, rng)
        except TrainingError:
            self._learner.last_iter.update(self._ranks.num_updates)  # those that are kept
            raise

    def train_ready(self) -> int:
        num_updates = super().train_ready()
        if num_updates:
            self._ranks.take_acting()
        return num_updates

    def settle(self) -> None:
        self._ranks.take_learned()

    def close(self) -> None:
        self._ranks.close()


def choose_gradients(
    driver: Driver, host: Host, pool: WorkerPool, execution: str, communication: str, *, decentralized: bool
) -> Gradients:
    """Return the pattern that these words name. Raises ConfigError, with the reason, for those that exclude another."""
    if execution not in ("Central", "Parallel", "Parallelised"):
        raise ConfigError(f"grad_execution is {execution!r}; expected 'Central', or 'Parallel' ('Parallelised').")
    if communication not in ("synchronous", "asynchronous"):
        raise ConfigError(f"grad_communication is {communication!r}; expected 'synchronous' or 'asynchronous'.")
    settings, is_central = driver.settings, execution == "Central"
    if decentralized and (is_central or communication == "asynchronous"):
        raise ConfigError(
            "decentralised updates are made by all gradient workers together: they need grad_execution='Parallel' and "
            "grad_communication='synchronous'."
        )
    if is_central:
        return CentralGradients(driver)
    if not pool.workers:
        raise ConfigError("gradients in parallel need workers: give at least one, or grad_execution='Central'.")
    train_iter, timeout_s = driver.learner.train_iter, settings.step_timeout_s
    if decentralized:
        ranks = GradientRanks(
            host, pool, driver.policy, num_updates=train_iter, timeout_s=timeout_s, compare_every=settings.compare_every
        )
        return DecentralisedUpdates(driver, ranks)
    workers = GradientWorkers(
        host, pool, driver.policy, train_iter=lambda: driver.learner.train_iter, step_timeout_s=timeout_s
    )
    return (SynchronousGradients if communication == "synchronous" else AsynchronousGradients)(driver, workers)
