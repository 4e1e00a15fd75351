"""Send numbers by gloo from one process to another, so that each notices at once when the other ends.

Who is half way through a transfer does not hear from gloo that the other has ended, and would wait for its deadline;
who waits for something more to come does, within 0.1 s. So a byte follows the numbers, and the receiver answers with
another. A wait that is over its deadline closes the connection of the two for good.
"""

from __future__ import annotations

import re
from datetime import timedelta
from time import monotonic
from typing import Any, Protocol

import torch
import torch.distributed as dist

# Of what is sent; in the default group it goes beside other traffic.
_NUMBERS, _END, _TAKEN = 0x7701, 0x7702, 0x7703


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
    """Reach a rank of a ProcessGroupGloo, which stands apart from the default group."""

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
        """Let go of the group; its sockets are closed with it."""
        self._group = None


def send_numbers(wire: Wire, body: torch.Tensor, *, timeout_s: float) -> None:
    """Send a vector of bytes and wait until the other has it. Raises RuntimeError if it is lost, or late."""
    deadline = monotonic() + timeout_s
    end, taken = torch.zeros(1, dtype=torch.uint8), torch.zeros(1, dtype=torch.uint8)
    answer = wire.receive(taken, _TAKEN)
    for work in (answer, wire.send(body, _NUMBERS), wire.send(end, _END)):
        work.wait(_left(deadline))


def receive_numbers(wire: Wire, body: torch.Tensor, *, timeout_s: float) -> None:
    """Receive as many bytes as `body` has into it. Raises RuntimeError if the other is lost, or late."""
    deadline = monotonic() + timeout_s
    end = torch.zeros(1, dtype=torch.uint8)
    coming = wire.receive(body, _NUMBERS)
    for work in (wire.receive(end, _END), coming):
        work.wait(_left(deadline))
    wire.send(end, _TAKEN).wait(_left(deadline))


def what_gloo_says(error: Exception) -> str:
    """Return what went wrong, without the place in gloo's source, and its advice."""
    said = re.sub(r"^\[\S+\] ", "", (str(error).splitlines() or [type(error).__name__])[0])
    return said.partition(". This is")[0].rstrip(".") + "."


def _left(deadline: float) -> timedelta:
    """Return the time that is left, a last millisecond at least: torch takes 0 for no limit."""
    return timedelta(seconds=max(deadline - monotonic(), 0.001))
