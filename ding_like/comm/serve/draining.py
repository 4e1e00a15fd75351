"""Close a limited HTTP server without dropping requests: answer what was received, then end; write errors as JSON."""

from __future__ import annotations

import json
import socket
from typing import Any

from waitress import wasyncore
from waitress.task import ErrorTask, WSGITask

from ding_like.comm.serve.limits import LimitedChannel, LimitedServer
from ding_like.comm.serve.messages import JSON


def error_body(code: str, message: str) -> bytes:
    """Return the body of every answer that is an error."""
    return json.dumps({"error": {"code": code, "message": message}}).encode()


class _LastAnswer(WSGITask):  # type: ignore[misc]
    """Write a response; while the server is closing, tell the client that the connection closes."""

    def build_response_header(self) -> bytes:
        if self.channel.server.is_draining:
            self.set_close_on_finish()
        head: bytes = super().build_response_header()
        return head


class _JsonError(ErrorTask):  # type: ignore[misc]
    """Answer a request that cannot be parsed with an error in JSON."""

    def execute(self) -> None:
        error, code = self.request.error, "malformed"
        status, message = f"{error.code} {error.reason}", str(error.body)
        if error.code == 413:
            code, server = "too_large", self.channel.server
            message = (
                f"the body has {self.request.content_length:,} bytes, expected at most {server.max_body:,}: send fewer "
                "observations at a time"
            )
            if not server.is_signed(self.request.command, self.request.path, self.request.headers):
                # The size limit was that for clients without the token: the missing token is what to report.
                status, code = "401 Unauthorized", "bad_key"
                message = "the request has no token, or another one, expected `Authorization: Bearer TOKEN`"
        body = error_body(code, message)
        self.status = status
        self.response_headers.append(("Content-Type", JSON))
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class _Channel(LimitedChannel):
    task_class = _LastAnswer
    error_task_class = _JsonError


class DrainingServer(LimitedServer):
    """Serve until `drain` is called; then accept no more connections, answer what was received, and end."""

    channel_class = _Channel

    def __init__(self, app: Any, listener: socket.socket, **settings: Any) -> None:  # as of LimitedServer
        self.is_draining = False
        self._grace_s = 0.0
        super().__init__(app, listener, **settings)

    def drain(self, grace_s: float) -> None:
        """Make `run` end when all requests received are answered, or after `grace_s`; call it from any thread."""
        self._grace_s = grace_s
        self.is_draining = True
        self.pull_trigger()

    def run(self) -> None:
        """Serve until `drain` is called; then end, with the port and all connections closed.

        Call `close_all` afterwards, once no other thread can wake the loop.
        """
        look_s = self.adj.asyncore_loop_timeout
        while not self.is_draining:
            wasyncore.poll2(look_s, self._map)
        self.handle_accept()  # a client that has connected has sent a request, or is about to
        wasyncore.dispatcher.close(self)  # the port
        deadline = self.clock() + self._grace_s
        wasyncore.poll2(0.0, self._map)  # read what has arrived
        while self._close_idle() and (left := deadline - self.clock()) > 0:
            wasyncore.poll2(min(left, look_s), self._map)
        for channel in list(self.active_channels.values()):
            channel.handle_close()

    def _close_idle(self) -> int:
        """Close idle connections; return how many are left."""
        channels = list(self.active_channels.values())
        for channel in channels:
            # In this order: a response is in the buffer before its request is removed.
            if not channel.requests and not channel.total_outbufs_len and channel.request is None:
                channel.handle_close()
        return len(self.active_channels)
