"""Carry weights and segments as bytes through pipes: a transport that is only here, to show what one needs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from ding_like.comm.channels import Order, Receipt, Segment, Version, Weights
from ding_like.data.batch import TransitionBatch
from ding_like.errors import CommError
from ding_like.types import Array
from tests.contracts.channel_cases import SEGMENT, Kind, RowEnds, Transport, WeightEnds


class PipePublisher:
    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._published: dict[str, Version] = {}

    def publish(self, weights: Weights, *, to: Sequence[str] | None = None, wait_s: float | None = None) -> Receipt:
        if self._pipe.closed:
            raise CommError("the pipe is closed.")
        before = self._published.get(weights.policy_id)
        if before is not None and weights.version <= before:
            return Receipt(skipped=("reader",))
        self._published[weights.policy_id] = weights.version
        self._pipe.send_bytes(json.dumps([weights.policy_id, *weights.version]).encode())
        self._pipe.send_bytes(save_tensors({name: tensor.contiguous() for name, tensor in weights.state.items()}))
        return Receipt(delivered=("reader",))

    def close(self) -> None:
        self._pipe.close()


class PipeReader:
    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._newest: dict[str, Weights] = {}

    def newest(self, policy_id: str, *, newer_than: Version | None = None, timeout_s: float = 0.0) -> Weights | None:
        while self._pipe.poll(0.0 if self._find(policy_id, newer_than) else timeout_s):
            name, *version = json.loads(self._pipe.recv_bytes())
            state = load_tensors(self._pipe.recv_bytes())
            self._newest[name] = Weights(name, Version(*version), state)
        return self._find(policy_id, newer_than)

    def _find(self, policy_id: str, newer_than: Version | None) -> Weights | None:
        found = self._newest.get(policy_id)
        return None if found is None or (newer_than is not None and found.version <= newer_than) else found


class PipeSink:
    """Have one segment under way at a time: the answer to it is the next order."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._order = Order(False, SEGMENT, 0, None)

    def put(self, segment: Segment) -> Order:
        assert isinstance(segment.batch, TransitionBatch), "rows that do not stack have no bytes"
        self._pipe.send_bytes(json.dumps([*segment.version, segment.env_steps]).encode())
        self._pipe.send_bytes(save_arrays({name: np.asarray(each) for name, each in segment.batch.columns.items()}))
        self._order = self._order._replace(rows=0, env_step=self._order.env_step + segment.env_steps)
        return self.order(timeout_s=0.0)

    def order(self, *, timeout_s: float) -> Order:
        while self._pipe.poll(0.0 if self._order.rows or self._order.finish else timeout_s):
            finish = self._pipe.recv_bytes() == b"finish"
            finish = finish or self._order.finish
            self._order = self._order._replace(finish=finish, rows=0 if finish else SEGMENT)
        return self._order


class PipeSource:
    """Give each segment once; that it was learned from is the leave to send the next."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self.finished = False
        self.env_step = 0

    def next(self, *, timeout_s: float) -> TransitionBatch | None:
        if self.finished or not self._pipe.poll(timeout_s):
            return None
        *_, env_steps = json.loads(self._pipe.recv_bytes())
        columns = load_arrays(self._pipe.recv_bytes())
        self.env_step += env_steps
        self._say(b"more")
        return TransitionBatch(columns)

    def feedback(self, train_iter: int, *, priority: Array | None, info: Callable[[], Mapping[str, Any]]) -> None: ...

    def finish(self) -> None:
        self.finished = True
        self._say(b"finish")

    def close(self) -> None:
        self._pipe.close()

    def _say(self, word: bytes) -> None:
        with self._lock:
            self._pipe.send_bytes(word)


def weights(stack: ExitStack, folder: Path) -> WeightEnds:
    receiving, sending = Pipe(duplex=False)
    stack.callback(receiving.close)
    stack.callback(sending.close)
    return WeightEnds(PipePublisher(sending), PipeReader(receiving))


def rows(stack: ExitStack, folder: Path, kind: Kind) -> RowEnds:
    ours, theirs = Pipe()
    stack.callback(ours.close)
    stack.callback(theirs.close)
    source = PipeSource(theirs)
    return RowEnds(PipeSink(ours), source, source.finish)


TRANSPORT = Transport(weights, rows, kinds=("once",))
