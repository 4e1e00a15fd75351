"""Define the set of workers that collect for one parent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import torch

from ding_like.comm.workers.host import WorkerHandle
from ding_like.comm.workers.last_action import last_action
from ding_like.pipeline.build.collect_end import collector_name
from ding_like.pipeline.build.factories import no_envs
from ding_like.pipeline.ray.c_worker import CWorker
from ding_like.pipeline.ray.worker_set import WorkerSet

# What PyTorchRL gives a worker.
RESOURCES = MappingProxyType(dict(memory=5 * 2**30, num_cpus=1, num_gpus=0.2, object_store_memory=2 * 2**30))


class CWorkerSet(WorkerSet):
    """Hold a local CWorker and `num_workers` remote ones, all of the parent `index_parent`.

    Rows are collected for parent 0: where there are others (`total_parent_workers` > 0) their sets hold parameters
    only. The local worker collects where there is no remote one; `local_actor_factory` may make its actor. Remote ones
    act on `remote_device`, "cuda" say of those with a GPU; None: the CPU. The other keywords are WorkerSet's.
    Source: PyTorchRL's CWorkerSet.
    """

    def __init__(
        self, num_workers: int, index_parent: int, algo_factory: Callable[..., Any], actor_factory: Callable[..., Any],
        storage_factory: Callable[..., Any], local_device: str | torch.device | None = None,
        initial_weights: Any = None, fraction_samples: float = 1.0, total_parent_workers: int = 0,
        compress_data_to_send: bool = False, train_envs_factory: Callable[..., Any] = no_envs,
        test_envs_factory: Callable[..., Any] = no_envs, worker_remote_config: Mapping[str, Any] = RESOURCES, *,
        local_actor_factory: Callable[..., Any] | None = None, remote_device: str | None = None,
        **settings: Any,  # Any: those of WorkerSet
    ) -> None:  # fmt: skip
        holds_parameters = total_parent_workers > 0 and index_parent > 0
        local: dict[str, Any] = dict(device=local_device, actor_factory=local_actor_factory or actor_factory)
        if holds_parameters or num_workers > 0:
            local |= dict(train_envs_factory=no_envs, test_envs_factory=no_envs)
        kind, number = collector_name("", index_parent), 0 if holds_parameters else num_workers
        # A folder of this user's alone; a set in a worker, which may be killed, has no remote ones, and none.
        self._notes = TemporaryDirectory(prefix="ding-like-") if number else None
        params = dict(
            index_parent=index_parent, algo_factory=algo_factory, actor_factory=actor_factory,
            storage_factory=storage_factory, fraction_samples=fraction_samples,
            compress_data_to_send=compress_data_to_send, train_envs_factory=train_envs_factory,
            test_envs_factory=test_envs_factory, initial_weights=initial_weights, device=remote_device,
            notes=self._notes and self._notes.name,
        )  # fmt: skip
        pool: dict[str, Any] = dict(remote_config=worker_remote_config, kind=kind, last_action=self.last_action)
        try:
            super().__init__(CWorker, params, num_workers=number, local_params=local, **(pool | settings))
        except BaseException:
            self._forget_notes()
            raise

    @classmethod
    def create_factory(
        cls, num_workers: int, algo_factory: Callable[..., Any], actor_factory: Callable[..., Any],
        storage_factory: Callable[..., Any], test_envs_factory: Callable[..., Any],
        train_envs_factory: Callable[..., Any], total_parent_workers: int = 0, col_fraction_samples: float = 1.0,
        compress_data_to_send: bool = False, col_worker_resources: Mapping[str, Any] = RESOURCES, **settings: Any,
    ) -> Callable[[Any, Any, int], CWorkerSet]:  # fmt: skip
        """Return f(device, initial_weights, index_parent), which makes such a set; `settings` are the constructor's."""
        resources = dict(col_worker_resources)

        def make(device: Any, initial_weights: Any, index_parent: int) -> CWorkerSet:
            return cls(
                num_workers, index_parent, algo_factory, actor_factory, storage_factory, device, initial_weights,
                col_fraction_samples, total_parent_workers, compress_data_to_send, train_envs_factory,
                test_envs_factory, resources, **settings,
            )  # fmt: skip

        return make

    def last_action(self, worker: WorkerHandle) -> str:
        """Return what a worker of this machine did last, also when it was killed; '' where that is not known."""
        return "" if self._notes is None else last_action(self._notes.name, worker.name)

    def stop(self, *, timeout_s: float = 10.0) -> None:
        super().stop(timeout_s=timeout_s)
        self._forget_notes()

    def _forget_notes(self) -> None:
        if self._notes is not None:
            self._notes.cleanup()
