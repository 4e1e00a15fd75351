"""Put a scheme together: an update worker over gradient workers over collectors, each pattern chosen once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from ding_like.comm.workers.calls import WorkerCalls
from ding_like.comm.workers.failures import FailureLog, FailurePolicy
from ding_like.comm.workers.host import Host
from ding_like.comm.workers.threads import ThreadHost
from ding_like.comm.workers.weights import HostWeightPublisher
from ding_like.errors import ConfigError
from ding_like.pipeline.build.driver_end import DriverEnd
from ding_like.pipeline.ray.c_worker import no_envs
from ding_like.pipeline.ray.c_worker_set import RESOURCES, CWorkerSet
from ding_like.pipeline.ray.collection import (
    AsynchronousCollection, CentralCollection, Collection, Remote, SynchronousCollection,
)  # fmt: skip
from ding_like.pipeline.ray.g_worker import GWorkerSet
from ding_like.pipeline.ray.u_worker import UWorker
from ding_like.pipeline.roles.gradient_rounds import GradientSettings

_SYNC, _ASYNC = "synchronous", "asynchronous"
Factory = Callable[..., Any]  # of what a worker is made of: see `CWorker`


class Scheme:
    """Hold the workers of a training scheme: `update_worker`, a UWorker over GWorkers over CWorkers.

    The factories are CWorker's; `actor_factory` makes one that learns, `col_actor_factory` may make one for collectors.
    With 0 `num_col_workers` this process collects, with up to 1 `num_grad_workers` it computes the gradients.
    `col_preemption_thresholds` has "fraction_workers", after which a round ends, and "fraction_samples", the least that
    the other workers have collected then. Workers run on `host`, by default in threads of this process; `end` is the
    driver's, by default what the algorithm's config says. Raises ConfigError, with the reasons, for patterns that
    exclude each other. Source: PyTorchRL's Scheme.
    """

    def __init__(
        self, algo_factory: Factory, actor_factory: Factory, storage_factory: Factory, train_envs_factory: Factory,
        test_envs_factory: Factory = no_envs, *, num_col_workers: int = 0, col_workers_communication: str = _SYNC,
        col_workers_resources: Mapping[str, Any] = RESOURCES,
        col_preemption_thresholds: Mapping[str, float] | None = None, num_grad_workers: int = 1,
        grad_workers_communication: str = _SYNC, grad_workers_resources: Mapping[str, Any] | None = None,
        decentralized_update_execution: bool = False, local_device: str | None = None,
        compress_data_to_send: bool = False, compress_grads_to_send: bool = False, broadcast_interval: int = 1,
        max_policy_lag: int | None = None, segment_rows: int = 0, standby: int = 1,
        col_actor_factory: Factory | None = None, gradients: GradientSettings | None = None,
        failure: FailurePolicy | None = None, log: FailureLog | None = None, end: DriverEnd | None = None,
        host: Host | None = None, is_leaving: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        limits = {"fraction_workers": 1.0, "fraction_samples": 1.0, **(col_preemption_thresholds or {})}
        grad_execution = "Parallel" if num_grad_workers > 1 else "Central"
        faults = [
            *_faults_of_collection(num_col_workers, col_workers_communication, limits, max_policy_lag),
            *_faults_of_gradients(grad_execution, grad_workers_communication, decentralized_update_execution),
        ]
        if faults:
            raise ConfigError("this scheme cannot be: " + "; ".join(faults) + ".")
        failure, log = failure or FailurePolicy(), log or FailureLog()
        self._own_host = ThreadHost() if host is None or (not num_col_workers and col_workers_communication == _ASYNC) else None
        ...
