"""Make a broadcaster and a reader of it for the contract suite."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from ding_like.comm.weights.encode import WireDtype
from ding_like.comm.zmq.sockets import EndpointFolder
from ding_like.comm.zmq.weights import Broadcaster, ZmqWeightReader
from tests.contracts.channel_cases import Transport, WeightEnds

READY_S = 10.0


def weights(stack: ExitStack, folder: Path, *, dtype: WireDtype = "exact", is_ipc: bool = True) -> WeightEnds:
    endpoint = stack.enter_context(EndpointFolder()).endpoint("weights") if is_ipc else None
    publisher = stack.enter_context(Broadcaster(endpoint=endpoint, dtype=dtype))
    publisher.start()
    reader = stack.enter_context(ZmqWeightReader(publisher.endpoint, name="collector"))
    assert publisher.wait_for_readers(1, READY_S)
    return WeightEnds(publisher, reader, dtype)


def weights_only(*, dtype: WireDtype = "exact", is_ipc: bool = True) -> Transport:
    """Return the transport of weights that are encoded in some way, or go over tcp."""
    return Transport(partial(weights, dtype=dtype, is_ipc=is_ipc))
