"""A driver's ends, a proxy and inference servers in threads of this process: what tests of central inference share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from ding_like.comm.channels import Version, Weights
from ding_like.comm.tensors import flatten_state
from ding_like.comm.workers.processes import ChildThread
from ding_like.comm.zmq.inference import InferenceClient, InferenceProxy
from ding_like.comm.zmq.rows import RowServer
from ding_like.comm.zmq.sockets import EndpointFolder
from ding_like.comm.zmq.weights import Broadcaster
from ding_like.pipeline.seed.servers import InferenceServer, ServerSettings
from ding_like.policy import Policy
from ding_like.policy.forward import ActorPart
from tests.support import wait_until

FIRST = Version(0, 1)


class Factories:
    """Stand-in for SchemeFactories, which makes a policy that acts."""

    def __init__(self, make: Callable[[], Policy]) -> None:
        self._make = make

    def actor(self, device: str) -> Policy:
        return self._make()


class Rig:
    """Start and end what stands between actors and a learner."""

    def __init__(self, opened: ExitStack, make: Callable[[], Policy]) -> None:
        self._opened = opened
        self._factories: Any = Factories(make)
        folder = opened.enter_context(EndpointFolder())
        self.weights = Broadcaster(endpoint=folder.endpoint("weights"))
        opened.callback(self.weights.close)
        self.weights.start()
        proxy = opened.enter_context(InferenceProxy(folder.endpoint("clients"), folder.endpoint("servers")))
        proxy.start()
        self.clients_at = proxy.client_endpoint
        ends = {"servers": proxy.server_endpoint, "weights": self.weights.endpoint}
        self.rows = RowServer(folder.endpoint("data"), welcome=ends)
        opened.callback(self.rows.close)
        self.rows.start()
        self.errors: list[Any] = []

    def publish(self, policy: Policy, version: Version = FIRST) -> None:
        state = flatten_state(policy.collect_mode.state_dict())
        self.weights.publish(Weights("policy", version, state))

    def settings(self, **settings: Any) -> ServerSettings:
        return ServerSettings(self._factories, self.rows.endpoint, **settings)

    def serve(self, **settings: Any) -> Callable[[], None]:
        """Start a server in a thread, wait until it answers, and return what ends it."""
        server = ChildThread(InferenceServer(self.settings(**settings)))
        server.start()

        def end() -> None:
            if server.exitcode is None:
                server.terminate()
                server.join(60)
                server.take_messages()
                self.errors += [server.error()] if server.exitcode else []
                server.release()

        self._opened.callback(end)
        wait_until(lambda: any(each["kind"] in ("ready", "failed") for each in server.take_messages()))
        return end

    def start_process(self, name: str, **settings: Any) -> InferenceServer:
        """Start a server in a process of its own, and wait until it answers."""
        server = InferenceServer(self.settings(name=name, **settings))
        self._opened.callback(lambda: server.end(timeout_s=60))
        server.start()
        server.wait_ready(timeout_s=60)
        return server

    def client(self, name: str = "actor1", run_id: int = 1, **settings: Any) -> InferenceClient:
        settings = {"patience_s": 60.0, **settings}
        client = InferenceClient(self.clients_at, name=name, run_id=run_id, **settings)
        self._opened.callback(client.close)
        return client


def remote(policy: Policy, client: Any) -> Any:
    """Return the actor of a policy whose network is elsewhere."""
    return ActorPart.of(policy).connect(client).actor


@contextmanager
def rig(make: Callable[[], Policy]) -> Iterator[Rig]:
    with ExitStack() as opened:
        made = Rig(opened, make)
        yield made
    assert not made.errors, made.errors


def lanes(number: int) -> np.ndarray:
    return np.arange(number, dtype=np.int64)
