"""Make two ranks, each in a thread of this process, for the contract suite."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from ding_like.comm.weights.torch_dist import DistWeightPublisher, DistWeightReader
from tests.contracts.channel_cases import Transport, WeightEnds


def weights(stack: ExitStack, folder: Path) -> WeightEnds:
    store = folder / "store"
    with ThreadPoolExecutor(2) as threads:  # each rank waits for the other
        publisher = threads.submit(DistWeightPublisher, store, rank=0, world_size=2, timeout_s=20.0)
        reader = threads.submit(DistWeightReader, store, rank=1, world_size=2, timeout_s=20.0)
    stack.callback(reader.result().close)
    stack.callback(publisher.result().close)
    return WeightEnds(publisher.result(), reader.result())


TRANSPORT = Transport(weights)
