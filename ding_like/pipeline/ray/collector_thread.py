"""Collection for a gradient worker: here or in workers, in rounds or asynchronously."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from ding_like.comm.channels import CollectRequest
from ding_like.errors import CommError
from ding_like.pipeline.ray.c_worker import CWorkerSet
from ding_like.pipeline.ray.worker_set import Reply
from ding_like.pipeline.remote_collectors import shares

_LOOK_S = 1.0  # between two looks at whether the thread is to end


class Collected(NamedTuple):
    """Rows that a collector returned, and its info with "Worker", "Asked" and "CameS" (of the monotonic clock)."""

    data: Any  # columns by name, or one frame
    info: Mapping[str, Any]


class CollectorThread(threading.Thread):
    """Thread, or synchronous stepper, that has the collectors of a gradient worker collect.

    Synchronous, `step` has all of them collect their shares of an order; once `col_fraction_workers` of them have
    finished, the others are stopped early. Asynchronous, this thread keeps one call of `segment_rows` rows under way in
    each, and `step` returns what came first; at most `max_queue_size` segments wait, which limits the policy lag.
    `get_weights` returns the weights, which are sent at every `broadcast_interval`-th version.
    """

    def __init__(
        self, c_workers: CWorkerSet, *, col_communication: str = "synchronous", col_fraction_workers: float = 1.0,
        get_weights: Callable[[], tuple[int, Any] | None] = lambda: None, broadcast_interval: int = 1,
        max_queue_size: int = 100, segment_rows: int | None = None, least_rows: int = 1,
    ) -> None:  # fmt: skip
        super().__init__(name="collector thread", daemon=True)
        self.stopped = False
        self.outqueue: queue.Queue[Collected | BaseException] = queue.Queue(maxsize=max_queue_size)
        self._c_workers, self._fraction = c_workers, col_fraction_workers
        self._is_asynchronous = col_communication == "asynchronous"
        self._get_weights, self._interval = get_weights, broadcast_interval
        self._segment_rows, self._least_rows = segment_rows, least_rows
        self._order: CollectRequest | None = None  # the newest
        self._version: int | None = None  # that was broadcast last
        self._round_id = 0

    def step(
        self, order: CollectRequest | None = None, *, listen_to: tuple[tuple[str, int], ...] = ()
    ) -> list[Collected]:
        """Return what was collected: of a round, or what came first; empty if nothing came in time.

        `order` says how many rows a round has in all, None: each collector's `update_every`. `listen_to` has further
        signals that may end a round early. Raises what collecting raised.
        """
        if not self._is_asynchronous:
            return self.collect_round(order, listen_to=listen_to)
        self._broadcast()
        self._order = order
        if self.ident is None and not self.stopped:
            self.start()
        try:
            found = self.outqueue.get(timeout=_LOOK_S)
        except queue.Empty:
            if not self.is_alive():
                raise CommError("the collector thread has ended: there are no rows to wait for.") from None
            return []
        if isinstance(found, BaseException):
            raise found
        return [found]

    def _broadcast(self) -> None:
        found = self._get_weights()
        if found is None:
            return
        version, weights = found
        if self._version is None or version - self._version >= self._interval or version < self._version:
            self._version = version
            self._c_workers.broadcast("set_weights", weights() if callable(weights) else weights)

    def collect_round(
        self, order: CollectRequest | None, *, listen_to: tuple[tuple[str, int], ...] = ()
    ) -> list[Collected]:
        """Have all collectors collect their shares of an order with the newest weights; return what came, in order."""
        self._broadcast()
        self._round_id += 1
        own = "round", self._round_id

        def share(place: int, number: int) -> Mapping[str, Any] | None:
            if order is None:
                return {"order": None}
            rows = shares(order.rows, number)[place]
            return {"order": order._replace(rows=max(rows, self._least_rows))} if rows else None

        replies = self._c_workers.call(
            "collect_data", listen_to=(own, *listen_to), each=share, quorum=self._fraction,
            on_quorum=lambda: self._c_workers.control("stop_collecting", *reversed(own)),
        )  # fmt: skip
        return [self._collected(reply, order) for reply in replies]

    def _collected(self, reply: Reply, order: CollectRequest | None) -> Collected:
        (data, info), worker = reply.value, reply.worker
        name, rows = (
            (f"{self._c_workers.kind}1", order.rows if order else 0) if worker is None else (worker.name, worker.rows)
        )
        asked = max(rows, self._least_rows) if order else info["NumberSamples"]
        return Collected(data, {**info, "Worker": name, "Asked": asked, "CameS": time.monotonic()})

    def run(self) -> None:
        """Collect until stopped; an error is the last thing in the queue."""
        torch.set_flush_denormal(True)  # of this thread: see `training_process`
        try:
            while not self.stopped:
                order = self._order
                if order is not None:
                    order = order._replace(rows=self._segment_rows or order.rows)
                reply = self._c_workers.next_ready("collect_data", timeout_s=_LOOK_S, order=order)
                if reply is not None:
                    self._put(self._collected(reply, order))
        except BaseException as error:  # raised in the thread that reads the queue
            self._put(error)

    def _put(self, found: Collected | BaseException) -> None:
        while not self.stopped:
            try:
                self.outqueue.put(found, timeout=_LOOK_S)
                return
            except queue.Full:
                continue  # the queue is bounded: collectors are not ahead by more

    def stop(self, *, timeout_s: float = 5.0) -> bool:
        """End the thread after the collection that it waits for; return whether it has ended in time."""
        self.stopped = True
        if self.ident is not None:
            self.join(timeout_s)
        return not self.is_alive()
