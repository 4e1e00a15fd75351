"""Define the worker that updates the policy, turn by turn."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ding_like.comm.workers.acknowledged import acknowledged
from ding_like.comm.workers.host import WorkerHandle
from ding_like.pipeline.ray.g_worker import GWorker, GWorkerSet
from ding_like.pipeline.ray.worker import Worker
from ding_like.pipeline.roles.over_workers import ChangedEverywhere
from ding_like.pipeline.roles.turn_thread import STOP_S, TurnThread

logger = logging.getLogger(__name__)


class UpdaterThread(TurnThread):
    """Take turns: have rows collected, have gradients computed and apply them. Source: PyTorchRL's UpdaterThread.

    Synchronous, `step` takes one in the caller's thread; asynchronous, the thread does, which begins with the first.
    """

    def __init__(
        self, local_worker: GWorker, remote_workers: Sequence[WorkerHandle], decentralized_update_execution: bool,
        col_fraction_workers: float = 1.0, grad_execution: str = "Central", grad_communication: str = "synchronous",
    ) -> None:  # fmt: skip
        self.local_worker, self.remote_workers, self.num_workers = local_worker, remote_workers, len(remote_workers)
        self.decentralized_update_execution = decentralized_update_execution
        self.col_fraction_workers = col_fraction_workers
        self.grad_execution, self.grad_communication = grad_execution, grad_communication
        super().__init__(local_worker.step, is_ahead=grad_communication == "asynchronous", name="updater")


class UWorker(ChangedEverywhere, Worker):
    """Update the policy with the gradients of a set of GWorkers. Source: PyTorchRL's UWorker.

    The local GWorker of what `grad_workers_factory(device, index)` makes has its `driver`. Raises ConfigError for words
    that exclude each other; see `choose_gradients`.
    """

    def __init__(
        self, grad_workers_factory: Callable[[Any, int], GWorkerSet], index_worker: int = 0,
        col_fraction_workers: float = 1.0, grad_execution: str = "Central", grad_communication: str = "synchronous",
        decentralized_update_execution: bool = False, local_device: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(index_worker)
        self.grad_execution, self.grad_communication = grad_execution, grad_communication
        self.grad_workers = grad_workers_factory(local_device, index_worker)
        self.local_worker = local = self.grad_workers.local_gradient_worker
        try:
            self._gradients = local.learn_by(
                self.grad_workers, grad_execution, grad_communication, decentralized=decentralized_update_execution
            )
            self.updater = UpdaterThread(
                local, self.remote_workers, decentralized_update_execution, col_fraction_workers, grad_execution,
                grad_communication,
            )  # fmt: skip
        except BaseException:
            self.grad_workers.stop()
            raise

    @property
    def remote_workers(self) -> list[WorkerHandle]:
        """Return the remote gradient workers that work now."""
        return self.grad_workers.remote_workers()

    @property
    def num_workers(self) -> int:
        """Return their number."""
        return self.grad_workers.num_workers

    @property
    def actor_version(self) -> int:
        """Return the number of updates of the actor; a run that goes on counts on."""
        return self.local_worker.actor_version

    def step(self) -> Mapping[str, Any]:
        """Return what is said of the next turn, see `GWorker.step`. Raises what it raised."""
        return self.updater.step()

    def settle(self) -> None:
        """Stand between two updates, with all that was learned in this process, until the next `step`."""
        self.updater.settle()
        self._gradients.settle()

    def replace_agent_component(self, component_name: str, new_component_factory: Callable[..., Any]) -> bool:
        """Put what a factory makes in the place of a part of the workers that collect; see `GWorker`."""
        self.settle()
        return self.local_worker.replace_agent_component(component_name, new_component_factory)

    def _everywhere(self, method: str, name: str, value: Any) -> bool:
        self.settle()
        is_set = getattr(self.local_worker, method)(name, value)
        return acknowledged(self.grad_workers.remote_workers(), method, name, value) and is_set

    def save_model(self, fname: str) -> None:
        """Write a checkpoint under this name, see `GWorker.save_model`."""
        self.settle()
        self.local_worker.save_model(fname)

    def stop(self) -> None:
        """End the thread and all workers, within 10 s; may be called again."""
        if not self.updater.stop():
            logger.warning("the updater's turn goes on %g s after it was to stop; it ends with the process.", STOP_S)
        self.grad_workers.stop(timeout_s=5.0)
