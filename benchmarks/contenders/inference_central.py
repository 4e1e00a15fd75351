"""What `inference_ours` starts for central inference: a proxy and a server in processes of their own, and weights."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial

from benchmarks.contenders.inference_actors import Reach, Sizes, make_factories
from ding_like.comm.channels import Version, Weights
from ding_like.comm.tensors import flatten_state
from ding_like.comm.zmq.inference import InferenceClient, InferenceProxy
from ding_like.comm.zmq.rows import RowServer
from ding_like.comm.zmq.sockets import EndpointFolder
from ding_like.comm.zmq.weights import Broadcaster
from ding_like.pipeline.seed.servers import InferenceServer, ServerSettings
from ding_like.policy import Policy
from ding_like.policy.forward import RemoteForward, check_acts_remotely

_NAME = "server1"
_START_S = 120.0


class Central:
    """Address of the server, and what it has computed, which it reports once a second."""

    def __init__(self, reach: Reach, rows: RowServer, pids: dict[str, int]) -> None:
        self.reach = reach
        self.pids = pids  # of the processes, by what they are
        self._rows = rows

    def sizes(self) -> Sizes:
        """Return the newest counts."""
        told = self._rows.sources()[_NAME].stats
        return Sizes(int(told.get("observations", 0)), int(told.get("batches", 0)))

    def mean_batch(self, *, since: Sizes) -> float:
        """Return the mean number of observations in a batch since then; NaN without a report."""
        now = self.sizes()
        batches = now.batches - since.batches
        return (now.observations - since.observations) / batches if batches else float("nan")


@contextmanager
def central(network: str, *, lanes: int, batchsize: int, delay_s: float, device: str) -> Iterator[Central]:
    """Yield a proxy and a server while they run."""
    factories = make_factories(network, lanes=lanes)
    policy = factories.actor("cpu")
    with ExitStack() as stack:
        folder = stack.enter_context(EndpointFolder())
        clients, servers = folder.endpoint("clients"), folder.endpoint("servers")
        broadcaster = stack.enter_context(closing(Broadcaster(endpoint=folder.endpoint("weights"))))
        broadcaster.start()
        state = flatten_state(policy.collect_mode.state_dict())
        broadcaster.publish(Weights("policy", Version(0, 0), state))
        welcome = {"clients": clients, "servers": servers, "weights": broadcaster.endpoint}
        rows = stack.enter_context(closing(RowServer(folder.endpoint("data"), welcome=welcome)))
        rows.start()
        proxy = stack.enter_context(InferenceProxy(clients, servers))  # a thread of this process
        proxy.start()
        settings = ServerSettings(
            factories, rows.endpoint, name=_NAME, batchsize=batchsize, delay_s=delay_s, device=device
        )
        server = stack.enter_context(_started_server(settings))
        yield Central(partial(reach_server, clients), rows, {"proxy": os.getpid(), "server": _pid(server)})


@contextmanager
def _started_server(settings: ServerSettings) -> Iterator[InferenceServer]:
    server = InferenceServer(settings)
    server.start()
    try:
        server.wait_ready(timeout_s=_START_S)
        yield server
    finally:
        server.end(timeout_s=_START_S)


def _pid(process: InferenceServer) -> int:
    pid = process.pid
    assert pid is not None, "it was started"
    return pid


@contextmanager
def reach_server(clients: str, policy: Policy, index: int) -> Iterator[None]:
    """Have an actor's policy ask the server, through a client of its own."""
    with closing(InferenceClient(clients, name=f"actor{index + 1}", run_id=1)) as client:
        actor = check_acts_remotely(policy)
        actor.forward = RemoteForward(client, actor.forward.initial_state)
        yield
