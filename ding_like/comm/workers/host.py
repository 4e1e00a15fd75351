"""Define where workers run, for every host: threads of this process (`threads.py`) or Ray's actors (`comm/ray/`).

A worker is a plain object. It does one work call after another, and answers control calls meanwhile. Nothing here
knows what a worker does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ding_like.errors import CommError


class WorkerLostError(CommError):
    """Report a worker that died or does not answer: who it was, and how that is known."""


@dataclass(frozen=True)
class Resources:
    """Say what a worker is given: `num_cpus` and `num_gpus` may be fractions, `memory` is in bytes (None: no limit)."""

    num_cpus: float = 1.0
    num_gpus: float = 0.0
    memory: int | None = None
    custom: Mapping[str, float] = field(default_factory=dict)  # of a cluster's own kinds, by name


class Call(Protocol):
    """Be one call of a worker's method, under way or done."""

    @property
    def worker(self) -> WorkerHandle: ...

    def result(self) -> Any:  # Any: whatever the method returns
        """Return what the method returned, at once: a host's `wait` says which calls are done.

        Raises what the method raised, WorkerLostError if the worker was lost before it returned, and CommError while
        the call is under way.
        """

    def on_done(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the call is done; at once if it is, else in a thread of the host's.

        It takes no lock, and does not call workers: it puts something into a `queue.SimpleQueue`, say.
        """


class WorkerHandle(Protocol):
    """Be a worker as others see it; threads may share it."""

    @property
    def name(self) -> str:
        """Return the name that it was started with, which no other worker of the host has had."""

    @property
    def ended(self) -> Call:
        """Return a call that is done when the worker has ended, however it did: its result raises WorkerLostError."""

    def call(self, method: str, *args: Any, **kwargs: Any) -> Call:
        """Begin to call a method; calls are done one after another. Never raises for a worker that is lost."""

    def control(self, method: str, *args: Any, **kwargs: Any) -> Call:
        """Begin to call a method that is done beside the worker's calls, in a thread of its own, in order."""


class Host(Protocol):
    """Start workers and wait for their calls; threads may share it."""

    def start(self, make: Callable[[], object], *, name: str, resources: Resources) -> WorkerHandle:
        """Start a worker, the object that `make` returns where it runs; return at once.

        What `make` raises is raised by all of the worker's calls, and it has ended. Calls are done in the thread that
        `make` was called in. Raises CommError for a name that was used before.
        """

    def wait(self, calls: Sequence[Call], *, timeout_s: float) -> list[Call]:
        """Return the calls that are done, in the order given; wait for the first one for at most `timeout_s`.

        A call of a lost worker is done. Raises CommError if the host itself is lost.
        """

    def share(self, value: Any) -> Any:
        """Return what stands for a value (of arrays, read-only where it arrives) in the arguments of many calls.

        It is an argument itself, no part of one. The value's bytes are stored once; they are freed when what was
        returned is.
        """

    def kill(self, worker: WorkerHandle) -> None:
        """End a worker now, whatever it does; its calls under way are done, and lost. May be called again."""

    def where(self, worker: WorkerHandle) -> str:
        """Return the machine that a worker runs on, '' for this one or while it is not known."""

    def close(self, *, timeout_s: float = 10.0) -> None:
        """End all workers, and what the host has opened; may be called again."""
