"""Routes of clients: each keeps its server while it waits, and always has a living one."""

from __future__ import annotations

import numpy as np
from ding_like.comm.zmq.proxy_routes import Client, Routes


def make(*, servers: int, clients: int, max_clients: int = 100) -> tuple[Routes, list[Client]]:
    routes = Routes(max_clients=max_clients)
    for number in range(servers):
        routes.join(b"server%d" % number)
    found = [routes.client(b"actor%d.1" % number) for number in range(clients)]
    assert all(each is not None for each in found)
    return routes, [each for each in found if each is not None]


def ask(routes: Routes, client: Client) -> bytes:
    """Return the name of the server that answers a client's request."""
    server = routes.server_of(client)
    assert server is not None
    return server.identity


def test_a_client_that_waits_for_a_reply_is_not_moved() -> None:
    routes, clients = make(servers=1, clients=4)
    for client in clients:
        ask(routes, client)
        client.unanswered = [b"request"]
    routes.join(b"second")

    assert {ask(routes, client) for client in clients} == {b"server0"}
    clients[2].unanswered = None
    assert ask(routes, clients[2]) == b"second"


def test_there_is_room_for_so_many_clients_and_no_more() -> None:
    routes, clients = make(servers=1, clients=3, max_clients=3)

    assert routes.client(b"stranger.1") is None
    assert routes.client(b"actor0.1") is clients[0]
    assert routes.client(b"actor0.2") is not None  # takes a place that it had
    routes.forget(clients[1])
    assert routes.client(b"stranger.1") is not None


def test_any_order_of_events_leaves_every_client_with_one_living_server() -> None:
    rng = np.random.default_rng(0)
    routes, clients = make(servers=1, clients=12)
    number = 1
    for _ in range(2_000):
        event = rng.integers(10)
        if event == 0 and len(routes.servers) < 4:
            routes.join(b"server%d" % (number := number + 1))
        elif event == 1 and len(routes.servers) > 1:
            routes.lose(routes.servers[sorted(routes.servers)[rng.integers(len(routes.servers))]])
        elif event == 2:
            place = int(rng.integers(12))
            if clients[place].identity in routes.clients:
                routes.forget(clients[place])
            fresh = routes.client(b"actor%d.%d" % (place, number := number + 1))
            assert fresh is not None
            clients[place] = fresh
        else:
            client = clients[rng.integers(12)]
            assert ask(routes, client) in routes.servers

        held = [name for server in routes.servers.values() for name in server.clients]
        assert len(held) == len(set(held))
        for server in routes.servers.values():
            assert all(each.server is server for each in server.clients.values())
        assert set(held) <= set(routes.clients)
        assert all(each.server in (None, *routes.servers.values()) for each in routes.clients.values())
