"""Put a scheme together: an update worker over gradient workers over collectors, each pattern chosen once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from ding_like.comm.workers.calls import WorkerCalls
from ding_like.comm.workers.failures import FailureLog
from ding_like.comm.workers.host import Host
from ding_like.comm.workers.resources import options_of
from ding_like.comm.workers.threads import ThreadHost
from ding_like.comm.workers.weights import HostWeightPublisher
from ding_like.pipeline.build.driver_end import DriverEnd
from ding_like.pipeline.build.factories import no_envs
from ding_like.pipeline.build.patterns import check_patterns
from ding_like.pipeline.ray.c_worker_set import CWorkerSet
from ding_like.pipeline.ray.collection import (
    AsynchronousCollection,
    CentralCollection,
    Collection,
    SynchronousCollection,
)  # fmt: skip
from ding_like.pipeline.ray.g_worker import GWorkerSet
from ding_like.pipeline.ray.gradients import Gradients
from ding_like.pipeline.ray.settings import RaySettings
from ding_like.pipeline.ray.u_worker import UWorker
from ding_like.pipeline.roles.collect_rounds import Remote
from ding_like.pipeline.roles.gradient_rounds import GradientSettings

_SYNC, _ASYNC = "synchronous", "asynchronous"
_WEIGHTS_S = 30.0  # that a round waits for who does not take its weights: a run that is to end does so in a minute
Factory = Callable[..., Any]  # of what a worker is made of: see `CWorker`


class Scheme:
    """Hold the workers of a training scheme: `update_worker`, a UWorker over GWorkers over CWorkers.

    The factories are CWorker's; `actor_factory` makes one that learns, `col_actor_factory` may make the collectors'.
    With 0 `num_col_workers` this process collects, with up to 1 `num_grad_workers` it computes gradients; `settings`
    say the rest. Workers run on `host`, by default in threads of this process; `end` is the driver's, by default what
    the algorithm's config says. Raises ConfigError, with the reasons, for patterns that exclude each other.
    Source: PyTorchRL's Scheme.
    """

    collection: Collection

    def __init__(
        self, algo_factory: Factory, actor_factory: Factory, storage_factory: Factory, train_envs_factory: Factory,
        test_envs_factory: Factory = no_envs, *, num_col_workers: int = 0, col_workers_communication: str = _SYNC,
        num_grad_workers: int = 1, grad_workers_communication: str = _SYNC,
        decentralized_update_execution: bool = False, local_device: str | None = None,
        col_actor_factory: Factory | None = None, settings: RaySettings | None = None, end: DriverEnd | None = None,
        host: Host | None = None, log: FailureLog | None = None, is_leaving: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        self._settings, self.is_decentralized = settings or RaySettings(), decentralized_update_execution
        self._collect_words = dict(
            col_execution="Parallel" if num_col_workers else "Central", col_communication=col_workers_communication
        )
        words = ("Parallel" if num_grad_workers > 1 else "Central"), grad_workers_communication
        limits = {name: getattr(self._settings.collect, name) for name in ("fraction_workers", "fraction_samples")}
        # Central collection ahead of the learner is that of one worker in a thread of this process.
        num_workers = num_col_workers or int(col_workers_communication == _ASYNC)
        self._parts: dict[str, Any] = dict(
            algo_factory=algo_factory, storage_factory=storage_factory, test_envs_factory=test_envs_factory
        )
        with ExitStack() as opened:
            if end is None:
                end = DriverEnd.of(algo_factory(local_device, None), collects=not num_workers)
                opened.callback(end.parts.close)
            check_patterns(
                **self._collect_words, grad_execution=words[0], grad_communication=words[1], limits=limits,
                max_policy_lag=self._settings.collect.max_policy_lag, decentralized=decentralized_update_execution,
                is_on_policy=end.is_on_policy, has_buffer=end.parts.buffer is not None,
                collects_episodes=end.collects_episodes,
            )  # fmt: skip
            own_host = ThreadHost()
            opened.callback(own_host.close)
            self.is_leaving = is_leaving
            self.end, self._host, self._log = end, host or own_host, log or FailureLog()
            self._col_host = self._host if num_col_workers else own_host
            self._publisher = HostWeightPublisher(self._col_host, lambda: self.collectors.remote_workers())
            opened.callback(self._publisher.close)
            home = self._home(num_workers, col_actor_factory or actor_factory, train_envs_factory)
            self.update_worker = UWorker(
                partial(self._grad_workers, num_grad_workers if num_grad_workers > 1 else 0, actor_factory, home), 0,
                limits["fraction_workers"], *words, decentralized_update_execution, local_device,
            )  # fmt: skip
            opened.callback(self.update_worker.stop)
            self.collection = self._collection_of(num_workers, is_leaving)
            opened.callback(self.collection.close)
            self._opened = opened.pop_all()

    def _pool(self) -> dict[str, Any]:
        return dict(standby=self._settings.collect.standby, policy=self._settings.failure, log=self._log)

    def _home(self, num_workers: int, actor_factory: Factory, train_envs_factory: Factory) -> Callable[..., CWorkerSet]:
        """Return what makes the set of the collectors, whose local worker has the driver's policy."""
        collect, is_far, policy = self._settings.collect, self._settings.address is not None, self.end.parts.policy
        return CWorkerSet.create_factory(
            num_workers, **self._parts, actor_factory=actor_factory,
            train_envs_factory=train_envs_factory if num_workers else no_envs,
            col_fraction_samples=collect.fraction_samples,
            compress_data_to_send=is_far if collect.compress == "auto" else bool(collect.compress),
            col_worker_resources=options_of(collect.resources), local_actor_factory=lambda device: policy,
            host=self._col_host, prepare=self._publisher.send_to, **self._pool(),
            remote_device="cuda" if collect.resources.num_gpus > 0 else None,
        )  # fmt: skip

    def _grad_workers(
        self, number: int, actor_factory: Factory, home: Callable[..., CWorkerSet], device: Any, index: int
    ) -> GWorkerSet:
        """Make the gradient workers; those elsewhere hold parameters, the one here has the driver's rows."""
        grad, failure = self._settings.grad, self._settings.failure
        away = CWorkerSet.create_factory(
            0, **self._parts, actor_factory=actor_factory, train_envs_factory=no_envs, total_parent_workers=number
        )
        workers = GWorkerSet.create_factory(
            number, **self._collect_words, col_workers_factory=away, local_col_workers_factory=home,
            col_fraction_workers=self._settings.collect.fraction_workers, compress_grads_to_send=grad.compress,
            grad_worker_resources=options_of(grad.resources), host=self._host, **self._pool(),
        )(device, index)  # fmt: skip
        local = workers.local_gradient_worker
        gradients = GradientSettings(
            grad.min_workers, grad.round_timeout_s, failure.step_timeout_s, grad.max_staleness, grad.staleness
        )
        local.driver, self.collectors = self.end.driver(self.collect, gradients), local.c_workers
        return workers

    def _collection_of(self, num_workers: int, is_leaving: Callable[[], bool]) -> Collection:
        collect, timeout_s = self._settings.collect, self._settings.failure.step_timeout_s
        patience_s = min(timeout_s, _WEIGHTS_S)
        if not num_workers:
            return CentralCollection(self.end.collect_role(), random=self.end.collect_at_random)
        remote = Remote(
            self.collectors.pool,
            WorkerCalls(self._col_host, self.collectors.pool, step_timeout_s=timeout_s),
            self.end.intake(max_policy_lag=collect.max_policy_lag),
            partial(self.end.publish, self._publisher, interval=self._settings.weights.interval, timeout_s=patience_s),
            is_leaving,
            collect.fraction_workers,
            patience_s,
            self.end.random_share,
            self.end.least_share,
            self.end.oldest,
        )
        if self._collect_words["col_communication"] == _SYNC:
            return SynchronousCollection(remote)
        rows = self.end.segment_rows(collect.segment_rows, num_workers)
        return AsynchronousCollection(
            remote, segment_rows=rows, max_queue_size=1 if self.end.is_on_policy else max(1, num_workers // 2)
        )

    def collect(self) -> Mapping[str, Any]:
        """Have the rows of one turn collected, unless updates are behind; return what is said of them."""
        order = self.end.rows.order(timeout_s=0.0)
        if order.rows:
            self.collection.collect(order)
        return self.end.said()

    @property
    def gradients(self) -> Gradients:
        """Return how gradients are computed and applied."""
        found = self.update_worker.local_worker.gradients
        assert found is not None, "the update worker has chosen them"
        return found

    @property
    def has_lost_workers(self) -> bool:
        """Tell whether workers were lost that cannot be replaced."""
        pools = self.collectors.pool, self.update_worker.grad_workers.pool
        return self.is_decentralized or any(pool.has_failed for pool in pools)

    def describe(self) -> dict[str, str]:
        """Return how the workers stand: rows of a run's panel."""
        losses = {"failures": str(self._log)} if self._log.rows else {}
        measured = {name: f"{value:.3g}" for name, value in self.gradients.measures().items() if value}
        return {**self.end.describe(), **measured, **losses}

    def stop(self) -> None:
        """End all workers, and what else was opened, within 10 s; may be called again."""
        self._opened.close()
