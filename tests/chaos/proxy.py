"""Stand between workers and their coordinator, and do to their requests what bad networks do."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Mapping

_LIMIT = 1 << 22
_JOIN_S = 10.0
# What may happen to a request; 'reorder' holds it back long enough for later ones to pass.
FAULTS = ("delay", "reorder", "duplicate", "drop", "lose_answer", "reset", "half_close", "one_way")


class FaultyProxy:
    """Pass requests on to `port` of this machine; `chances` says how often each fault happens.

    Use it with `with`; `counts` says how often each happened.
    """

    def __init__(self, port: int, chances: Mapping[str, float], *, seed: int, hold_s: float = 1.0) -> None:
        unknown = set(chances) - set(FAULTS)
        if unknown:
            raise ValueError(f"unknown faults {sorted(unknown)}; there are {FAULTS}")
        self._upstream = port
        self._chances = dict(chances)
        self._rng = random.Random(seed)
        self._hold_s = hold_s
        self.counts: Counter[str] = Counter()
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._background: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="faulty-proxy", daemon=True)

    def __enter__(self) -> FaultyProxy:
        self._thread.start()
        assert self._started.wait(_JOIN_S), "the proxy has not started"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_LIMIT))
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()
        server.close()
        pending = asyncio.all_tasks(self._loop)
        for task in pending:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._pass_on(await _read_message(reader), writer):
                pass
        writer.close()

    async def _pass_on(self, message: bytes, writer: asyncio.StreamWriter) -> bool:
        """Do with a request what is drawn for it; return whether the connection goes on."""
        fault = self._draw(message)
        self.counts[fault] += 1
        if fault == "drop":
            return False
        if fault in ("delay", "reorder"):
            await asyncio.sleep(self._rng.uniform(0.0, self._hold_s * (1.0 if fault == "delay" else 3.0)))
        if fault == "duplicate":
            again = self._loop.create_task(self._send_again(message, self._rng.uniform(0.0, self._hold_s)))
            self._background.add(again)
            again.add_done_callback(self._background.discard)
        if fault in ("reset", "half_close"):
            await self._send_half(message, reset=fault == "reset")
            _reset(writer)
            return False
        answer = await self._ask(message)
        if fault == "one_way":
            await asyncio.sleep(self._hold_s)
        await self._before_answer(message)
        if fault in ("lose_answer", "one_way"):
            return False
        writer.write(answer)
        await writer.drain()
        return True

    def _draw(self, message: bytes) -> str:
        """Return what is to happen to a request."""
        draw = self._rng.random()
        for fault, chance in self._chances.items():
            draw -= chance
            if draw < 0:
                return fault
        return "none"

    async def _before_answer(self, message: bytes) -> None:
        """Do nothing; for subclasses."""

    async def _ask(self, message: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._upstream, limit=_LIMIT)
        try:
            writer.write(message)
            await writer.drain()
            return await _read_message(reader)
        finally:
            writer.close()

    async def _send_again(self, message: bytes, after_s: float) -> None:
        await asyncio.sleep(after_s)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await self._ask(message)

    async def _send_half(self, message: bytes, *, reset: bool) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._upstream, limit=_LIMIT)
        writer.write(message[: len(message) // 2])
        await writer.drain()
        if reset:
            _reset(writer)
            return
        writer.write_eof()
        with contextlib.suppress(ConnectionError, asyncio.TimeoutError):
            await asyncio.wait_for(reader.read(), self._hold_s)
        writer.close()


class LostAnswers(FaultyProxy):
    """Lose answers after the request was taken: the first of each route, and each later one with a chance.

    `lost` counts them by route. What happens to the n-th request of a route depends on the seed alone.
    """

    def __init__(self, port: int, chance: float, *, seed: int) -> None:
        super().__init__(port, {}, seed=seed)
        self._chance = chance
        self._seed = seed
        self._routes: dict[str, random.Random] = {}
        self.lost: Counter[str] = Counter()

    def _draw(self, message: bytes) -> str:
        route = route_of(message)
        is_first = route not in self._routes
        rng = self._routes.setdefault(route, random.Random(f"{self._seed} {route}"))
        if rng.random() >= self._chance and not is_first:
            return "none"
        self.lost[route] += 1
        return "lose_answer"


class HeldAnswer(FaultyProxy):
    """Proxy that holds back one reply of a route, for a coordinator killed between taking a message and the reply."""

    def __init__(self, port: int) -> None:
        super().__init__(port, {}, seed=0)
        self._route: str | None = None
        self._taken = threading.Event()
        self._released = threading.Event()

    def hold(self, route: str) -> None:
        """Hold back the answer to the next request of a route."""
        self._taken.clear()
        self._released.clear()
        self._route = route

    def wait_until_taken(self, timeout_s: float) -> bool:
        """Wait until the coordinator has answered that request; return whether it has in time."""
        return self._taken.wait(timeout_s)

    def lose(self) -> None:
        """Close the connection in place of the answer that is held back."""
        self._released.set()

    async def _before_answer(self, message: bytes) -> None:
        if self._route is None or route_of(message) != self._route:
            return
        self._route = None
        self._taken.set()
        await self._loop.run_in_executor(None, self._released.wait, _JOIN_S)
        raise ConnectionAbortedError("the coordinator was killed before it answered")


def route_of(message: bytes) -> str:
    """Return the route of a request with a star for each id, such as 'POST tasks/*/data'."""
    method, path = message.split(b" ", 2)[:2]
    words = path.decode().partition("?")[0].removeprefix("/v1/").split("/")
    if words[1:] and words[1] != "claim":
        words[1] = "*"
    if words[0] == "weights":
        del words[2:]  # the version
    return f"{method.decode()} {'/'.join(words)}"


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    """Read a request or an answer with a Content-Length, whole."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    return head + (await reader.readexactly(length) if length else b"")


def _reset(writer: asyncio.StreamWriter) -> None:
    """Have the other side see a reset in place of an orderly end."""
    connection = writer.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
