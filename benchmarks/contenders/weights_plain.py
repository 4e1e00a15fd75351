"""What Python and torch have for weights on their way: pickles through pipes and queues, torch's queues of tensors."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from benchmarks.contenders import weights_work as work  # isort: skip  (pins the threads first)

import numpy as np
import torch
from torch import nn


def _arrays(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: each.numpy() for name, each in module.state_dict().items()}


def _load(module: nn.Module, arrays: dict[str, np.ndarray]) -> None:
    module.load_state_dict({name: torch.from_numpy(each) for name, each in arrays.items()})


class PipePickle(work.Base):
    """Send a pickle of the state as numpy arrays, made once for all workers, through a pipe to each.

    That is the quick form of it: a pickle of torch's tensors has another file inside for each tensor.
    """

    def prepare(self, module: nn.Module, context: Any) -> None:
        self._pipes = [context.Pipe(duplex=False) for _ in range(work.NUM_WORKERS)]

    def send(self, module: nn.Module, version: int) -> None:
        data = self._dumps(module)
        for _, end in self._pipes:
            end.send_bytes(data)

    def receive(self, index: int, module: nn.Module, applied: Callable[[], None], done: Any) -> None:
        for _ in range(self.num_versions):
            self._loads(module, self._pipes[index][0].recv_bytes())
            applied()

    def _dumps(self, module: nn.Module) -> bytes:
        return pickle.dumps(_arrays(module), protocol=5)

    def _loads(self, module: nn.Module, data: bytes) -> None:
        _load(module, pickle.loads(data))


class PipePickleTensors(PipePickle):
    """Send a pickle of the state dict as it is."""

    def _dumps(self, module: nn.Module) -> bytes:
        return pickle.dumps(dict(module.state_dict()), protocol=5)

    def _loads(self, module: nn.Module, data: bytes) -> None:
        module.load_state_dict(pickle.loads(data))


class QueuePickle(work.Base):
    """Put the state as numpy arrays into a queue for each worker; the queue pickles it, in a thread of its own."""

    def prepare(self, module: nn.Module, context: Any) -> None:
        self._queues = [context.Queue() for _ in range(work.NUM_WORKERS)]

    def send(self, module: nn.Module, version: int) -> None:
        # A copy, as the thread pickles later: the learner goes on with its update meanwhile.
        copied = {name: each.copy() for name, each in _arrays(module).items()}
        for queue in self._queues:
            queue.put(copied)

    def receive(self, index: int, module: nn.Module, applied: Callable[[], None], done: Any) -> None:
        for _ in range(self.num_versions):
            _load(module, self._queues[index].get(timeout=work.DEADLINE_S))
            applied()


class TorchQueue(work.Base):
    """Put a copy of the state dict into a queue of torch.multiprocessing for each worker.

    Handles of shared memory travel. The copy is needed: the memory that is put is the memory that the workers read.
    """

    def prepare(self, module: nn.Module, context: Any) -> None:
        # torch.multiprocessing is what any queue is once torch is imported: it teaches the pickler tensors.
        self._queues = [context.Queue() for _ in range(work.NUM_WORKERS)]

    def send(self, module: nn.Module, version: int) -> None:
        copied = {name: each.clone() for name, each in module.state_dict().items()}
        for queue in self._queues:
            queue.put(copied)

    def receive(self, index: int, module: nn.Module, applied: Callable[[], None], done: Any) -> None:
        for _ in range(self.num_versions):
            module.load_state_dict(self._queues[index].get(timeout=work.DEADLINE_S))
            applied()


if __name__ == "__main__":
    makers: dict[str, Callable[[], work.Way]] = {
        "pipe_pickle": PipePickle,
        "pipe_pickle_tensors": PipePickleTensors,
        "queue_pickle": QueuePickle,
        "torch_queue": TorchQueue,
    }
    work.main(makers, ())
