"""The inference proxy passes messages between many clients and many servers, whichever of them come and go."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ding_like.comm.keys import SeedKeys, load_seed_keys, make_seed_keys
from ding_like.comm.zmq.inference import InferenceProxy
from ding_like.comm.zmq.sockets import Poller, Socket, open_socket
from ding_like.errors import CommError
from tests.support import wait_until

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


def test_an_end_that_is_taken_is_an_error(proxy: InferenceProxy) -> None:
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


def test_a_reply_to_a_client_that_is_gone_is_dropped(proxy: InferenceProxy, stack: ExitStack) -> None:
    answering, gone = server(proxy, stack), client(proxy, stack, 1)
    gone.send([b"request"])
    address = (receive(answering) or [])[0]
    gone.close()
    answering.send([address, b"reply"])

    other = client(proxy, stack, 2)
    other.send([b"request"])
    found = receive(answering)

    assert found is not None and found[0] == b"actor2.1"


def test_a_client_that_connects_again_under_its_identity_gets_its_replies(
    proxy: InferenceProxy, stack: ExitStack
) -> None:
    answering = server(proxy, stack)
    for _ in range(3):
        asking = client(proxy, stack, 1)
        asking.send([b"request"])
        answering.send([(receive(answering) or [])[0], b"reply"])
        assert receive(asking) == [b"reply"]
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
