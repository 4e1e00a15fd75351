"""Send weights to a worker of a host for the contract suite: a thread of this process, or an actor of Ray."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from ding_like.comm.channels import Version, Weights
from ding_like.comm.ray.host import RayHost
from ding_like.comm.weights.encode import WireDtype
from ding_like.comm.workers.host import Host, Resources, WorkerHandle
from ding_like.comm.workers.threads import ThreadHost
from ding_like.comm.workers.weights import HostWeightPublisher, HostWeightReader
from tests.contracts.channel_cases import Transport, WeightEnds

_STARTED_S = 60.0
_MORE_S = 30.0


class Collector(HostWeightReader):
    """Be the worker: its calls ask for weights, which control calls bring meanwhile."""

    def arrays(self, policy_id: str, newer_than: Version | None, timeout_s: float) -> Any:
        """Return the newest weights as arrays, as Ray would send tensors by copying them twice."""
        found = self.newest(policy_id, newer_than=newer_than, timeout_s=timeout_s)
        return found and found._replace(state={name: each.numpy() for name, each in found.state.items()})  # type: ignore[misc]


class FarReader:
    """Have the reader in a worker, and ask it."""

    def __init__(self, host: Host, worker: WorkerHandle) -> None:
        self._host = host
        self._worker = worker

    def newest(self, policy_id: str, *, newer_than: Version | None = None, timeout_s: float = 0.0) -> Weights | None:
        call = self._worker.call("arrays", policy_id, newer_than, timeout_s)
        assert self._host.wait([call], timeout_s=timeout_s + _MORE_S) == [call]
        found = call.result()
        return found and found._replace(state={name: torch.tensor(each) for name, each in found.state.items()})


def weights(stack: ExitStack, folder: Path, *, dtype: WireDtype = "exact") -> WeightEnds:
    return _weights(stack, ThreadHost(), dtype=dtype)


def weights_over_ray(stack: ExitStack, folder: Path) -> WeightEnds:
    return _weights(stack, RayHost())


def _weights(stack: ExitStack, host: Host, *, dtype: WireDtype = "exact") -> WeightEnds:
    stack.callback(host.close)
    worker = host.start(Collector, name="collector", resources=Resources(num_cpus=0.5))
    reader = FarReader(host, worker)
    assert reader.newest("policy", timeout_s=0.0) is None
    publisher = HostWeightPublisher(host, lambda: [worker], dtype=dtype)
    stack.callback(publisher.close)
    return WeightEnds(publisher, reader, dtype)


TRANSPORT = Transport(weights)
OVER_RAY = Transport(weights_over_ray, needs_ray=True)
BFLOAT16 = Transport(lambda stack, folder: weights(stack, folder, dtype="bfloat16"))
