"""Carry weights as bytes through a pipe: a transport that is only here, to show what one needs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from ding_like.comm.channels import Receipt, Version, Weights
from ding_like.errors import CommError
from tests.contracts.channel_cases import Transport, WeightEnds


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


def weights(stack: ExitStack, folder: Path) -> WeightEnds:
    receiving, sending = Pipe(duplex=False)
    stack.callback(receiving.close)
    stack.callback(sending.close)
    return WeightEnds(PipePublisher(sending), PipeReader(receiving))


TRANSPORT = Transport(weights)
