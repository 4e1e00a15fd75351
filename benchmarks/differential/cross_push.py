"""Push with TorchRL's updater to our workers, and with ours to workers that TorchRL's would lead, over real gloo.

Each of two workers is a process. Words go through a TCPStore; numbers as a TensorDict sends them: `_send_weights` and
`_receive` are where a subclass of ours sends and receives them another way.
"""

from __future__ import annotations

import multiprocessing
import socket
import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from tensordict import TensorDict
from torch import nn
from torchrl.collectors.distributed import DistributedWeightUpdater as TorchRLUpdater

from benchmarks.differential.updater_fakes import make_module
from ding_like.comm import DistributedWeightUpdater, WeightUpdateWorker
from ding_like.comm.channels import Version, Weights
from ding_like.comm.learner_group import use_loopback
from ding_like.comm.tensors import load_into, state_of
from ding_like.comm.weight_updater import Push

TRAINERS = ("torchrl", "ours")
NUM_WORKERS = 2
_PUSHES = 3
_TIMEOUT_S = 30.0


class TensorDictSends(DistributedWeightUpdater):
    """Our updater, which sends as TorchRL's does: by `TensorDict.send` to each rank."""

    def __init__(self, store: dist.Store, module: nn.Module) -> None:
        self._tensordict = TensorDict.from_module(module).data.clone()
        super().__init__(store, module, NUM_WORKERS, True, timeout_s=_TIMEOUT_S)

    def _send_weights(self, rank: int, push: Push) -> None:
        tensordict = self._tensordict.clone()
        load_into(tensordict, push.weights.state)
        tensordict.send(rank)


class TensorDictReceives(WeightUpdateWorker):
    """Our worker, which receives what TorchRL's updater sends, by `TensorDict.recv`."""

    def __init__(self, store: dist.Store, rank: int, module: nn.Module) -> None:
        super().__init__(store, rank, module, timeout_s=_TIMEOUT_S)
        self._tensordict = TensorDict.from_module(module).data.clone()
        self._number = 0

    def _receive(self, push_id: str) -> Weights:
        self._tensordict.recv(0)
        self._number += 1
        return Weights("policy", Version(0, self._number), state_of(self._tensordict))


def _join(port: int, rank: int) -> dist.Store:
    use_loopback()
    warnings.filterwarnings("ignore")
    timeout = timedelta(seconds=_TIMEOUT_S)
    where = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=1 + NUM_WORKERS, timeout=timeout)
    return dist.distributed_c10d._get_default_store()


def _numbers(module: nn.Module) -> float:
    return sum(float(each.sum()) for each in module.state_dict().values())


def _our_worker(port: int, rank: int, told: Any) -> None:
    """Be a worker of ours."""
    store, module = _join(port, rank), make_module()
    worker = TensorDictReceives(store, rank, module)
    for _ in range(_PUSHES):
        worker.step(timeout_s=_TIMEOUT_S)
        told.send(_numbers(module))
    worker.close()
    dist.destroy_process_group()


def _their_worker(port: int, rank: int, told: Any) -> None:
    """Be a worker as TorchRL's words ask for."""
    store, module = _join(port, rank), make_module()
    received = TensorDict.from_module(module).data.clone()
    for _ in range(_PUSHES):
        if store.get(f"NODE_{rank}_in") != b"update_weights":
            raise RuntimeError("another word than update_weights")
        store.delete_key(f"NODE_{rank}_in")
        received.recv(0)
        received.to_module(module, inplace=True)
        store.set(f"NODE_{rank}_out", b"updated")
        told.send(_numbers(module))
    dist.destroy_process_group()


def _push_theirs(store: dist.Store, module: nn.Module) -> Any:
    return TorchRLUpdater(
        store=store, policy_weights=TensorDict.from_module(module).data, num_workers=NUM_WORKERS, sync=True
    )


def _push_ours(store: dist.Store, module: nn.Module) -> Any:
    return TensorDictSends(store, module)


def cross(trainer: str) -> list[dict[str, Any]]:
    """Push some versions; return for each what the trainer has and what each worker has after it, as sums."""
    context = multiprocessing.get_context("spawn")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pipes = [context.Pipe(duplex=False) for _ in range(NUM_WORKERS)]
    target = _our_worker if trainer == "torchrl" else _their_worker
    workers = [
        context.Process(target=target, args=(port, rank, pipes[rank - 1][1]), daemon=True)
        for rank in range(1, NUM_WORKERS + 1)
    ]
    for worker in workers:
        worker.start()
    found = []
    try:
        store, module = _join(port, 0), make_module()
        updater = (_push_theirs if trainer == "torchrl" else _push_ours)(store, module)
        for number in range(_PUSHES):
            for each in module.state_dict().values():
                each.add_(torch.rand_like(each))
            updater.push_weights()
            sums = [end.recv() for end, _ in pipes if end.poll(_TIMEOUT_S)]
            found.append({"push": number + 1, "trainer": _numbers(module), "workers": sums})
        dist.destroy_process_group()
        for worker in workers:
            worker.join(_TIMEOUT_S)
    finally:
        for worker in workers:
            if worker.is_alive():
                worker.kill()
                worker.join()
    return found


def is_right(found: Sequence[dict[str, Any]]) -> bool:
    """Tell whether all workers had the trainer's weights after each push."""
    return len(found) == _PUSHES and all(each["workers"] == [each["trainer"]] * NUM_WORKERS for each in found)
