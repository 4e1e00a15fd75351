"""Carry rows over ZeroMQ for the contract suite, as the driver of a SEED run does."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ding_like.comm.channels import Batch
from ding_like.comm.zmq.rows import RowServer, ZmqRowSink
from ding_like.pipeline.rows import RowQueue
from ding_like.types import Array
from tests.contracts import local_transport
from tests.contracts.channel_cases import Kind, RowEnds, Transport

_NAME = "actor1"
_PATIENCE_S = 10.0


class ZmqSource:
    """Driver that puts received segments into `rows`, acknowledges them, and requests what `rows` has room for."""

    def __init__(self, server: RowServer, rows: RowQueue) -> None:
        self._server = server
        self.finished = False
        self._rows = rows
        self._order()

    def next(self, *, timeout_s: float) -> Batch | None:
        deadline = time.monotonic() + timeout_s
        while True:
            batch = self._rows.next()
            self._order()
            left_s = deadline - time.monotonic()
            if batch is not None or self.finished or left_s <= 0:
                return batch
            for arrived in self._server.take(left_s):
                self._rows.put(arrived.segment)
                self._server.acknowledge(arrived)

    def _order(self) -> None:
        order = self._rows.order()
        if order.rows and not self._server.sources()[_NAME].orders:
            self._server.give(_NAME, order.rows, env_step=order.env_step, newest=order.newest)

    def feedback(self, train_iter: int, *, priority: Array | None, info: Callable[[], Mapping[str, Any]]) -> None:
        if priority is not None:
            self._rows.update_priorities(priority)

    @property
    def env_step(self) -> int:
        return self._rows.env_step

    def finish(self) -> None:
        self.finished = True
        self._server.stop_all()

    def close(self) -> None:
        self._server.close()


def rows(stack: ExitStack, folder: Path, kind: Kind) -> RowEnds:
    local = local_transport.local_rows(stack, folder, kind)
    server = RowServer(f"ipc://{folder}/data", credit=1).start()
    stack.callback(server.close)
    sink = ZmqRowSink(server.endpoint, name=_NAME, run_id=1, timeout_s=0.1, patience_s=_PATIENCE_S)
    stack.callback(sink.close)
    sink.join()
    source = ZmqSource(server, local)

    def finish() -> None:
        source.finish()
        # An order that was given before is there at once; the end is still on its way to the sink.
        deadline = time.monotonic() + _PATIENCE_S
        while not sink.stopped and time.monotonic() < deadline:
            time.sleep(0.001)

    return RowEnds(sink, source, finish)


TRANSPORT = Transport(rows=rows)
