"""Make two ranks, each in a thread of this process, for the contract suite."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from ding_like.comm.weights.encode import WireDtype
from ding_like.comm.weights.torch_dist import DistWeightPublisher, DistWeightReader
from tests.contracts.channel_cases import Transport, WeightEnds


def weights(stack: ExitStack, folder: Path, *, dtype: WireDtype = "exact", by_delta: bool = False) -> WeightEnds:
    store = folder / "store"
    publish = partial(DistWeightPublisher, dtype=dtype, sends_delta=by_delta)
    with ThreadPoolExecutor(2) as threads:  # each rank waits for the other
        publisher = threads.submit(publish, store, rank=0, world_size=2, timeout_s=20.0)
        reader = threads.submit(DistWeightReader, store, rank=1, world_size=2, timeout_s=20.0)
    stack.callback(reader.result().close)
    stack.callback(publisher.result().close)
    return WeightEnds(publisher.result(), reader.result(), dtype)


def weights_only(*, dtype: WireDtype = "exact", by_delta: bool = False) -> Transport:
    """Return the transport of weights that are encoded in some way."""
    return Transport(partial(weights, dtype=dtype, by_delta=by_delta))


TRANSPORT = Transport(weights)
