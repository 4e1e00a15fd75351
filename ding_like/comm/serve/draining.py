"""A server within limits that answers what it was asked before it closes, and says in JSON what it cannot read."""

from __future__ import annotations

import json
import socket
from typing import Any

from waitress import wasyncore
from waitress.task import ErrorTask, WSGITask

from ding_like.comm.rest.http_limits import LimitedChannel, LimitedServer

JSON_TYPE = "application/json"


def error_body(code: str, message: str) -> bytes:
    """Return the body of every answer that is an error."""
    return json.dumps({"error": {"code": code, "message": message}}).encode()


class _LastAnswer(WSGITask):  # type: ignore[misc]
    """Answer; where the server is closing, tell the client that the connection is too."""

    def build_response_header(self) -> bytes:
        if self.channel.server.is_draining:
            self.set_close_on_finish()
        head: bytes = super().build_response_header()
        return head


class _JsonError(ErrorTask):  # type: ignore[misc]
    """Refuse what is no request that can be read."""

    def execute(self) -> None:
        error, code = self.request.error, "malformed"
        status, message = f"{error.code} {error.reason}", str(error.body)
        if error.code == 413:
            code = "too_large"
            if not self.channel.is_known:
                # Its size was held against what is read of a stranger, which is not what it needs to hear.
                status, code = "401 Unauthorized", "bad_key"
                message = "the request has no token, or another one, expected `Authorization: Bearer TOKEN`"
        body = error_body(code, message)
        self.status = status
        self.response_headers.append(("Content-Type", JSON_TYPE))
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class _Channel(LimitedChannel):
    task_class = _LastAnswer
    error_task_class = _JsonError


class DrainingServer(LimitedServer):
    """Serve until `drain`: then take no more connections, answer what has come, and end."""

    channel_class = _Channel

    def __init__(self, app: Any, listener: socket.socket, **settings: Any) -> None:  # as of LimitedServer
        self.is_draining = False
        self._grace_s = 0.0
        super().__init__(app, listener, **settings)

    def drain(self, grace_s: float) -> None:
        """Have `run` end when all that has come is answered, after `grace_s` at the latest; from any thread."""
        self._grace_s = grace_s
        self.is_draining = True
        self.pull_trigger()

    def run(self) -> None:
        """Serve until `drain` is called; then end, with the port and all connections closed.

        `close_all` is still to be called, when no other thread can wake the loop any more.
        """
        look_s = self.adj.asyncore_loop_timeout
        while not self.is_draining:
            wasyncore.poll2(look_s, self._map)
        self.handle_accept()  # who has connected already has asked, or is about to
        wasyncore.dispatcher.close(self)  # the port
        deadline = self.clock() + self._grace_s
        wasyncore.poll2(0.0, self._map)  # what has come already is read
        while self._close_idle() and (left := deadline - self.clock()) > 0:
            wasyncore.poll2(min(left, look_s), self._map)
        for channel in list(self.active_channels.values()):
            channel.handle_close()

    def _close_idle(self) -> int:
        """Close connections that wait for nothing; return how many are left."""
        channels = list(self.active_channels.values())
        for channel in channels:
            # In this order: an answer is in the buffer before its request is forgotten.
            if not channel.requests and not channel.total_outbufs_len and channel.request is None:
                channel.handle_close()
        return len(self.active_channels)
