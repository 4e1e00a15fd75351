"""Define the worker that computes gradients: in the driver a train role, elsewhere a replica that holds no rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ding_like.comm.workers.host import Host
from ding_like.errors import ConfigError
from ding_like.pipeline.ray.gradients import DecentralisedUpdates, Gradients, choose_gradients
from ding_like.pipeline.ray.worker import Worker
from ding_like.pipeline.ray.worker_set import WorkerSet
from ding_like.pipeline.roles.gradient_replica import GradientReplica
from ding_like.pipeline.roles.gradient_rounds import Driver
from ding_like.pipeline.roles.over_workers import OverCollectors
from ding_like.pipeline.roles.turn_info import turn_info

# (device, initial weights, index of the parent) -> CWorkerSet. Any: of the collectors' module.
CWorkersFactory = Callable[[Any, Any, int], Any]


class GWorker(OverCollectors, GradientReplica, Worker):
    """Compute gradients; the local worker, of index 0, has the rows, the optimizer and the collectors.

    A remote worker is a replica of the policy: it is sent its rows of a minibatch and what has changed of what a
    gradient depends on, and returns the gradient; so it takes no row with it when it dies. Source: PyTorchRL's GWorker.
    """

    def __init__(
        self, index_worker: int, col_workers_factory: CWorkersFactory, col_communication: str = "synchronous",
        compress_grads_to_send: bool = False, col_execution: str = "Central", col_fraction_workers: float = 1.0,
        initial_weights: Any = None, device: str | None = None,  # Any: as `CWorker.set_weights` takes them
    ) -> None:  # fmt: skip
        super().__init__(index_worker)
        self.col_communication, self.col_execution = col_communication, col_execution
        self.col_fraction_workers, self.compress_grads_to_send = col_fraction_workers, compress_grads_to_send
        self.device = device
        self.driver: Driver | None = None  # of the local one
        self.gradients: Gradients | None = None
        self.c_workers = col_workers_factory(device, initial_weights, index_worker)
        local = self.c_workers.local_worker()
        self.actor, self.algo, self.storage = local.actor, local.algo, local.storage

    @property
    def actor_version(self) -> int:
        """Return the number of updates of the policy that computes here."""
        return self._version if self.driver is None else self.driver.learner.train_iter

    # --- in the driver

    @property
    def learns_here(self) -> bool:
        """Tell whether the run's own policy learns here."""
        return self.driver is not None

    def learn_by(self, workers: GWorkerSet, execution: str, communication: str, *, decentralized: bool) -> Gradients:
        """Choose how gradients are computed and applied; see `choose_gradients`."""
        self.gradients = choose_gradients(
            self._driven(), workers.host, workers.pool, execution, communication, decentralized=decentralized
        )
        return self.gradients

    def _driven(self) -> Driver:
        if self.driver is None:
            raise ConfigError(
                f"gradient worker {self.index_worker} has no rows and no learner: set `driver` of the local one."
            )
        return self.driver

    def get_data(self) -> Mapping[str, Any]:
        """Have the rows of one turn collected, and return what is said of them."""
        return self._driven().collect()

    def step(self, distribute_gradients: bool | None = None) -> Mapping[str, Any]:
        """Take one turn: collect what is ordered and train on what came; return what is said of both.

        `distribute_gradients` says whether all ranks apply gradients themselves, which was chosen before; None: as it
        was. Raises ConfigError where it was chosen otherwise.
        """
        info, gradients, learner = self.get_data(), self.gradients, self._driven().learner
        if gradients is None or distribute_gradients not in (None, isinstance(gradients, DecentralisedUpdates)):
            raise ConfigError("how gradients are applied is chosen by UWorker(decentralized_update_execution=...).")
        return turn_info(info, learner, gradients.train_ready(), gradients.measures())

    def save_model(self, fname: str) -> None:
        """Write a checkpoint of the learner under this name, whole or not at all, where its other checkpoints are."""
        self._driven().learner.save_checkpoint(fname)

    def stop(self) -> None:
        """Leave the ranks and end the collectors; may be called again."""
        self.leave_ranks()
        if self.gradients is not None:
            self.gradients.close()
        self.c_workers.stop()


class GWorkerSet(WorkerSet):
    """Hold the local GWorker and `num_workers` remote ones, each with the collectors that a factory makes it.

    `local_col_workers_factory` makes those of the local one, if given. The keywords behind are WorkerSet's.
    """

    def __init__(
        self, num_workers: int, index_parent: int, local_device: str | None, col_execution: str,
        col_communication: str, col_workers_factory: CWorkersFactory, col_fraction_workers: float = 1.0,
        grad_worker_resources: Mapping[str, Any] | None = None, compress_grads_to_send: bool = False,
        initial_weights: Any = None, *, local_col_workers_factory: CWorkersFactory | None = None,
        worker_class: type[GWorker] = GWorker, host: Host | None = None, **settings: Any,  # Any: of WorkerSet
    ) -> None:  # fmt: skip
        self.index_parent = index_parent
        own_factory = local_col_workers_factory or col_workers_factory
        has_gpu = float((grad_worker_resources or {}).get("num_gpus", 0)) > 0
        params = dict(
            col_workers_factory=col_workers_factory, col_communication=col_communication,
            compress_grads_to_send=compress_grads_to_send, col_execution=col_execution,
            col_fraction_workers=col_fraction_workers, initial_weights=initial_weights,
            device="cuda" if has_gpu else None,
        )  # fmt: skip
        super().__init__(
            worker_class, params, num_workers=num_workers, remote_config=grad_worker_resources,
            local_params={"device": local_device, "col_workers_factory": own_factory}, host=host, kind="gradient",
            **settings,
        )  # fmt: skip
        given = self._own_host if host is None else host
        assert given is not None, "a set without a host has one of its own"
        self.host: Host = given

    @property
    def local_gradient_worker(self) -> GWorker:
        """Return the local worker."""
        local = self.local_worker()
        assert isinstance(local, GWorker), "worker_class says so"
        return local

    @classmethod
    def create_factory(cls, num_workers: int, **settings: Any) -> Callable[[Any, int], GWorkerSet]:
        """Return a function of (device, index of the parent) that makes such sets."""
        return lambda device, index: cls(num_workers, index_parent=index, local_device=device, **settings)
