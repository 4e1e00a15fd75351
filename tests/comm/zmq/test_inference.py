"""The client of inference servers: ids, deadlines, requests that are sent again, answers that come twice."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from ding_like.comm.channels import Version
from ding_like.comm.keys import SeedKeys, load_seed_keys, make_seed_keys
from ding_like.comm.zmq import inference
from ding_like.comm.zmq.inference import InferenceClient, InferenceProxy, Reply, Request
from ding_like.comm.zmq.sockets import EndpointFolder, Poller, Socket, open_socket
from ding_like.errors import CommError
from tests.support import wait_until

OBS = np.arange(6, dtype=np.float32).reshape(2, 3)
OUTPUT = np.float32([[1, 2], [3, 4]])
STATE = {"h": np.float32([[5], [6]])}
SEVENTH = Version(1, 7)


class Servers:
    """Stand-in for the proxy and all servers: a router that the test plays."""

    def __init__(self, opened: ExitStack) -> None:
        self._opened = opened
        self._threads = opened.enter_context(ThreadPoolExecutor())
        folder = opened.enter_context(EndpointFolder())
        self.socket: Socket = opened.enter_context(open_socket("router", bind=folder.endpoint("clients")))
        self._poller = Poller(self.socket)
        self.addresses: list[bytes] = []

    def client(self, **settings: float) -> InferenceClient:
        client = InferenceClient(
            self.socket.endpoint, name="actor1", run_id=3, **{"request_timeout_s": 0.2, "patience_s": 60.0, **settings}
        )
        self._opened.callback(client.close)
        return client

    def asking(self, client: InferenceClient, state: dict | None = None) -> Future[Reply]:
        """Ask in another thread, as an actor does."""
        return self._threads.submit(client.evaluate_model, OBS, {"noise": OBS}, state=state or {})

    def request(self, timeout_s: float = 60.0) -> Request:
        assert self._poller.wait(timeout_s), "no request came"
        address, *frames = self.socket.receive() or []
        self.addresses.append(bytes(address))
        return inference.decode_request(frames)

    def send(self, frames: list) -> None:
        assert self.socket.send([self.addresses[-1], *frames])

    def reply(self, number: int, *, version: Version = SEVENTH, **parts) -> None:
        self.send(inference.encode_answer(number, Reply(parts.get("output", OUTPUT), parts.get("state", {}), version)))


@pytest.fixture
def servers(stack: ExitStack) -> Servers:
    return Servers(stack)


def test_a_request_carries_what_a_server_needs_and_the_reply_has_the_state_after_the_step(servers):
    client = servers.client()
    client.least = Version(2, 30)

    answer = servers.asking(client, STATE)
    request = servers.request()
    servers.reply(request.id, state={"h": OUTPUT[:, :1]})

    assert (request.client, request.run_id, request.least) == ("actor1", 3, (2, 30))
    assert servers.addresses == [b"actor1.3"] and answer.result(60).version == Version(1, 7)
    for found, sent in (
        (request.obs, OBS),
        (request.inputs["columns/noise"], OBS),
        (request.inputs["state/h"], STATE["h"]),
        (answer.result(60).state["h"], OUTPUT[:, :1]),
    ):
        np.testing.assert_array_equal(found, sent)


def test_a_request_without_an_answer_is_sent_again_with_its_id(servers):
    client = servers.client()

    answer = servers.asking(client, STATE)
    first, second = servers.request(), servers.request()
    servers.reply(second.id)
    answer.result(60)

    assert first.id == second.id and client.num_resent == 1
    np.testing.assert_array_equal(second.inputs["state/h"], STATE["h"])


def test_answers_to_other_requests_and_garbage_are_dropped(servers):
    client = servers.client()

    answer = servers.asking(client)
    request = servers.request()
    servers.reply(request.id + 5, output=-OUTPUT)
    servers.send([b"garbage"])
    servers.send([b'{"kind":"reply","id":1,"version":[1,1],"arrays":[["output","float32",[9]]]}', b"1234"])
    servers.reply(request.id)

    np.testing.assert_array_equal(answer.result(60).output, OUTPUT)
    assert client.num_dropped == 3


def test_the_oldest_version_and_latencies_are_kept_until_they_are_asked_for(servers):
    client = servers.client()
    assert client.take_version() is None

    for version in (Version(1, 9), Version(1, 4), Version(2, 0)):
        answer = servers.asking(client)
        servers.reply(servers.request().id, version=version)
        answer.result(60)

    found = client.take_latency()
    assert found.count == 3 and 0 < found.p50_ms <= found.p99_ms < 5_000
    assert client.take_latency().plain() == {"count": 0, "p50_ms": None, "p99_ms": None}
    assert client.take_version() == Version(1, 4)
    assert client.take_version() is None


def test_patience_ends_with_an_error_that_says_what_to_look_for(servers):
    client = servers.client(request_timeout_s=0.05, patience_s=0.3)

    with pytest.raises(CommError, match=r"no inference server answered actor1 within 0\.3 s"):
        client.evaluate_model(OBS)


def test_what_cannot_be_answered_now_is_asked_again_and_a_wrong_or_final_answer_is_an_error(servers):
    client = servers.client(request_timeout_s=0.1)
    answer = servers.asking(client)
    servers.send(inference.encode_answer(servers.request().id, inference.Refusal("too new", is_final=False)))
    servers.reply(servers.request().id)
    np.testing.assert_array_equal(answer.result(60).output, OUTPUT)

    answer = servers.asking(servers.client())
    servers.send(inference.encode_answer(servers.request().id, inference.Refusal("of another shape", is_final=True)))
    with pytest.raises(CommError, match="refused: of another shape"):
        answer.result(60)

    answer = servers.asking(servers.client())
    servers.reply(servers.request().id, output=OUTPUT[:1])
    with pytest.raises(CommError, match="answered 1 lanes in place of 2"):
        answer.result(60)


def test_stop_ends_a_request_that_waits(servers):
    client = servers.client(request_timeout_s=30.0, patience_s=60.0)
    answer = servers.asking(client)
    servers.request()

    client.stop()

    with pytest.raises(CommError, match="was stopped"):
        answer.result(60)
    with pytest.raises(CommError, match="was stopped"):
        client.evaluate_model(OBS)


SOON_S = 30.0


@pytest.fixture
def proxy() -> Iterator[InferenceProxy]:
    with InferenceProxy() as proxy:
        proxy.start()
        yield proxy


def client(proxy: InferenceProxy, stack: ExitStack, number: int = 1, keys: SeedKeys | None = None) -> Socket:
    made = open_socket("dealer", connect=proxy.client_endpoint, identity=f"actor{number}.1", keys=keys)
    return stack.enter_context(made)


def server(proxy: InferenceProxy, stack: ExitStack, keys: SeedKeys | None = None) -> Socket:
    return stack.enter_context(open_socket("dealer", connect=proxy.server_endpoint, keys=keys))


def receive(socket: Socket, timeout_s: float = SOON_S) -> list[bytes] | None:
    Poller(socket).wait(timeout_s)
    frames = socket.receive()
    return None if frames is None else [bytes(frame) for frame in frames]


def test_the_ports_are_those_of_both_ends(proxy: InferenceProxy) -> None:
    with InferenceProxy() as other:
        ports = other.start()

        assert other.client_endpoint == f"tcp://127.0.0.1:{ports.router_port}"
        assert other.server_endpoint == f"tcp://127.0.0.1:{ports.dealer_port}"
        with pytest.raises(CommError, match="started once"):
            other.start()
    with InferenceProxy(proxy.client_endpoint) as second, pytest.raises(CommError, match="in use"):
        second.start()


def test_many_clients_are_served_by_all_servers_and_get_their_own_replies(
    proxy: InferenceProxy, stack: ExitStack
) -> None:
    clients, servers = [client(proxy, stack, n) for n in range(12)], [server(proxy, stack) for _ in range(3)]
    served: Counter[int] = Counter()
    for round_id in range(4):
        for number, each in enumerate(clients):
            each.send([b"request %d of %d" % (round_id, number), b"", bytes(1000)])
        left = len(clients)
        while left:
            for number, each in enumerate(servers):
                found = receive(each, 0.01)
                if found is not None:
                    each.send([found[0], b"reply to " + found[1], *found[2:]])
                    served[number] += 1
                    left -= 1
        for number, each in enumerate(clients):
            assert receive(each) == [b"reply to request %d of %d" % (round_id, number), b"", bytes(1000)]

    assert len(served) == 3 and served.total() == 48


def test_requests_wait_for_a_server_without_a_busy_thread(proxy: InferenceProxy, stack: ExitStack) -> None:
    for first in (True, False):  # before the first server, and after one that is gone
        asking = client(proxy, stack, 1 + first)
        if not first:
            gone = server(proxy, stack)
            asking.send([b"are you there"])
            assert receive(gone) is not None
            gone.close()
            wait_until(lambda: not proxy._has_servers.is_set())
        asking.send([b"request"])
        began_s = time.process_time()
        time.sleep(0.5)

        assert time.process_time() - began_s < 0.3
        answering = server(proxy, stack)
        found = receive(answering)
        while found is not None and found[1] != b"request":
            found = receive(answering)
        assert found is not None
        answering.send([found[0], b"reply"])
        assert receive(asking) == [b"reply"]
        answering.close()
        wait_until(lambda: not proxy._has_servers.is_set())


def test_a_reply_to_a_client_that_is_gone_is_dropped_and_one_that_connects_again_gets_its_own(
    proxy: InferenceProxy, stack: ExitStack
) -> None:
    answering = server(proxy, stack)
    for number, is_there in ((1, True), (1, True), (2, False), (3, True)):
        asking = client(proxy, stack, number)
        asking.send([b"request"])
        address = (receive(answering) or [])[0]
        assert address == b"actor%d.1" % number
        if not is_there:
            asking.close()
        answering.send([address, b"reply"])
        assert not is_there or receive(asking) == [b"reply"]
        asking.close()


def test_clients_without_a_key_reach_no_server(tmp_path: Path, stack: ExitStack) -> None:
    driver_file, worker_file = make_seed_keys(tmp_path / "keys.json", ["worker"])
    worker = load_seed_keys(worker_file)
    with InferenceProxy(keys=load_seed_keys(driver_file)) as proxy:
        proxy.start()
        answering, asking = server(proxy, stack, worker), client(proxy, stack, 1, worker)
        client(proxy, stack, 2).send([b"stranger"])
        asking.send([b"request"])

        assert receive(answering) == [b"actor1.1", b"request"]
        assert receive(answering, 0.2) is None


def test_stop_frees_the_ends_and_may_be_called_again() -> None:
    proxy = InferenceProxy()
    proxy.start()
    proxy.stop()
    proxy.stop()

    with InferenceProxy(proxy.client_endpoint, proxy.server_endpoint) as again:
        wait_until(lambda: _starts(again))


def _starts(proxy: InferenceProxy) -> bool:
    try:
        proxy.start()
    except CommError as error:
        assert "in use" in str(error)  # ZeroMQ frees an address in a thread of its own
        return False
    return True
