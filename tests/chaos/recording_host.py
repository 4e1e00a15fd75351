"""A host around another one that notes when workers end and are first given work, and what they hand over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from ding_like.comm.workers.host import Call, Host, Resources, WorkerHandle

# Calls that every worker is given before it is given work.
_NO_WORK = ("ready", "stop", "set_weights")


class RecordedCall:
    def __init__(self, worker: RecordedWorker, inner: Call, note: Callable[[Any], None] | None = None) -> None:
        self.worker: Any = worker
        self.inner = inner
        self._note = note
        self._lock = threading.Lock()

    def result(self) -> Any:
        value = self.inner.result()
        with self._lock:
            note, self._note = self._note, None
        if note is not None:  # the first time only
            note(value)
        return value

    def on_done(self, callback: Callable[[], None]) -> None:
        self.inner.on_done(callback)


class RecordedWorker:
    def __init__(self, host: RecordingHost, inner: WorkerHandle) -> None:
        self.inner: Any = inner
        self._host = host
        self._ended = RecordedCall(self, inner.ended)

    @property
    def name(self) -> str:
        return self.inner.name  # type: ignore[no-any-return]

    @property
    def ended(self) -> RecordedCall:
        return self._ended

    @property
    def pid(self) -> int | None:
        """Return the worker's process, None where it has none of its own."""
        process = getattr(self.inner, "process", None)
        return None if process is None else process.pid  # type: ignore[no-any-return]

    def call(self, method: str, *args: Any, **kwargs: Any) -> RecordedCall:
        if method not in _NO_WORK:
            self._host.works_s.setdefault(self.name, time.monotonic())
        note = self._host.note_of(method)
        return RecordedCall(self, self.inner.call(method, *args, **kwargs), note)

    def control(self, method: str, *args: Any, **kwargs: Any) -> RecordedCall:
        return RecordedCall(self, self.inner.control(method, *args, **kwargs))


class RecordingHost:
    """Do what `inner` does. `notes` are called with what calls of these methods return, once each, where it is taken.

    `works_s` and `ended_s` hold when a worker was first given work and when its end was known, by name.
    """

    def __init__(self, inner: Host, notes: dict[str, Callable[[Any], None]]) -> None:
        self._inner = inner
        self._notes = notes
        self.workers: dict[str, RecordedWorker] = {}
        self.works_s: dict[str, float] = {}
        self.ended_s: dict[str, float] = {}
        self._ends: SimpleQueue[tuple[str, float]] = SimpleQueue()

    def note_of(self, method: str) -> Callable[[Any], None] | None:
        return self._notes.get(method)

    def start(self, make: Callable[[], object], *, name: str, resources: Resources) -> RecordedWorker:
        worker = RecordedWorker(self, self._inner.start(make, name=name, resources=resources))
        self.workers[name] = worker
        worker.inner.ended.on_done(lambda: self._ends.put((name, time.monotonic())))
        return worker

    def wait(self, calls: Sequence[Call], *, timeout_s: float) -> list[Call]:
        given: list[Any] = list(calls)
        done = {id(call) for call in self._inner.wait([call.inner for call in given], timeout_s=timeout_s)}
        return [call for call in given if id(call.inner) in done]

    def share(self, value: Any) -> Any:
        return self._inner.share(value)

    def kill(self, worker: WorkerHandle) -> None:
        given: Any = worker
        self._inner.kill(given.inner)

    def lose(self, why: str) -> None:
        given: Any = self._inner
        given.lose(why)

    def where(self, worker: WorkerHandle) -> str:
        given: Any = worker
        return self._inner.where(given.inner)

    def close(self, *, timeout_s: float = 10.0) -> None:
        self._inner.close(timeout_s=timeout_s)

    def at_work(self, kind: str) -> list[RecordedWorker]:
        """Return the workers of a kind that were given work and have not ended."""
        while not self._ends.empty():
            name, at_s = self._ends.get()
            self.ended_s.setdefault(name, at_s)
        workers = dict(self.workers)
        return [
            worker
            for name, worker in workers.items()
            if name.startswith(kind) and name in self.works_s and name not in self.ended_s
        ]
