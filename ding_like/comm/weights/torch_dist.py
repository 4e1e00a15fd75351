"""Send weights from one process to others of a torch.distributed store, rank to rank (gloo), without files."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch._C._distributed_c10d import FileStore, PrefixStore, ProcessGroupGloo

from ding_like.comm.channels import Receipt, Version, Weights
from ding_like.comm.learner_group import use_loopback
from ding_like.comm.weights.newest import NewestWeights
from ding_like.errors import CommError

logger = logging.getLogger(__name__)

_LOOK_S = 0.5  # between two looks at whether the reader is closed
_TAG = 1
_END = "end"


class _Joined:
    """Be one rank of those that weights travel between; it stays apart from the process's default group.

    All `world_size` ranks join at the same time, within `timeout_s`. Raises CommError if they do not.
    """

    def __init__(self, store: str | os.PathLike[str], *, rank: int, world_size: int, timeout_s: float) -> None:
        use_loopback()
        self.rank, self.world_size = rank, world_size
        try:
            self.store = PrefixStore("weights", FileStore(str(store), world_size))
            # Any: torch's annotations of the class lack send and recv.
            self.group: Any = ProcessGroupGloo(self.store, rank, world_size, timedelta(seconds=timeout_s))
        except RuntimeError as error:
            raise CommError(f"rank {rank} of {world_size} cannot reach the others: {error}") from error


class DistWeightPublisher(_Joined):
    """Send weights to all other ranks, before `publish` returns: readers are named by their ranks, "1" say.

    A reader that has ended or does not answer within `timeout_s` is failed from then on.
    """

    def __init__(self, store: str | os.PathLike[str], *, rank: int, world_size: int, timeout_s: float = 60.0) -> None:
        super().__init__(store, rank=rank, world_size=world_size, timeout_s=timeout_s)
        self._sent = {str(each): 0 for each in range(world_size) if each != rank}  # messages, by reader
        self._lost: set[str] = set()
        self._published: dict[str, Version] = {}
        self._is_closed = False

    def publish(self, weights: Weights, *, to: Sequence[str] | None = None, wait_s: float | None = None) -> Receipt:
        """Send weights; see `WeightPublisher`. `timeout_s` is the longest wait, whatever `wait_s` says."""
        if self._is_closed:
            raise CommError("weights are published after the publisher was closed.")
        names = tuple(self._sent) if to is None else tuple(to)
        before = self._published.get(weights.policy_id)
        if before is not None and weights.version <= before:
            return Receipt(skipped=names)
        self._published[weights.policy_id] = weights.version
        head, body = _pack(weights)
        delivered = tuple(name for name in names if self._send(name, head, body))
        return Receipt(delivered=delivered, failed=tuple(name for name in names if name not in delivered))

    def close(self) -> None:
        """Tell all readers that no more weights come; may be called again."""
        if not self._is_closed:
            self._is_closed = True
            for name, number in self._sent.items():
                self.store.set(f"{name}/{number}", _END)
            self.group = None  # its sockets are closed with it

    def _send(self, name: str, head: str, body: torch.Tensor) -> bool:
        """Return whether a reader has taken a message: announced in the store, its numbers rank to rank."""
        if name not in self._sent or name in self._lost or self.store.check([f"{name}/left"]):
            return False
        self.store.set(f"{name}/{self._sent[name]}", head)
        self._sent[name] += 1
        try:
            self.group.send([body], int(name), _TAG).wait()
        except RuntimeError as error:
            self._lost.add(name)
            logger.warning("reader %s of weights is lost: %s", name, str(error).splitlines()[0])
            return False
        return True


class DistWeightReader(_Joined):
    """Receive what rank `source` publishes, in a thread; what that raises is raised by the next call."""

    def __init__(
        self, store: str | os.PathLike[str], *, rank: int, world_size: int, source: int = 0, timeout_s: float = 60.0
    ) -> None:
        super().__init__(store, rank=rank, world_size=world_size, timeout_s=timeout_s)
        self._source = source
        self._timeout_s = timeout_s
        self._received = NewestWeights()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="weights", daemon=True)
        self._thread.start()

    def newest(self, policy_id: str, *, newer_than: Version | None = None, timeout_s: float = 0.0) -> Weights | None:
        """Return the newest weights of a policy; see `WeightReader`."""
        return self._received.newest(policy_id, newer_than=newer_than, timeout_s=timeout_s)

    def close(self) -> None:
        """Receive no more, and end the thread; may be called again."""
        if not self._is_closed:
            self._is_closed = True
            self.store.set(f"{self.rank}/left", "")
            self._thread.join(self._timeout_s + _LOOK_S)
            if self._thread.is_alive():  # gloo's own deadline has passed, and it still receives
                logger.warning("the thread that receives weights has not ended after %g s", self._timeout_s)
            self.group = None  # its sockets are closed with it

    def _run(self) -> None:
        number = 0
        try:
            while not self._is_closed:
                if not self._wait_for(f"{self.rank}/{number}"):
                    continue
                head = self.store.get(f"{self.rank}/{number}")
                if head == _END.encode():
                    return
                self._received.put(self._receive(head))
                number += 1
        except (RuntimeError, ValueError) as error:
            self._received.fail(error)

    def _wait_for(self, key: str) -> bool:
        try:
            self.store.wait([key], timedelta(seconds=_LOOK_S))
        except RuntimeError as error:
            if "timeout" in str(error).lower():
                return False
            raise
        return True

    def _receive(self, head: bytes) -> Weights:
        described = json.loads(head)
        body = torch.empty(int(described["nbytes"]), dtype=torch.uint8)
        self.group.recv([body], self._source, _TAG).wait()
        return _unpack(described, body)


def _pack(weights: Weights) -> tuple[str, torch.Tensor]:
    """Return a description of weights as JSON, and all their numbers as bytes."""
    arrays = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in weights.state.items()}
    body = np.concatenate([each.reshape(-1).view(np.uint8) for each in arrays.values()] or [np.zeros(0, np.uint8)])
    described = {
        "policy_id": weights.policy_id,
        "version": list(weights.version),
        "tensors": [[name, each.dtype.str, list(each.shape)] for name, each in arrays.items()],
        "nbytes": len(body),
    }
    return json.dumps(described), torch.from_numpy(body)


def _unpack(described: Mapping[str, Any], body: torch.Tensor) -> Weights:  # Any: of JSON
    """Return the weights of a description, in memory of their own."""
    state, start, numbers = {}, 0, body.numpy()
    for name, dtype, shape in described["tensors"]:
        end = start + int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        state[name] = torch.from_numpy(numbers[start:end].view(dtype).reshape(shape).copy())
        start = end
    version = Version(*described["version"])
    return Weights(str(described["policy_id"]), version, state)
