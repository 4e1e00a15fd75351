"""Make a publisher and a reader of shared memory for the contract suite: in one process, and in two."""

from __future__ import annotations

import itertools
import os
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from ding_like.comm.channels import Version, Weights
from ding_like.comm.weights.encode import WireDtype
from ding_like.comm.weights.shared_memory import SharedMemoryPublisher, SharedMemoryReader
from tests.contracts.channel_cases import Transport, WeightEnds
from tests.fresh_process import start_fresh

_numbers = itertools.count()


class FarReader:
    """Have a reader in another process, and ask it."""

    def __init__(self, stack: ExitStack, name: str) -> None:
        self._child = start_fresh(stack, _serve, name)
        assert self._child.hear() == "ready"

    def newest(self, policy_id: str, *, newer_than: Version | None = None, timeout_s: float = 0.0) -> Weights | None:
        self._child.pipe.send((policy_id, newer_than, timeout_s))
        found = self._child.hear()
        return found and found._replace(state={key: torch.as_tensor(each) for key, each in found.state.items()})


def _serve(pipe: Connection, name: str) -> None:
    reader = SharedMemoryReader(name, reader="collector")
    pipe.send("ready")
    try:
        while True:
            policy_id, newer_than, timeout_s = pipe.recv()
            found = reader.newest(policy_id, newer_than=newer_than, timeout_s=timeout_s)
            # As arrays: torch would send its tensors through shared memory of its own.
            pipe.send(found and found._replace(state={key: each.numpy() for key, each in found.state.items()}))
    except EOFError:
        reader.close()


def weights(stack: ExitStack, folder: Path, *, dtype: WireDtype = "exact", checksum: bool | None = None) -> WeightEnds:
    name = f"contract-{os.getpid()}-{next(_numbers)}"  # in the temporary folder: a test's own has too long a path
    reader = SharedMemoryReader(name, reader="collector")
    stack.callback(reader.close)
    publisher = SharedMemoryPublisher(name, dtype=dtype, checksum=checksum)
    stack.callback(publisher.close)
    return WeightEnds(publisher, reader, dtype)


def weights_of_two_processes(stack: ExitStack, folder: Path) -> WeightEnds:
    name = f"contract-{os.getpid()}-{next(_numbers)}"
    reader = FarReader(stack, name)
    publisher = SharedMemoryPublisher(name)
    stack.callback(publisher.close)
    return WeightEnds(publisher, reader)


def weights_only(*, dtype: WireDtype = "exact", checksum: bool | None = None) -> Transport:
    """Return the transport of weights that are encoded in some way."""
    return Transport(partial(weights, dtype=dtype, checksum=checksum))


TRANSPORT = Transport(weights)
OF_TWO_PROCESSES = Transport(weights_of_two_processes, is_slow=True)
