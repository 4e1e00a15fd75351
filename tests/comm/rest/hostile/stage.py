"""A coordinator in the middle of a run, and a client that sends it any bytes."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import json
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ding_like.comm.http_server import CoordinatorServer
from ding_like.comm.keys import make_keys
from ding_like.comm.rest import messages as m
from ding_like.comm.rest.messages import Signer
from ding_like.pipeline.parallel.coordinator import LockedService
from tests.pipeline.parallel.service_parts import begin, make_core

TIMEOUT_S = 60.0
SECRETS = {"collector": "c" * 64, "learner": "e" * 64, "admin": "a" * 64}


class _Registrar:
    """Service whose workers register with secrets."""

    def __init__(self, service: LockedService) -> None:
        self._service = service

    def register(self, message: m.Register) -> m.Registered:
        return self._service.register(dataclasses.replace(message, secret=SECRETS[message.role]))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)


class Stage:
    """Run with a learner, a collector and a task of each, served with keys."""

    def __init__(self, folder: Path) -> None:
        self.core: Any = make_core(folder)
        self.service = LockedService(self.core)
        self.learner, self.learn, self.collector, self.collect = begin(_Registrar(self.service))
        self.folder, self.data, self.weights = folder, folder / "data", folder / "policy"
        self.data.mkdir()
        self.keys = make_keys(folder / "keys.json")
        self.server = CoordinatorServer(self.service, self.keys, segments=self.data, weights=self.weights, threads=8)
        self._turns = itertools.count(1)
        self.server.start()
        self.port = int(self.server.url.rpartition(":")[2])
        self.names = {
            "collector": self.collector, "learner": self.learner, "collect": self.collect.task_id,
            "learn": self.learn.task_id, "buffer": self.learn.buffer_id, "policy": self.learn.policy_id,
        }  # fmt: skip

    def close(self) -> None:
        self.server.close()
        self.core.close()

    def state(self) -> Any:
        """Return all that a request might change, but for the journal of what was answered, which is to grow."""
        saved = self.core._store.dump()
        saved["items"].pop("answer", None)
        files = sorted(str(path) for path in self.folder.rglob("*"))
        return json.dumps([self.core.status(), saved, files], sort_keys=True, default=str)

    def send(self, raw: bytes, *, close: bool = True) -> int:
        """Send bytes and return the status of the answer; 0 if the connection ends without one."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S) as connection:
            try:
                connection.sendall(raw)
                if close:
                    connection.shutdown(socket.SHUT_WR)
            except OSError as error:
                # Refused before all of it was sent: the answer may lie there all the same.
                if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
                    raise
            answer = b""
            while b"\r\n" not in answer:
                try:
                    received = connection.recv(4096)
                except ConnectionResetError:
                    return 0
                if not received:
                    return 0
                answer += received
        return int(answer.split(b" ", 2)[1])

    def sign(self, role: str, method: str, path: str, body: bytes, **changes: Any) -> dict[str, str]:
        """Return the headers of a request that is right but for changes of now_s, key, secret, worker, turn."""
        own = {"now_s": time.time(), "key": self.keys[role], "secret": SECRETS[role]}
        own.update(worker=self.names.get(role, self.collector), turn=f"stage:{next(self._turns)}")
        own.update(changes)
        signer = Signer(role, own["key"], secret=own["secret"], clock=lambda: own["now_s"])
        signer.offset_s = 0.0
        headers, _ = signer.sign(method, path, body, turn=own["turn"], worker=own["worker"])
        return headers

    def head(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        role: str | None = "collector",
        headers: Mapping[str, str | None] | None = None,
        signed: Mapping[str, Any] | None = None,
    ) -> bytes:
        """Return the head of a request that is valid except for the arguments.

        `headers` replace (None: leave out) those that belong; `signed` replaces what is signed: method, path, body, or
        what `sign` takes.
        """
        own: dict[str, str | None] = {
            "Host": f"127.0.0.1:{self.port}",
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "X-DL-Protocol": str(m.PROTOCOL),
            "Connection": "close",
        }
        if role is not None:
            said = {"method": method, "path": unquote(path), "body": body, **(signed or {})}
            own.update(self.sign(role, said.pop("method"), said.pop("path"), said.pop("body"), **said))
        own.update(headers or {})
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in own.items() if value is not None)]
        return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape")

    def ask(self, method: str, path: str, body: bytes, **how: Any) -> int:
        """Send a request with the head that `head` makes, and return the status."""
        return self.send(self.head(method, path, body, **how) + body, close=False)


def memory() -> int:
    """Return this process's resident memory, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
