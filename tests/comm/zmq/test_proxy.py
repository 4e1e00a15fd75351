"""The inference proxy keeps each client with a server, and messages whole and in order, whoever comes and goes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ding_like.comm.zmq.keys import load_seed_keys, make_seed_keys
from ding_like.comm.zmq.proxy import BEAT, BYE, HELLO, MAX_FRAMES, Proxy
from ding_like.comm.zmq.sockets import EndpointFolder
from ding_like.errors import CommError
from tests.comm.zmq.proxy_ends import MOMENT_S, SOON_S, End, await_counts, serving


@pytest.fixture
def folder() -> Iterator[EndpointFolder]:
    with EndpointFolder() as folder:
        yield folder


def make(folder: EndpointFolder, **settings: float) -> Proxy:
    patient = {"silent_s": 1000.0, **settings}  # servers of tests do not beat
    return Proxy(clients=folder.endpoint("clients"), servers=folder.endpoint("servers"), **patient)  # type: ignore[arg-type]


@pytest.fixture
def proxy(folder: EndpointFolder, stack: ExitStack) -> Proxy:
    return stack.enter_context(serving(make(folder)))


def client_of(proxy: Proxy, stack: ExitStack, number: int = 1) -> End:
    return stack.enter_context(End(proxy.client_endpoint, b"actor%d.1" % number))


def server_of(proxy: Proxy, stack: ExitStack, number: int = 1) -> End:
    """Return a server that the proxy knows."""
    known = proxy.counts.servers
    server = stack.enter_context(End(proxy.server_endpoint, b"server%d.1" % number))
    server.hello()
    await_counts(proxy, lambda counts: counts.servers == known + 1)
    return server


def receive_all(servers: list[End], number: int) -> list[tuple[End, list[bytes]]]:
    """Return so many messages, each with the server that received it."""
    found: list[tuple[End, list[bytes]]] = []
    deadline_s = time.monotonic() + SOON_S
    while len(found) < number:
        assert time.monotonic() < deadline_s, f"{len(found)} of {number} messages came"
        for server in servers:
            message = server.receive(0.002)
            found += [] if message is None else [(server, message)]
    return found


def test_a_request_and_its_reply_arrive_frame_by_frame(proxy: Proxy, stack: ExitStack) -> None:
    client, server = client_of(proxy, stack), server_of(proxy, stack)
    client.send(b"head", b"", bytes(range(256)) * 1000)

    assert server.receive() == [b"actor1.1", b"head", b"", bytes(range(256)) * 1000]
    server.send(b"actor1.1", b"reply", b"\0" * 5)
    assert client.receive() == [b"reply", b"\0" * 5]


def test_a_client_stays_with_its_server(proxy: Proxy, stack: ExitStack) -> None:
    client = client_of(proxy, stack)
    servers = [server_of(proxy, stack, number) for number in range(3)]
    client.send(b"0")
    ((own, _),) = receive_all(servers, 1)

    for request in range(1, 50):
        own.send(b"actor1.1", b"reply")
        assert client.receive() is not None
        client.send(b"%d" % request)
        assert own.receive() == [b"actor1.1", b"%d" % request]


def test_many_clients_are_shared_out_and_get_their_own_replies(proxy: Proxy, stack: ExitStack) -> None:
    clients = [client_of(proxy, stack, number) for number in range(32)]
    servers = [server_of(proxy, stack, number) for number in range(3)]
    served: Counter[int] = Counter()
    for round_id in range(5):
        for number, client in enumerate(clients):
            client.send(b"request %d of %d" % (round_id, number))
        for server, (client_id, request) in receive_all(servers, len(clients)):
            served[servers.index(server)] += 1
            server.send(client_id, b"reply to " + request)
        for number, client in enumerate(clients):
            assert client.receive() == [b"reply to request %d of %d" % (round_id, number)]

    assert sorted(served.values()) == [50, 55, 55]


def test_messages_of_a_client_keep_their_order(proxy: Proxy, stack: ExitStack) -> None:
    client = client_of(proxy, stack)
    for number in range(300):  # while there is no server
        client.send(b"%d" % number)
    await_counts(proxy, lambda counts: counts.waiting == 300)
    server = server_of(proxy, stack)
    for number in range(300, 600):
        client.send(b"%d" % number)

    assert [server.receive() for _ in range(600)] == [[b"actor1.1", b"%d" % number] for number in range(600)]


def test_what_a_killed_server_has_not_answered_goes_to_another_at_once(proxy: Proxy, stack: ExitStack) -> None:
    first = server_of(proxy, stack, 1)
    clients = [client_of(proxy, stack, number) for number in range(3)]
    for number, client in enumerate(clients):
        client.send(b"request %d" % number)
    await_counts(proxy, lambda counts: counts.requests == 3)
    second = server_of(proxy, stack, 2)
    first.send(b"actor0.1", b"reply")
    assert clients[0].receive() == [b"reply"]
    first.close()

    moved = sorted(second.receive() or [] for _ in range(2))

    assert moved == [[b"actor1.1", b"request 1"], [b"actor2.1", b"request 2"]]
    assert second.receive(MOMENT_S) is None  # what was answered is not asked again
    assert proxy.counts.lost == 1 and proxy.counts.moved == 3


def test_without_another_server_what_was_not_answered_waits(proxy: Proxy, stack: ExitStack) -> None:
    first, client = server_of(proxy, stack, 1), client_of(proxy, stack)
    client.send(b"request")
    assert first.receive() is not None
    first.close()
    await_counts(proxy, lambda counts: counts.servers == 0 and counts.waiting == 1)

    second = server_of(proxy, stack, 2)

    assert second.receive() == [b"actor1.1", b"request"]
    assert proxy.counts.waiting == 0


def test_a_silent_server_loses_its_clients_and_gets_them_back_when_it_speaks(
    folder: EndpointFolder, stack: ExitStack
) -> None:
    proxy = stack.enter_context(serving(make(folder, silent_s=0.5)))
    silent, client = server_of(proxy, stack, 1), client_of(proxy, stack)
    client.send(b"request")
    assert silent.receive() == [b"actor1.1", b"request"]
    other = stack.enter_context(End(proxy.server_endpoint, b"server2.1"))
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(0.1):
            other.socket.send([b"", BEAT])

    beating = threading.Thread(target=beat)
    beating.start()
    try:
        await_counts(proxy, lambda counts: counts.lost >= 1 and counts.requests >= 2)
    finally:
        stop.set()
        beating.join()
    assert other.receive() == [b"actor1.1", b"request"]
    other.send(b"actor1.1", b"reply")
    assert client.receive() == [b"reply"]
    await_counts(proxy, lambda counts: counts.servers == 0)

    silent.send(b"", BEAT)
    await_counts(proxy, lambda counts: counts.servers == 1)
    client.send(b"another")
    assert silent.receive() == [b"actor1.1", b"another"]


def test_a_server_that_says_bye_gives_away_what_it_has_not_answered(proxy: Proxy, stack: ExitStack) -> None:
    leaving, client = server_of(proxy, stack, 1), client_of(proxy, stack)
    client.send(b"request")
    assert leaving.receive() is not None
    other = server_of(proxy, stack, 2)

    leaving.send(b"", BYE)

    assert other.receive() == [b"actor1.1", b"request"]
    assert proxy.counts.servers == 1 and proxy.counts.lost == 0


def test_a_server_that_joins_takes_over_clients_between_two_requests(proxy: Proxy, stack: ExitStack) -> None:
    first = server_of(proxy, stack, 1)
    clients = [client_of(proxy, stack, number) for number in range(4)]
    for client in clients:
        client.send(b"request")
        first.send((first.receive() or [b""])[0], b"reply")
        assert client.receive() == [b"reply"]
    second = server_of(proxy, stack, 2)

    for client in clients:
        client.send(b"request")

    assert Counter(server for server, _ in receive_all([first, second], 4)) == {first: 2, second: 2}


def test_messages_that_wait_are_bounded_in_bytes(folder: EndpointFolder, stack: ExitStack) -> None:
    proxy = stack.enter_context(serving(make(folder, max_waiting_nbytes=1_000_000)))
    client = client_of(proxy, stack)

    for number in range(50):
        client.send(b"%d" % number, b"x" * 50_000)

    await_counts(proxy, lambda counts: (counts.waiting, counts.expired) == (19, 31))


def test_messages_that_wait_are_bounded_in_time(folder: EndpointFolder, stack: ExitStack) -> None:
    proxy = stack.enter_context(serving(make(folder, wait_s=0.2)))
    client_of(proxy, stack).send(b"old")

    await_counts(proxy, lambda counts: counts.expired == 1 and counts.waiting == 0)


def test_a_request_that_is_sent_again_waits_once(proxy: Proxy, stack: ExitStack) -> None:
    client = client_of(proxy, stack)
    for request in (b"first", b"first", b"first", b"second"):
        client.send(request)
    await_counts(proxy, lambda counts: counts.waiting == 2)

    server = server_of(proxy, stack)

    assert [server.receive() for _ in range(2)] == [[b"actor1.1", b"first"], [b"actor1.1", b"second"]]


def test_messages_that_wait_are_bounded_in_number(folder: EndpointFolder, stack: ExitStack) -> None:
    proxy = stack.enter_context(serving(make(folder, max_waiting=3)))
    client = client_of(proxy, stack)
    for number in range(10):
        client.send(b"%d" % number)
    await_counts(proxy, lambda counts: counts.expired == 7)

    server = server_of(proxy, stack)

    assert [server.receive() for _ in range(3)] == [[b"actor1.1", b"%d" % number] for number in (7, 8, 9)]


def test_memory_stays_flat_for_a_server_that_reads_nothing(proxy: Proxy, stack: ExitStack) -> None:
    server_of(proxy, stack)
    client = client_of(proxy, stack)
    for number in range(4_000):
        client.send(b"%4096d" % number)  # 16 MB: more than the sockets' own buffers take

    await_counts(proxy, lambda counts: counts.dropped > 0 and counts.dropped + counts.requests == 4_000)


def test_malformed_messages_are_counted_and_change_nothing(proxy: Proxy, stack: ExitStack) -> None:
    server, client = server_of(proxy, stack), client_of(proxy, stack)
    client.send(*[b"x"] * (MAX_FRAMES + 1))
    client.send(*[b"x"] * 5_000)
    stranger = stack.enter_context(End(proxy.server_endpoint, b"stranger"))
    garbage = ([b""], [b"actor1.1"], [b"", b"what?"], [b"", b""], [b"", HELLO, b""], [b"x"] * (MAX_FRAMES + 2))
    for frames in garbage:
        stranger.send(*frames)
    stranger.send(b"nobody.1", b"a reply")
    await_counts(proxy, lambda counts: counts.malformed == 2 + len(garbage) and counts.dropped == 1)
    assert proxy.counts.servers == 1  # who says nothing that makes sense is no server

    client.send(*[b"x"] * MAX_FRAMES)

    assert server.receive() == [b"actor1.1", *[b"x"] * MAX_FRAMES]


def test_a_proxy_that_is_started_again_is_found_by_all(folder: EndpointFolder, stack: ExitStack) -> None:
    with ExitStack() as run:
        proxy = run.enter_context(serving(make(folder)))
        server, client = server_of(proxy, stack), client_of(proxy, stack)
        client.send(b"1")
        assert server.receive() == [b"actor1.1", b"1"]
    again = stack.enter_context(serving(make(folder)))

    # What is sent before the end of the first is noticed is lost with it: servers beat on, and clients ask again.
    deadline_s = time.monotonic() + SOON_S
    while (received := server.receive(0.1)) is None and time.monotonic() < deadline_s:
        server.send(b"", BEAT)
        client.send(b"1")

    assert received == [b"actor1.1", b"1"] and again.counts.servers == 1
    server.send(b"actor1.1", b"reply")
    assert client.receive() == [b"reply"]


def test_an_endpoint_that_is_taken_is_refused_and_nothing_stays_open(folder: EndpointFolder) -> None:
    with End("tcp://127.0.0.1:1", b"x"):
        first = Proxy(clients="tcp://127.0.0.1:0", servers="tcp://127.0.0.1:0")
        first.bind()
        second = Proxy(clients=folder.endpoint("clients"), servers=first.server_endpoint)

        with pytest.raises(CommError, match=first.server_endpoint):
            second.serve(threading.Event())
        first.close()


def test_a_stranger_without_a_key_reaches_neither_end(stack: ExitStack, tmp_path: Path) -> None:
    driver_file, worker_file = make_seed_keys(tmp_path / "keys.json", ["worker"])
    ends = dict(clients="tcp://127.0.0.1:0", servers="tcp://127.0.0.1:0")
    proxy = stack.enter_context(serving(Proxy(**ends, keys=load_seed_keys(driver_file), silent_s=1000.0)))
    stranger = client_of(proxy, stack, 66)
    false_server = stack.enter_context(End(proxy.server_endpoint, b"false.1"))
    stranger.send(b"request")
    false_server.hello()
    worker = load_seed_keys(worker_file)
    client = stack.enter_context(End(proxy.client_endpoint, b"actor1.1", keys=worker))
    server = stack.enter_context(End(proxy.server_endpoint, b"server1.1", keys=worker))
    client.send(b"request")
    server.hello()

    assert server.receive() == [b"actor1.1", b"request"]
    assert (proxy.counts.clients, proxy.counts.servers) == (1, 1)
