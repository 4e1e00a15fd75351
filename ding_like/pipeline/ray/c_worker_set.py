"""Set of the workers that collect for one gradient worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from ding_like.comm.ray.needs import Need
from ding_like.comm.workers.resources import resources_of
from ding_like.pipeline.build.collect_end import collector_name
from ding_like.pipeline.build.factories import no_envs
from ding_like.pipeline.ray.c_worker import CWorker
from ding_like.pipeline.ray.worker_set import WorkerSet

# What PyTorchRL gives a worker.
RESOURCES = MappingProxyType(dict(memory=5 * 2**30, num_cpus=1, num_gpus=0.2, object_store_memory=2 * 2**30))


class CWorkerSet(WorkerSet):
    """Set of a local CWorker and `num_workers` remote ones, all of the gradient worker `index_parent`.

    In a scheme of several gradient workers (`total_parent_workers` > 0) the set of parent 0 holds parameters only. The
    local worker collects where no remote one does; with `is_apart` by a CWorker of its own, whose actor nothing else
    uses. `local_params` replace parameters of the local worker. Remote workers act on `remote_device` (None: the CPU).
    The other keywords are WorkerSet's. Source: PyTorchRL's CWorkerSet.
    """

    def __init__(
        self, num_workers: int, index_parent: int, algo_factory: Callable[..., Any], actor_factory: Callable[..., Any],
        storage_factory: Callable[..., Any], local_device: str | torch.device | None = None,
        initial_weights: Any = None, fraction_samples: float = 1.0, total_parent_workers: int = 0,
        compress_data_to_send: bool = False, train_envs_factory: Callable[..., Any] = no_envs,
        test_envs_factory: Callable[..., Any] = no_envs, worker_remote_config: Mapping[str, Any] = RESOURCES, *,
        local_params: Mapping[str, Any] | None = None, remote_device: str | None = None, is_apart: bool = False,
        worker_class: type[CWorker] = CWorker, **settings: Any,  # Any: those of WorkerSet
    ) -> None:  # fmt: skip
        holds_parameters = total_parent_workers > 0 and index_parent == 0
        params = dict(
            index_parent=index_parent, algo_factory=algo_factory, actor_factory=actor_factory,
            storage_factory=storage_factory, fraction_samples=fraction_samples,
            compress_data_to_send=compress_data_to_send, train_envs_factory=train_envs_factory,
            test_envs_factory=test_envs_factory, initial_weights=initial_weights, device=remote_device,
        )  # fmt: skip
        local: dict[str, Any] = {"device": local_device, **(local_params or {})}
        if holds_parameters or num_workers > 0 or is_apart:
            local |= dict(train_envs_factory=no_envs, test_envs_factory=no_envs)
        super().__init__(
            worker_class, params, num_workers=0 if holds_parameters else num_workers, local_params=local,
            remote_config=worker_remote_config, kind=collector_name("", index_parent), **settings,
        )  # fmt: skip
        if is_apart and not holds_parameters:
            try:
                self.serving = worker_class(0, **{**params, "device": local_device})
            except BaseException:
                self.stop()
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

        if num_workers:
            make.need = Need("collector", num_workers, resources_of(resources))  # type: ignore[attr-defined]
        return make

    @property
    def shares_actor(self) -> bool:
        """Whether rows are collected with the local worker's actor, or not at all: no weights are sent."""
        return not self.num_asked and self.serving is self._local

    def stop(self, *, timeout_s: float = 10.0) -> None:
        if self.serving is not self._local:
            self.serving.stop()
        super().stop(timeout_s=timeout_s)
