"""Pass on what is changed while a run goes on to the workers that belong to one."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from ding_like.comm.workers.host import WorkerHandle

logger = logging.getLogger(__name__)

_REPLACE_S = 120.0  # a collection under way comes first
_ENVS = ("envs_", "TrainEnvironment", "TestEnvironment")


class ChangedEverywhere(ABC):
    """Have what is changed be changed in all workers that belong to this one: once each, and acknowledged.

    Workers that take over from them, or are added, are told too before they work.
    """

    def update_algorithm_parameter(self, parameter_name: str, new_parameter_value: Any) -> bool:
        """Set an attribute of `algo` everywhere; "lr" sets the optimizers too. Tell whether all have it."""
        return self._everywhere("update_algorithm_parameter", parameter_name, new_parameter_value)

    def update_storage_parameter(self, parameter_name: str, new_parameter_value: Any) -> bool:
        """Set an attribute of `storage` everywhere; tell whether all have it."""
        return self._everywhere("update_storage_parameter", parameter_name, new_parameter_value)

    @abstractmethod
    def _everywhere(self, method: str, name: str, value: Any) -> bool:
        """Call a method of every worker, and tell whether all have returned True."""


class OverCollectors(ChangedEverywhere):
    """Be a worker with a set of collectors, `c_workers`, whose local one has the same parts."""

    c_workers: Any  # a CWorkerSet, of a module above this one

    @property
    @abstractmethod
    def learns_here(self) -> bool:
        """Tell whether a run learns with the local one's parts."""

    def set_weights(self, actor_weights: Any) -> None:  # Any: as `CWorker.set_weights` takes them
        """Take weights over."""
        self.c_workers.local_worker().set_weights(actor_weights)

    def replace_agent_component(self, component_name: str, new_component_factory: Callable[..., Any]) -> bool:
        """Put what a factory makes in the place of a part of the workers that collect; tell whether all have it.

        The policy and the rows that are learned with stay.
        """
        given = component_name, new_component_factory
        if self.c_workers.has_remote:
            told: bool = self.c_workers.tell("replace_agent_component", *given, in_turn=True, timeout_s=_REPLACE_S)
            return told
        if self.learns_here and not component_name.startswith(_ENVS):
            logger.warning("'%s' is what the run learns with: it stays as it is.", component_name)
            return False
        return bool(self.c_workers.local_worker().replace_agent_component(*given))

    def _everywhere(self, method: str, name: str, value: Any) -> bool:
        local = self.c_workers.local_worker()
        is_set = bool(getattr(local, method)(name, value))
        self.actor, self.algo, self.storage = local.actor, local.algo, local.storage
        return bool(self.c_workers.tell(method, name, value)) and is_set


class OverGradientWorkers(ChangedEverywhere):
    """Be a worker with a set of gradient workers, `grad_workers`; what is asked for is done between two turns."""

    grad_workers: Any  # a GWorkerSet, of a module above this one
    local_worker: Any  # its local GWorker

    @property
    def remote_workers(self) -> list[WorkerHandle]:
        """Return the remote gradient workers that work now."""
        workers: list[WorkerHandle] = self.grad_workers.remote_workers()
        return workers

    @property
    def num_workers(self) -> int:
        """Return their number."""
        return int(self.grad_workers.num_workers)

    @abstractmethod
    def settle(self) -> None:
        """Stand between two updates."""

    def replace_agent_component(self, component_name: str, new_component_factory: Callable[..., Any]) -> bool:
        """Put what a factory makes in the place of a part of the workers that collect; see `GWorker`."""
        self.settle()
        return self.local_worker.replace_agent_component(component_name, new_component_factory)

    def _everywhere(self, method: str, name: str, value: Any) -> bool:
        self.settle()
        is_set = getattr(self.local_worker, method)(name, value)
        return bool(self.grad_workers.tell(method, name, value)) and is_set

    def save_model(self, fname: str) -> None:
        """Write a checkpoint under this name, see `GWorker.save_model`."""
        self.settle()
        self.local_worker.save_model(fname)
