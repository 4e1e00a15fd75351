"""A coordinator in the middle of a run, and a stranger who sends it whatever bytes he likes."""

from __future__ import annotations

import errno
import json
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ding_like.comm.http_server import CoordinatorServer
from ding_like.comm.keys import make_keys, sign
from ding_like.pipeline.parallel.core.status import status_of
from ding_like.pipeline.parallel.service import LockedService
from tests.pipeline.parallel.service_parts import begin, make_core

TIMEOUT_S = 5.0


class Stage:
    """Hold a run with a learner, a collector and a task of each, served with keys."""

    def __init__(self, folder: Path) -> None:
        self.core: Any = make_core(folder)
        self.learner, self.learn, self.collector, self.collect = begin(self.core)
        self.core.book.index(self.learn.buffer_id)
        self.data, self.weights = folder / "data", folder / "policy"
        self.data.mkdir()
        self.keys = make_keys(folder / "keys.json")
        self.server = CoordinatorServer(
            LockedService(self.core), self.keys, segments=self.data, weights=self.weights, threads=8
        )
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
        """Return all that a request might change."""
        files = sorted(str(path) for folder in (self.data, self.weights) for path in folder.rglob("*"))
        return json.dumps([status_of(self.core), self.core._store.dump(), files], sort_keys=True, default=str)

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

    def ask(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        role: str | None = "collector",
        worker: str | None = None,
        headers: Mapping[str, str | None] | None = None,
        signed: Mapping[str, Any] | None = None,
    ) -> int:
        """Send a request that is right but for what is said: `headers` replace (None: leave out) those that belong.

        `signed` replaces what is signed: method, path, body, now_s or key.
        """
        own: dict[str, str | None] = {
            "Host": f"127.0.0.1:{self.port}",
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "X-DL-Protocol": "1",
            "X-DL-Worker": worker or self.names.get(role or "", self.collector),
            "Connection": "close",
        }
        if role is not None:
            said = {"method": method, "path": unquote(path), "body": body, "now_s": time.time(), "key": self.keys[role]}
            said.update(signed or {})
            own["Authorization"] = sign(
                said["key"], role, said["method"], said["path"], said["body"], now_s=said["now_s"]
            )
        own.update(headers or {})
        head = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in own.items() if value is not None)]
        return self.send("\r\n".join([*head, "", ""]).encode("utf-8", "surrogateescape") + body, close=False)


def memory() -> int:
    """Return this process's resident memory, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
