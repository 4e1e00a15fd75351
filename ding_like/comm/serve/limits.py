"""Hold connections to limits: so many in all, deadlines, a fair share of an address, large bodies only if signed.

Waitress closes connections that are silent; this also closes those that are slow. A connection on which no signed
request has come is a stranger's. Where there are too many, the address that holds most gives its oldest idle one up,
strangers' first: who opens connections and sends little takes room from himself.
"""

from __future__ import annotations

import functools
import logging
import resource
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher
from waitress.utilities import RequestEntityTooLarge

from ding_like.comm.rest.messages import MAX_BODY, MAX_FILE
from ding_like.utils.interval import Interval

logger = logging.getLogger(__name__)
# Requests that wait for a thread are no news: where there are too many, answers take longer.
logging.getLogger("waitress.queue").setLevel(logging.ERROR)

_UNSIGNED_BODY = 16_384  # bytes that are read before a signature is looked at
_MAX_HEAD = 16_384
_MAX_CONNECTIONS = 2000
_LEAST_CONNECTIONS = 8
_OTHER_FILES = 256  # descriptors that the coordinator itself may need
_ACCEPTED_AT_ONCE = 64
FILE_ROUTES = ("/v1/segments/", "/v1/weights/")

# (method, path with query, headers in capitals with underscores) -> whether a role of the run signed it.
IsSigned = Callable[[str, str, Mapping[str, str]], bool]


class Limits(NamedTuple):
    """Say how many connections there may be, and how long each part of a request and its answer may take."""

    connections: int = _MAX_CONNECTIONS
    strangers: int = _MAX_CONNECTIONS // 4  # of them, on which no signed request has come yet
    head_s: float = 10.0  # from the first byte of a request, or the connection's begin, to the end of its head
    body_s: float = 10.0  # for a body, and more for a large one
    bytes_per_s: float = 256 * 1024.0  # at which large bodies come at least
    idle_s: float = 15.0
    answer_s: float = 300.0  # for the other side to take an answer
    look_s: float = 1.0  # between two looks at deadlines

    @classmethod
    def of_this_process(cls) -> Limits:
        """Return limits that leave this process descriptors for its own files."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = _MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else max(soft - _OTHER_FILES, soft // 2)
        connections = max(min(_MAX_CONNECTIONS, free), _LEAST_CONNECTIONS)
        return cls(connections, max(connections // 4, _LEAST_CONNECTIONS // 2))


class LimitedParser(HTTPRequestParser):  # type: ignore[misc]
    """Read a request, and none of a large body before its head is known to be signed."""

    error: Any

    def __init__(self, adj: Any, is_signed: Callable[[HTTPRequestParser], bool], max_body: int) -> None:
        super().__init__(adj)
        self._is_signed = is_signed
        self._max_body = max_body

    def parse_header(self, header_plus: bytes) -> None:
        super().parse_header(header_plus)
        if self.chunked or "TRANSFER_ENCODING" in self.headers:
            raise ParsingError("a body is to be sent with a Content-Length")

    def received(self, data: bytes) -> int:
        had_head = self.headers_finished
        consumed: int = super().received(data)
        if self.headers_finished and not had_head and self.error is None and not self.empty:
            # Before any of the body is read: what follows the head comes with the next call.
            is_file = self.command == "PUT" and self.path.startswith(FILE_ROUTES)
            most = MAX_FILE if is_file else self._max_body
            most = most if self._is_signed(self) else _UNSIGNED_BODY
            if self.content_length > most:
                self.error = RequestEntityTooLarge(f"exceeds max_body of {most}")
                self.completed = True
        return consumed


class LimitedChannel(HTTPChannel):  # type: ignore[misc]
    """Hold one connection, and know since when it has been at what."""

    def __init__(self, server: LimitedServer, sock: socket.socket, addr: Any, adj: Any, map: Any = None) -> None:
        self.opened_s = self.heard_s = server.clock()
        self.began_s: float | None = self.opened_s  # the request that is being received
        self.answer_s: float | None = None  # when an answer was first seen waiting for the other side
        self.is_known = False
        super().__init__(server, sock, addr, adj, map=map)
        self.parser_class = functools.partial(LimitedParser, is_signed=self._is_signed, max_body=server.max_body)

    def received(self, data: bytes) -> bool:
        before = self.request
        self.heard_s = self.server.clock()
        taken: bool = super().received(data)
        if self.request is None:
            self.began_s = None
        elif self.request is not before:
            self.began_s = self.heard_s
        return taken

    def _is_signed(self, head: HTTPRequestParser) -> bool:
        # As the application will see it: decoded, with its query.
        path = "/" + head.path.encode("latin-1").decode("utf-8", "replace").lstrip("/")
        is_signed: bool = self.server.is_signed(
            head.command, f"{path}?{head.query}" if head.query else path, head.headers
        )
        self.is_known |= is_signed
        return is_signed

    def is_late(self, now: float, limits: Limits) -> bool:
        """Tell whether the other side takes too long, at whatever it does."""
        waiting = self.total_outbufs_len
        if waiting or self.requests:
            self.heard_s = now
            self.answer_s = (self.answer_s or now) if waiting else None
            return bool(self.answer_s is not None and now > self.answer_s + limits.answer_s)
        self.answer_s = None
        if self.began_s is None:
            return now > self.heard_s + limits.idle_s
        request = self.request
        if request is None or not request.headers_finished:
            return now > self.began_s + limits.head_s
        body_s = limits.body_s + float(request.content_length) / limits.bytes_per_s
        return now > self.began_s + limits.head_s + body_s


class LimitedServer(TcpWSGIServer):  # type: ignore[misc]
    """Serve an application on a socket that listens, within limits; `run` is the loop, for a thread."""

    channel_class = LimitedChannel

    def __init__(
        self,
        app: Any,
        listener: socket.socket,
        *,
        is_signed: IsSigned,
        limits: Limits,
        threads: int,
        max_body: int = MAX_BODY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_signed = is_signed
        self.max_body = max_body  # of signed requests that are no files
        self.clock = clock
        self._limits = limits
        self._look_s = 0.0
        self._is_out_of_files = False
        self._words = Interval(60.0, starts_due=True)
        adj = Adjustments(
            sockets=[listener],
            threads=threads,
            max_request_body_size=MAX_FILE + 1,
            max_request_header_size=_MAX_HEAD,
            asyncore_use_poll=True,  # select() knows no descriptors above 1024
            log_socket_errors=False,  # broken connections are common, and a stranger could fill the log with them
            ident=None,
        )
        adj.asyncore_loop_timeout = limits.look_s  # not by its constructor, which takes whole seconds
        dispatcher = ThreadedTaskDispatcher()
        dispatcher.set_thread_count(threads)
        where = (listener.family, listener.type, listener.proto, listener.getsockname())
        super().__init__(app, {}, True, listener, dispatcher=dispatcher, adj=adj, bind_socket=False, sockinfo=where)

    def readable(self) -> bool:
        """Look at deadlines now and then; tell whether a connection could be taken."""
        now = self.clock()
        if now >= self._look_s:
            self._look_s = now + self._limits.look_s
            self._is_out_of_files = False
            self.maintenance(now)
        return bool(self.accepting) and not self._is_out_of_files

    def maintenance(self, now: float) -> None:
        """Close connections whose other side is too slow."""
        for channel in list(self.active_channels.values()):
            if channel.is_late(now, self._limits):
                channel.will_close = True
                # While the other side takes nothing, no event would come by which the loop closes it.
                with suppress(OSError):  # it has gone by itself
                    channel.socket.shutdown(socket.SHUT_RDWR)

    def handle_accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted = self.accept()
                if accepted is None:
                    return
                connection, address = accepted
            except OSError as error:
                # No descriptors, most likely: the connection waits in the system's queue until one is free.
                self._say(f"a connection cannot be taken: {error.strerror}")
                if not self._give_up_one():
                    self._is_out_of_files = True
                return
            if not self._make_room():
                self._say("all connections are busy: a new one is turned away")
                connection.close()
                continue
            try:
                self.set_socket_options(connection)
            except OSError:  # it has gone again
                connection.close()
                continue
            self.channel_class(self, connection, self.fix_addr(address), self.adj, map=self._map)

    def close_all(self) -> None:
        """Close every connection and the port; for the loop's own thread, or after its end."""
        wasyncore.close_all(self._map, ignore_all=True)

    def _make_room(self) -> bool:
        channels = self._open_channels()
        strangers = sum(not channel.is_known for channel in channels)
        if len(channels) < self._limits.connections and strangers < self._limits.strangers:
            return True
        return self._give_up_one()

    def _give_up_one(self) -> bool:
        """Close an idle connection, the oldest of the address that holds most; strangers' come first."""
        channels = self._open_channels()
        idle = [channel for channel in channels if not channel.requests]
        chosen = [channel for channel in idle if not channel.is_known]
        if not chosen and len(channels) >= self._limits.connections:
            chosen = idle
        if not chosen:
            return False
        held = Counter(channel.addr[0] for channel in chosen)
        most = max(held.values())
        victim = min((each for each in chosen if held[each.addr[0]] == most), key=lambda each: each.opened_s)
        self._say(f"too many connections: {most} of {victim.addr[0]} wait for nothing, its oldest is closed")
        # Not at once: what is said of its descriptor in this round of the loop must not meet a new connection.
        victim.will_close = True
        return True

    def _open_channels(self) -> list[LimitedChannel]:
        return [channel for channel in self.active_channels.values() if not channel.will_close]

    def _say(self, text: str) -> None:
        if self._words.pass_s():
            logger.warning("%s", text)
