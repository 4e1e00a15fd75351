"""Join the learners of one machine: average gradients, hand out shares of a batch, through torch.distributed (gloo)."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from ding_like.errors import CommError
from ding_like.types import Array

_LOOPBACK = ("lo", "lo0")


def use_loopback() -> None:
    """Have gloo use the loopback interface, if there is one: it would look the host's name up, which may be unknown."""
    names = [name for _, name in socket.if_nameindex() if name in _LOOPBACK]
    if names:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", names[0])


class LearnerGroup:
    """Be one of `world_size` learners that find each other by the file `store`, over the loopback interface.

    A process can be in one group at a time. Every call is collective: all learners make it, in the same order. Raises
    CommError if another learner does not answer within `timeout_s`.
    """

    def __init__(self, store: str | os.PathLike[str], *, rank: int, world_size: int, timeout_s: float = 60.0) -> None:
        self.rank = rank
        self.world_size = world_size
        use_loopback()
        self._timeout_s = timeout_s
        self._is_open = False
        self._call(
            dist.init_process_group,
            "gloo",
            store=FileStore(str(store), world_size),
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=timeout_s),
        )
        self._is_open = True

    def average(self, vectors: Iterable[torch.Tensor], *, weight: float) -> None:
        """Put the mean over all learners in the place of each vector; this one counts `weight`, all together 1."""
        for vector in vectors:
            vector.mul_(weight)
            self._call(dist.all_reduce, vector)

    def scatter(self, shares: Sequence[bytes] | None) -> bytes | None:
        """Hand out bytes of equal length, one share for each learner; `shares` is the first learner's.

        None from it tells all others that there is nothing more, and they get None.
        """
        size = torch.tensor([-1 if shares is None else len(shares[0])], dtype=torch.int64)
        self._call(dist.broadcast, size, 0)
        if int(size) < 0:
            return None
        own = torch.empty(int(size), dtype=torch.uint8)
        parts = None
        if shares is not None:
            parts = [torch.frombuffer(bytearray(share), dtype=torch.uint8) for share in shares]
        self._call(dist.scatter, own, parts, 0)
        return own.numpy().tobytes()

    def gather(self, values: Array) -> Array | None:
        """Return the values [B] of all learners, one after another, to the first; None to the others."""
        own = torch.from_numpy(np.ascontiguousarray(values, np.float32))
        parts = [torch.empty_like(own) for _ in range(self.world_size)] if self.rank == 0 else None
        self._call(dist.gather, own, parts, 0)
        return None if parts is None else torch.cat(parts).numpy()

    def close(self) -> None:
        """Leave the group; may be called again."""
        if self._is_open:
            self._is_open = False
            dist.destroy_process_group()

    def _call(self, collective: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        try:
            collective(*args, **kwargs)
        except RuntimeError as error:
            raise CommError(
                f"learner {self.rank} of {self.world_size} has lost the others, or waited {self._timeout_s:g} s for "
                f"them: {str(error).splitlines()[0]}"
            ) from error


class GlooReducer:
    """Average the gradients of a policy over the learners of a group, between `grad` and `apply`.

    `weight` says what this learner's gradient counts: its share of the minibatch.
    """

    def __init__(self, group: LearnerGroup, vectors: Sequence[torch.Tensor], *, weight: Callable[[], float]) -> None:
        self._group = group
        self._vectors = vectors
        self._weight = weight

    def reduce(self) -> None:
        self._group.average(self._vectors, weight=self._weight())
