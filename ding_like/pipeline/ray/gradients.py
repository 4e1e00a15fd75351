"""Compute and apply gradients by one of four patterns: here or in workers, together or one by one, or on every rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ding_like.comm.workers.host import Host
from ding_like.comm.workers.pool import WorkerPool
from ding_like.pipeline.roles.gradient_ranks import GradientRanks, RankUpdates
from ding_like.pipeline.roles.gradient_rounds import Driver, GradientRounds, check_words, train_by
from ding_like.pipeline.roles.gradient_rounds import Gradients as Gradients  # who chooses needs its type
from ding_like.pipeline.roles.gradient_stream import GradientStream
from ding_like.pipeline.roles.gradient_workers import GradientWorkers
from ding_like.pipeline.roles.measured_rows import MeasuredRows
from ding_like.pipeline.roles.train import TrainRole

_NOTHING: tuple[()] = ()  # what the learner is given where it only applies what is under way


class CentralGradients:
    """Compute and apply in this process, as a serial run does."""

    def __init__(self, driver: Driver, *, waits: bool = False) -> None:
        self._learner = learner = driver.learner
        self._rows = MeasuredRows(driver.rows, train_iter=lambda: learner.train_iter, waits=waits)
        self._role = TrainRole(learner, self._rows, with_priority=driver.with_priority)

    def train_ready(self, *, is_leaving: Callable[[], bool] = lambda: False) -> int:
        before = self._learner.train_iter
        self._role.train_ready(is_leaving=is_leaving)
        return self._learner.train_iter - before

    def settle(self) -> None:
        """Do nothing: between two turns nothing is under way."""

    def measures(self) -> Mapping[str, float]:
        return self._rows.means()

    def close(self) -> None:
        """Do nothing: nothing was begun."""


class SynchronousGradients(CentralGradients):
    """Share each minibatch among the workers and apply the mean of what they find: the whole's gradient, to rounding.

    `GradientRounds` says what happens where workers are lost or late.
    """

    def __init__(self, driver: Driver, workers: GradientWorkers) -> None:
        super().__init__(driver)
        train_by(self._learner, grad=GradientRounds(workers, driver.settings, self._rows).grad)


class AsynchronousGradients(CentralGradients):
    """Give each worker a minibatch of its own, and apply what comes first; it alone is sent the newest weights then.

    `GradientStream` says what happens to gradients that are too old, and what stays under way from turn to turn.
    """

    def __init__(self, driver: Driver, workers: GradientWorkers) -> None:
        super().__init__(driver, waits=True)
        self._role = TrainRole(self._learner, self._rows)  # the stream knows whose priorities come
        stream = GradientStream(driver, workers, self._rows)
        train_by(self._learner, minibatches=stream.minibatches, grad=stream.grad)

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
        updates = RankUpdates(ranks, self._learner)
        train_by(
            self._learner, minibatches=updates.minibatches, grad=updates.grad, apply=updates.apply,
            state_dict=updates.state_dict,
        )  # fmt: skip

    def train_ready(self, *, is_leaving: Callable[[], bool] = lambda: False) -> int:
        num_updates = super().train_ready(is_leaving=is_leaving)
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
    settings = driver.settings
    check_words(execution, communication, decentralized=decentralized, num_workers=len(pool.workers))
    if execution == "Central":
        return CentralGradients(driver)
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
