"""Between actors and servers messages are lost, doubled, late and sent to any server: actors act as if nothing was."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

from ding_like.comm.zmq.inference import InferenceClient, decode_request, encode_answer
from ding_like.comm.zmq.sockets import EndpointFolder, Poller, open_socket
from ding_like.pipeline.seed.servers import Network
from tests.contracts.policy_cases import ACTING, Case, make
from tests.pipeline.seed.inference_rig import remote
from tests.pipeline.seed.test_remote_actors import assert_equal
from tests.pipeline.seed.test_servers import local_steps, steps

STEPS = 25


class LossyProxy:
    """Pass requests to a server drawn at random, and replies back; drop, double and hold back some of both."""

    def __init__(self, clients: str, servers: str, names: list[bytes], *, seed: int) -> None:
        self._front, self._back = open_socket("router", bind=clients), open_socket("router", bind=servers)
        self._names = names
        self._rng = np.random.default_rng(seed)
        self._held: list = []
        self.num_faults = 0

    def serve(self, stop: threading.Event) -> None:
        poller = Poller(self._front, self._back)
        while not stop.is_set():
            poller.wait(0.02)
            while (frames := self._front.receive()) is not None:
                # The server's name, and then the client's, as it came.
                self._pass(self._back, lambda frames=frames: [self._rng.choice(self._names), *frames])
            while (frames := self._back.receive()) is not None:
                self._pass(self._front, lambda frames=frames: frames[1:])

    def _pass(self, socket, frames_for) -> None:
        what = self._rng.random()
        self.num_faults += what < 0.4
        if what < 0.15:
            return
        if what < 0.25:
            self._held.append((socket, frames_for()))
            return
        for _ in range(2 if what < 0.4 else 1):
            socket.send(frames_for())
        while self._held:  # late, behind a newer one
            late, frames = self._held.pop()
            late.send(frames)

    def close(self) -> None:
        self._front.close()
        self._back.close()


def serve(role: Network, endpoint: str, name: str, stop: threading.Event) -> None:
    """Answer each request as an inference server does."""
    with open_socket("dealer", connect=endpoint, identity=name) as socket:
        poller = Poller(socket)
        while not stop.is_set():
            poller.wait(0.02)
            while (frames := socket.receive()) is not None:
                request = decode_request(frames[1:])
                (answer,) = role.answer([request])
                socket.send([frames[0], *encode_answer(request.id, answer)])


@contextmanager
def lossy(case: Case, *, num_servers: int, seed: int) -> Iterator[tuple[LossyProxy, InferenceClient]]:
    names, stop = [f"server{number}.1" for number in range(num_servers)], threading.Event()
    with ExitStack() as opened:
        folder = opened.enter_context(EndpointFolder())
        ends = folder.endpoint("clients"), folder.endpoint("servers")
        proxy = LossyProxy(*ends, [name.encode() for name in names], seed=seed)
        opened.callback(proxy.close)
        threads = [threading.Thread(target=proxy.serve, args=(stop,))]
        # With the weights of the local actor; made here, as all of them seed the process's generator.
        roles = [Network(make(case, seed=1)) for _ in names]
        threads += [
            threading.Thread(target=serve, args=(role, ends[1], name, stop))
            for role, name in zip(roles, names, strict=True)
        ]
        for thread in threads:
            thread.start()
            opened.callback(thread.join, 60)
        opened.callback(stop.set)
        client = InferenceClient(ends[0], name="actor1", run_id=1, request_timeout_s=0.04, patience_s=60.0)
        opened.callback(client.close)
        yield proxy, client


@pytest.mark.parametrize(("name", "num_servers"), [("r2d2", 2), ("rainbow", 1)])
def test_nothing_is_lost_doubled_or_moved_twice(name, num_servers):
    case, policy = ACTING[name], make(ACTING[name], seed=2)

    with lossy(case, num_servers=num_servers, seed=num_servers) as (proxy, client):
        acted = steps(remote(policy, client), 0, STEPS)

    assert_equal(acted, local_steps(case, STEPS))
    assert proxy.num_faults > 5 and client.num_resent > 3
