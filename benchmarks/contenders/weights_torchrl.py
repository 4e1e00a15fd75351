"""TorchRL's weight sync schemes, called as its page on weight synchronisation shows for processes of one's own."""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from benchmarks.contenders import weights_work as work  # isort: skip  (pins the threads first)

import torch
import torch.distributed as dist
from tensordict import TensorDict
from torch import nn
from torchrl.collectors.distributed import DistributedWeightUpdater
from torchrl.weight_update import MultiProcessWeightSyncScheme, SharedMemWeightSyncScheme

_MODEL_ID = "policy"


class Scheme(work.Base):
    """Send by a scheme that is synchronous: `send` returns when all workers have acknowledged what they have applied.

    The scheme begins with a copy of the weights. Given the module's own, as the page does, the shared-memory scheme
    moves the module into shared memory and the workers' modules with it: they see each step of the optimizer while it
    is taken, and `send` carries nothing.
    """

    acknowledges = True

    def __init__(self, scheme: Any) -> None:
        self._scheme = scheme

    def prepare(self, module: nn.Module, context: Any) -> None:
        self._scheme.init_on_sender(
            model_id=_MODEL_ID,
            weights=TensorDict.from_module(module).data.clone(),
            devices=[torch.device("cpu")] * work.NUM_WORKERS,
            num_workers=work.NUM_WORKERS,
        )

    def open(self, module: nn.Module) -> None:
        self._scheme.connect()

    def send(self, module: nn.Module, version: int) -> None:
        self._scheme.send(TensorDict.from_module(module).data)

    def receive(self, index: int, module: nn.Module, applied: Callable[[], None], done: Any) -> None:
        self._scheme.init_on_receiver(model_id=_MODEL_ID, model=module, worker_idx=index)
        self._scheme.connect(worker_idx=index)
        done.wait(work.DEADLINE_S * 5)

    def close(self) -> None:
        self._scheme.shutdown()


class Updater(work.Base):
    """Send by the DistributedWeightUpdater, to a loop of a worker as its words in the store ask for.

    That class is deprecated for DistributedWeightSyncScheme, whose use outside a collector is not documented; what was
    tried (an open process group, a context with the model) hung in its second `send`.
    """

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]

    def open(self, module: nn.Module) -> None:
        store = self._join(0)
        weights = TensorDict.from_module(module).data
        self._updater = DistributedWeightUpdater(store, weights, work.NUM_WORKERS, sync=True)

    def _join(self, rank: int) -> dist.Store:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        timeout = timedelta(seconds=work.DEADLINE_S)
        where, world_size = f"tcp://127.0.0.1:{self._port}", 1 + work.NUM_WORKERS
        dist.init_process_group("gloo", init_method=where, rank=rank, world_size=world_size, timeout=timeout)
        return dist.distributed_c10d._get_default_store()

    def send(self, module: nn.Module, version: int) -> None:
        self._updater.push_weights()

    def receive(self, index: int, module: nn.Module, applied: Callable[[], None], done: Any) -> None:
        rank = index + 1
        store = self._join(rank)
        received = TensorDict.from_module(module).data.clone()
        for _ in range(self.num_versions):
            if store.get(f"NODE_{rank}_in") != b"update_weights":
                raise RuntimeError("another word than update_weights")
            store.delete_key(f"NODE_{rank}_in")
            received.recv(0)
            received.to_module(module, inplace=True)
            store.set(f"NODE_{rank}_out", b"updated")
            applied()

    def close(self) -> None:
        dist.destroy_process_group()


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    makers: dict[str, Callable[[], work.Way]] = {
        "shared_memory": lambda: Scheme(SharedMemWeightSyncScheme()),
        "queues": lambda: Scheme(MultiProcessWeightSyncScheme()),
        "updater": Updater,
    }
    work.main(makers, ("torchrl", "tensordict"), ("torchrl.weight_update", "torchrl.collectors.distributed"))
