"""Send bytes by gloo from one process to another, so that each notices at once when the other ends.

In the middle of a transfer gloo does not report that the other process has ended, so a wait would last until its
deadline; a pending receive does report it, within 0.1 s. So one more byte follows the vector, and the receiver answers
with another. A wait that misses its deadline closes the connection for good.
"""

from __future__ import annotations

import re
from datetime import timedelta
from time import monotonic
from typing import Any, Protocol

import torch
import torch.distributed as dist

# Tags, which keep these messages apart from other traffic of the default group.
_BYTES, _END, _TAKEN = 0x7701, 0x7702, 0x7703


class Wire(Protocol):
    """Reach one other rank; both calls return at once."""

    def send(self, tensor: torch.Tensor, tag: int) -> Any: ...  # Any: torch's Work has no public annotations

    def receive(self, tensor: torch.Tensor, tag: int) -> Any: ...


class DefaultGroupWire:
    """Reach a rank of the process's default group."""

    def __init__(self, other: int) -> None:
        self._other = other

    def send(self, tensor: torch.Tensor, tag: int) -> Any:  # Any: as above
        """Begin to send."""
        return dist.isend(tensor, self._other, tag=tag)

    def receive(self, tensor: torch.Tensor, tag: int) -> Any:
        """Begin to receive."""
        return dist.irecv(tensor, self._other, tag=tag)


class GlooWire:
    """Reach a rank of a ProcessGroupGloo other than the default group."""

    # Any: torch's annotations of the group lack send and recv.
    def __init__(self, group: Any, other: int) -> None:
        self._group = group
        self._other = other

    def send(self, tensor: torch.Tensor, tag: int) -> Any:
        """Begin to send."""
        return self._group.send([tensor], self._other, tag)

    def receive(self, tensor: torch.Tensor, tag: int) -> Any:
        """Begin to receive."""
        return self._group.recv([tensor], self._other, tag)

    def close(self) -> None:
        """Release the group, which closes its sockets."""
        self._group = None


def send_bytes(wire: Wire, body: torch.Tensor, *, timeout_s: float) -> None:
    """Send a vector of bytes and wait until the other rank has it. Raises RuntimeError if that is lost or late."""
    deadline = monotonic() + timeout_s
    end, taken = torch.zeros(1, dtype=torch.uint8), torch.zeros(1, dtype=torch.uint8)
    answer = wire.receive(taken, _TAKEN)
    for work in (answer, wire.send(body, _BYTES), wire.send(end, _END)):
        _wait(work, deadline)


def receive_bytes(wire: Wire, body: torch.Tensor, *, timeout_s: float) -> None:
    """Receive a vector of bytes into `body`. Raises RuntimeError if the other rank is lost or late."""
    deadline = monotonic() + timeout_s
    end = torch.zeros(1, dtype=torch.uint8)
    coming = wire.receive(body, _BYTES)
    for work in (wire.receive(end, _END), coming):
        _wait(work, deadline)
    _wait(wire.send(end, _TAKEN), deadline)


def gloo_reason(error: Exception) -> str:
    """Return the reason in an error of gloo, without the place in its source and its advice."""
    said = re.sub(r"^\[\S+\] ", "", (str(error).splitlines() or [type(error).__name__])[0])
    return said.partition(". This is")[0].rstrip(".") + "."


def seconds_left(deadline: float) -> float:
    """Return the seconds until a deadline of `time.monotonic`, at least 0.001: torch takes 0 for no limit."""
    return max(deadline - monotonic(), 0.001)


def _wait(work: Any, deadline: float) -> None:  # Any: as above
    work.wait(timedelta(seconds=seconds_left(deadline)))
