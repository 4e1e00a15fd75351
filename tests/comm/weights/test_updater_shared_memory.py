"""An updater's numbers go through shared memory, which all readers see; its words through the store."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import torch

from ding_like.comm import DistributedWeightUpdater, WeightUpdateWorker
from ding_like.comm.channels import Weights
from ding_like.comm.weights.shared_memory import SharedMemoryPublisher, SharedMemoryReader


def state(value: float) -> dict[str, torch.Tensor]:
    return {"w": torch.full((1000,), value)}


def test_the_numbers_of_an_updater_go_through_shared_memory() -> None:
    name, store, got = f"updater-{os.getpid()}", dict[str, bytes](), dict[int, torch.Tensor]()
    with ExitStack() as stack, ThreadPoolExecutor(2) as threads:
        publisher = SharedMemoryPublisher(name)
        stack.callback(publisher.close)
        updater = DistributedWeightUpdater(store, state(0.0), 2, True, transport=publisher, timeout_s=20.0)
        workers = []
        for rank in (1, 2):
            reader = SharedMemoryReader(name, reader=str(rank))
            stack.callback(reader.close)
            take = partial(take_into, got, rank)
            workers.append(WeightUpdateWorker(store, rank, on_weights=take, reader=reader, timeout_s=20.0))

        for value in (1.0, 2.0):
            steps = [threads.submit(worker.step, timeout_s=20.0) for worker in workers]
            updater.push_weights(state(value))
            assert [step.result(20.0) for step in steps] == ["update_weights"] * 2
            assert all(got[rank].eq(value).all() for rank in (1, 2))

        step = threads.submit(workers[0].step, timeout_s=20.0)
        updater.push_weights(state(3.0), worker_ids=1)
        assert step.result(20.0) == "update_weights"
    assert got[1].eq(3.0).all() and got[2].eq(2.0).all(), "rank 2 was not meant"
    assert updater.version == 3


def take_into(got: dict[int, torch.Tensor], rank: int, weights: Weights) -> None:
    got[rank] = weights.state["w"].clone()
