"""Decide which inference server a client's requests go to: bookkeeping without sockets and without a clock.

A client stays with one server, which may hold its recurrent state, until that server is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# A message as pyzmq has received it: zmq.Frame objects, of a package that need not be installed.
Message = Sequence[Any]


class Client:
    """Hold what is known of a client."""

    __slots__ = ("heard_s", "identity", "server", "unanswered", "waiting")

    def __init__(self, identity: bytes) -> None:
        self.identity = identity
        self.server: Server | None = None
        self.unanswered: Message | None = None  # its newest request, where no reply has come for it
        self.waiting: Waiting | None = None  # its newest message that waits for a server
        self.heard_s = 0.0


class Waiting:
    """Hold a message of a client that waits for a server."""

    __slots__ = ("came_s", "client", "message", "nbytes")

    def __init__(self, client: Client, message: Message, nbytes: int, came_s: float) -> None:
        self.client = client
        self.message = message
        self.nbytes = nbytes
        self.came_s = came_s


class Server:
    """Hold what is known of a server."""

    __slots__ = ("clients", "heard_s", "identity")

    def __init__(self, identity: bytes) -> None:
        self.identity = identity
        self.clients: dict[bytes, Client] = {}
        self.heard_s = 0.0


class Routes:
    """Keep which clients and servers there are, and who is whose.

    A client is given the server with the fewest clients when it is heard for the first time or has lost its server.
    After a server has joined, clients are moved to it, each between a reply and its next request, until no server has
    two more than another.
    """

    def __init__(self, *, max_clients: int) -> None:
        self.clients: dict[bytes, Client] = {}
        self.servers: dict[bytes, Server] = {}
        self.num_moved = 0  # clients that went on at another server
        self._max_clients = max_clients
        self._latest: dict[bytes, bytes] = {}  # the identity of each name
        self._is_uneven = False

    def client(self, identity: bytes) -> Client | None:
        """Return a client, None where it is a new one for which there is no room.

        Of identities NAME.NUMBER the newest of a name is the client, and the others are forgotten.
        """
        client = self.clients.get(identity)
        if client is not None:
            return client
        name = identity.rpartition(b".")[0] or identity
        before = self.clients.get(self._latest.get(name, b""))
        if before is not None:
            self.forget(before)
        if len(self.clients) >= self._max_clients:
            return None
        self._latest[name] = identity
        client = self.clients[identity] = Client(identity)
        return client

    def server_of(self, client: Client) -> Server | None:
        """Return the server for a client's next request, None while there is none."""
        server = client.server
        if server is None:
            return self._assign(client)
        if self._is_uneven and client.unanswered is None:
            return self._even_out(client, server)
        return server

    def join(self, identity: bytes) -> Server:
        """Add a server."""
        server = self.servers[identity] = Server(identity)
        self._is_uneven = bool(self.clients)
        return server

    def lose(self, server: Server) -> list[Client]:
        """Remove a server; return the clients that it had, in the order in which they came to it."""
        del self.servers[server.identity]
        clients = list(server.clients.values())
        server.clients.clear()
        for client in clients:
            client.server = None
        self.num_moved += len(clients)
        return clients

    def forget(self, client: Client) -> None:
        """Remove a client."""
        del self.clients[client.identity]
        name = client.identity.rpartition(b".")[0] or client.identity
        if self._latest.get(name) == client.identity:
            del self._latest[name]
        if client.server is not None:
            del client.server.clients[client.identity]
            client.server = None

    def _assign(self, client: Client) -> Server | None:
        if not self.servers:
            return None
        server = min(self.servers.values(), key=lambda each: len(each.clients))
        server.clients[client.identity] = client
        client.server = server
        return server

    def _even_out(self, client: Client, server: Server) -> Server:
        loads = [len(each.clients) for each in self.servers.values()]
        self._is_uneven = max(loads) - min(loads) > 1
        if len(server.clients) - min(loads) <= 1:
            return server
        del server.clients[client.identity]
        self.num_moved += 1
        found = self._assign(client)
        assert found is not None  # there is `server` at least
        return found
