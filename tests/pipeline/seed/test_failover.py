"""Clients of inference servers get their answers while the proxy or a server is killed and started again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest

from ding_like.comm.zmq.inference import InferenceClient
from ding_like.comm.zmq.inference_messages import Reply, Version
from ding_like.comm.zmq.proxy import BEAT_S
from ding_like.comm.zmq.request_socket import RequestSocket
from ding_like.comm.zmq.sockets import EndpointFolder, Poller
from ding_like.pipeline.seed.proxy_process import InferenceProxy
from tests.support import wait_until

TIMEOUT_S = 0.3  # after which a client asks again
SOON_S = 60.0


@pytest.fixture
def proxy() -> Iterator[InferenceProxy]:
    with EndpointFolder() as folder, InferenceProxy(folder.endpoint("clients"), folder.endpoint("servers")) as proxy:
        proxy.start()
        yield proxy


class DoublingServer:
    """Answer each request with twice its observation, in a thread, until `end`; `is_rude` ends without a word."""

    def __init__(self, endpoint: str, name: str) -> None:
        self._endpoint, self._name = endpoint, name
        self._stop, self._is_rude = threading.Event(), False
        self.num_answered = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        socket = RequestSocket(self._endpoint, name=self._name)
        poller = Poller(socket.socket)
        try:
            socket.hello()
            while not self._stop.is_set():
                poller.wait(BEAT_S / 5)
                socket.beat()
                for request in socket.receive():
                    output = 2 * np.asarray(request.obs)
                    socket.answer(request, Reply(output, {}, Version(0, 0)))
                    self.num_answered += 1
            if not self._is_rude:
                socket.bye()
        finally:
            socket.close()

    def end(self, *, is_rude: bool = False) -> None:
        self._is_rude = is_rude
        self._stop.set()
        self._thread.join(SOON_S)
        assert not self._thread.is_alive()


class AskingThread:
    """Ask until `end`, checking each answer."""

    def __init__(self, endpoint: str, number: int) -> None:
        self._endpoint, self._number = endpoint, number
        self._stop = threading.Event()
        self._answered = threading.Condition()
        self.num_answers = 0
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        client = InferenceClient(
            self._endpoint, name=f"actor{self._number}", run_id=1, request_timeout_s=TIMEOUT_S, patience_s=SOON_S
        )
        try:
            while not self._stop.is_set():
                obs = np.full((2, 3), self._number + self.num_answers, np.float32)
                reply = client.infer(obs, {}, lanes=np.arange(2), is_first=np.zeros(2, bool))
                np.testing.assert_array_equal(reply.output, 2 * obs)
                with self._answered:
                    self.num_answers += 1
                    self._answered.notify_all()
        except BaseException as error:
            self._failure = error
        finally:
            client.close()

    def await_answers(self, number: int) -> None:
        """Wait until so many more answers have come than now."""
        with self._answered:
            least = self.num_answers + number
            assert self._answered.wait_for(lambda: self.num_answers >= least, SOON_S), self._failure

    def end(self) -> None:
        self._stop.set()
        self._thread.join(SOON_S)
        if self._failure is not None:
            raise self._failure


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def asking(proxy: InferenceProxy, ends: ExitStack, number: int) -> list[AskingThread]:
    threads = [AskingThread(proxy.client_endpoint, each) for each in range(number)]
    for each in threads:
        ends.callback(each.end)
    return threads


def serving(proxy: InferenceProxy, ends: ExitStack, number: int) -> list[DoublingServer]:
    """Return servers; a test may put others into the list. Called before `asking`, they end after the clients."""
    servers = [DoublingServer(proxy.server_endpoint, f"server{each}.1") for each in range(number)]
    ends.callback(lambda: [server.end() for server in servers])
    return servers


def test_every_client_goes_on_after_the_proxy_was_killed(proxy: InferenceProxy, ends: ExitStack) -> None:
    serving(proxy, ends, 2)
    clients = asking(proxy, ends, 4)
    for client in clients:
        client.await_answers(5)

    proxy.kill()
    proxy.start()
    for client in clients:
        client.await_answers(5)

    counts = proxy.counts()
    assert counts is not None and counts.clients == 4 and counts.servers == 2


def test_every_client_goes_on_while_servers_are_killed_in_turn(proxy: InferenceProxy, ends: ExitStack) -> None:
    servers = serving(proxy, ends, 2)
    clients = asking(proxy, ends, 4)
    for run_id in range(2, 5):
        for client in clients:
            client.await_answers(5)
        place = run_id % 2
        servers[place].end(is_rude=True)
        for client in clients:
            client.await_answers(5)
        servers[place] = DoublingServer(proxy.server_endpoint, f"server{place}.{run_id}")

    wait_until(lambda: all(server.num_answered for server in servers), "the share of the one that came back")
