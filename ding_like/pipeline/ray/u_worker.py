"""Define the worker that updates the policy, turn by turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ding_like.pipeline.ray.g_worker import GWorkerSet
from ding_like.pipeline.ray.worker import Worker
from ding_like.pipeline.roles.over_workers import OverGradientWorkers
from ding_like.pipeline.roles.turn_thread import UpdaterThread

__all__ = ["UWorker", "UpdaterThread"]


class UWorker(OverGradientWorkers, Worker):
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

    def stop(self) -> None:
        """End the thread and all workers, within 10 s; may be called again."""
        self.updater.stop(timeout_s=2.0)
        self.local_worker.c_workers.stop(timeout_s=3.0)  # which ends a turn that waits for rows
        self.grad_workers.stop(timeout_s=3.0)
        self.updater.stop(timeout_s=1.0)
