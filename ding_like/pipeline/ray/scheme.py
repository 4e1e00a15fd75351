"""Training scheme: an update worker over gradient workers over collectors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from ding_like.comm.ray.cluster import open_cluster
from ding_like.comm.ray.needs import options_of
from ding_like.comm.workers.failures import FailureLog
from ding_like.pipeline.checks import check_patterns
from ding_like.pipeline.factories import SchemeFactories, no_envs
from ding_like.pipeline.learner_side import LearnerSide, RunAlgorithm
from ding_like.pipeline.ray.c_worker import CWorkerSet
from ding_like.pipeline.ray.g_worker import GWorkerSet
from ding_like.pipeline.ray.settings import RaySettings, wanted, worker_class
from ding_like.policy.sharing import check_sharing

logger = logging.getLogger(__name__)

_SYNC, _ASYNC = "synchronous", "asynchronous"
Factory = Callable[..., Any]  # of what a worker is made of: see `CWorker`


class Scheme:
    """Workers of a training scheme: `update_worker`, a UWorker over GWorkers over CWorkers.

    The factories are CWorker's: those of `SchemeFactories`, whose policies learn with the buffer and the learner of
    their config, or plain ones (docs/ray.md). `actor_factory` makes actors that learn, `col_actor_factory` may make the
    collectors'. With 0 `num_col_workers` each gradient worker collects by itself; with up to 1 `num_grad_workers` this
    process computes gradients. `settings` has the rest, and `end` the parts of a run. Raises ConfigError, with the
    reasons, for patterns that exclude each other. Source: PyTorchRL's Scheme.
    """

    def __init__(
        self, algo_factory: Factory, actor_factory: Factory, storage_factory: Factory, train_envs_factory: Factory,
        test_envs_factory: Factory = no_envs, *, num_col_workers: int = 0, col_workers_communication: str = _SYNC,
        num_grad_workers: int = 1, grad_workers_communication: str = _SYNC,
        decentralized_update_execution: bool = False, local_device: str | None = None,
        col_actor_factory: Factory | None = None, settings: RaySettings | None = None, end: LearnerSide | None = None,
        log: FailureLog | None = None, is_leaving: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        self.settings, self.is_leaving = settings or RaySettings(), is_leaving
        self.is_decentralized, self.log = decentralized_update_execution, log if log is not None else FailureLog()
        self._num_parents = num_grad_workers if num_grad_workers > 1 else 0
        self._num_collectors, self._is_ahead = num_col_workers, col_workers_communication == _ASYNC
        self._communication = col_workers_communication
        execution = "Parallel" if self._num_parents else "Central"
        own = getattr(algo_factory, "__self__", None)
        factories = own if isinstance(own, SchemeFactories) else None
        with ExitStack() as opened:
            if end is None and factories is not None:
                collects = not (num_col_workers or self._is_ahead or self._num_parents)
                end = LearnerSide.of(factories, collects=collects)
                opened.callback(end.parts.close)
            self.end = end
            self.random_rows = 0 if end is None else end.random_rows  # that are still to be collected
            self._check(execution, grad_workers_communication)
            needs = wanted(self.settings, num_col_workers, self._num_parents)
            cluster = open_cluster(needs) if needs else None
            if cluster is not None:
                opened.callback(cluster.close)
            make = dict(
                algo_factory=algo_factory, actor_factory=actor_factory, storage_factory=storage_factory,
                train_envs_factory=train_envs_factory, test_envs_factory=test_envs_factory,
            )  # fmt: skip
            self.update_worker = worker_class("u_worker", self.settings)(
                self._grad_workers_factory(make, col_actor_factory, factories), 0,
                self.settings.collect.fraction_workers if self._num_parents else 1.0, execution,
                grad_workers_communication, decentralized_update_execution, local_device, settings=self.settings.grad,
            )  # fmt: skip
            opened.callback(self.update_worker.stop)
            self._opened = opened.pop_all()

    def _check(self, grad_execution: str, grad_communication: str) -> None:
        end, collect = self.end, self.settings.collect
        check_patterns(
            col_execution="Parallel" if self._num_collectors else "Central", col_communication=self._communication,
            grad_execution=grad_execution, grad_communication=grad_communication,
            limits={name: getattr(collect, name) for name in ("fraction_workers", "fraction_samples")},
            max_policy_lag=collect.max_policy_lag, decentralized=self.is_decentralized,
            is_on_policy=end is not None and end.is_on_policy,
            has_buffer=end is not None and end.parts.buffer is not None,
            collects_episodes=end is not None and end.collects_episodes,
        )  # fmt: skip
        if end is not None and self._num_parents:
            check_sharing(end.parts.policy)

    def _grad_workers_factory(
        self, make: Mapping[str, Factory], col_actor_factory: Factory | None, factories: SchemeFactories | None
    ) -> Callable[[Any, int], GWorkerSet]:
        """Return what makes the gradient workers, of which the local one has the run's parts, where there is a run."""
        collect, grad, end = self.settings.collect, self.settings.grad, self.end
        is_far = self.settings.address is not None
        acting = make["actor_factory"] if factories is None else factories.actor
        common: dict[str, Any] = dict(
            **{**make, "actor_factory": col_actor_factory or acting}, total_parent_workers=self._num_parents,
            col_fraction_samples=collect.fraction_samples,
            compress_data_to_send=is_far if collect.compress == "auto" else bool(collect.compress),
            col_worker_resources=options_of(collect.resources), policy=self.settings.failure,
            worker_class=worker_class("c_worker", self.settings),
            remote_device="cuda" if collect.resources.num_gpus > 0 else None,
            is_apart=self._is_ahead and not self._num_collectors,
        )  # fmt: skip
        local_actor: dict[str, Any] = {"actor_factory": make["actor_factory"]}
        away = CWorkerSet.create_factory(self._num_collectors, **common, local_params=local_actor)
        home = local_actor
        if end is not None:
            assert factories is not None, "a run has the factories of its config"
            run, policy = RunAlgorithm(factories, end), end.parts.policy
            home = dict(actor_factory=lambda device: policy, algo_factory=lambda device, actor: run)
            if end.parts.collector_env is not None:
                home["train_envs_factory"] = lambda *_: end.parts.own_env
        here = CWorkerSet.create_factory(
            self._num_collectors, **common, local_params=home, log=self.log, is_leaving=self.is_leaving
        )
        num_workers = max(self._num_collectors, 1)
        options = dict(
            broadcast_interval=self.settings.weights.interval, max_policy_lag=collect.max_policy_lag,
            max_queue_size=1 if end is not None and end.is_on_policy else max(1, num_workers // 2),
            segment_rows=None if end is None else end.segment_rows(collect.segment_rows, num_workers),
            least_rows=1 if end is None else end.least_share,
        )  # fmt: skip
        return GWorkerSet.create_factory(
            self._num_parents, col_execution="Parallel" if self._num_collectors else "Central",
            col_communication=self._communication, col_workers_factory=away,
            col_fraction_workers=collect.fraction_workers, grad_worker_resources=options_of(grad.resources),
            compress_grads_to_send=grad.compress, local_params={"col_workers_factory": here}, worker_options=options,
            worker_class=worker_class("g_worker", self.settings), policy=self.settings.failure, log=self.log,
            is_leaving=self.is_leaving,
        )  # fmt: skip

    @property
    def env_step(self) -> int:
        """Number of env steps of the run."""
        return self.update_worker.env_step if self.end is None else int(self.end.rows.env_step)

    def collect_random(self) -> None:
        """Collect the rows of random actions that a run begins with."""
        while self.end is not None and self.random_rows > 0 and not self.is_leaving():
            if self.end.parts.collector_env is not None:
                self.end.collect_at_random()
                self.random_rows = 0
            else:
                share = self.end.random_share * max(self._num_collectors, 1) * max(self._num_parents, 1)
                came = self.update_worker.collect_random(min(self.random_rows, share))
                self.random_rows = max(0, self.random_rows - came)

    @property
    def has_failed_workers(self) -> bool:
        """Whether workers failed whose work cannot go on."""
        return self.is_decentralized or bool(self.log.rows)

    def describe(self) -> dict[str, str]:
        """Return the status of the workers: rows of a run's panel."""
        losses = {"failures": str(self.log)} if self.log.rows else {}
        return {**({} if self.end is None else self.end.describe()), **losses}

    def stop(self) -> None:
        """End all workers, and what else was opened, within 10 s; may be called again."""
        self._opened.close()


class Learner:
    """Trainer by a scheme for `target_steps` env steps, for a loop of one's own. Source: PyTorchRL's Learner."""

    def __init__(self, scheme: Scheme, target_steps: int, log_dir: str | None = None) -> None:
        """Train nothing before the first `step`; checkpoints go into the experiment's folder."""
        self.scheme, self.target_steps, self.log_dir = scheme, target_steps, log_dir
        self._info: Mapping[str, Any] | None = None

    def step(self) -> Mapping[str, Any]:
        """Run one update and return its info: of episodes, versions, lag, times and losses, by name."""
        if self._info is None:
            self.scheme.collect_random()
        self._info = self.scheme.update_worker.step()
        return self._info

    def done(self) -> bool:
        """Return whether `target_steps` env steps were taken."""
        return self.scheme.env_step >= self.target_steps

    def print_info(self) -> None:
        """Log the info of the last update."""
        logger.info("env step %s: %s", f"{self.scheme.env_step:,}", dict(self._info or {}))

    def save_model(self, fname: str = "model.pth.tar") -> None:
        """Write a checkpoint of the learner, whole or not at all."""
        self.scheme.update_worker.save_model(fname)

    def update_algorithm_parameter(self, parameter_name: str, new_parameter_value: Any) -> bool:
        """Set an attribute of the algorithm in all workers; return whether all have it."""
        return self.scheme.update_worker.update_algorithm_parameter(parameter_name, new_parameter_value)

    def stop(self) -> None:
        """End all workers."""
        self.scheme.stop()
