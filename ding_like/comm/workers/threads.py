"""Run workers in threads of this process: for small runs, for tests, and where a cluster would cost more than it gives.

Workers share Python's interpreter, so that they gain where they wait (for env processes, for a device) or compute
outside of it. What a call is given and what it returns is not copied: whoever hands something over does not change it
afterwards.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
import torch

from ding_like.comm.workers.host import Call, Resources, WorkerHandle, WorkerLostError
from ding_like.errors import CommError

logger = logging.getLogger(__name__)

# What a line of calls is given: a call to be done, or None: end.
_Work: TypeAlias = "tuple[ThreadCall, str, tuple[Any, ...], dict[str, Any]] | None"  # Any: arguments of any method


class ThreadCall:
    """Implement Call; the first outcome counts."""

    def __init__(self, worker: ThreadWorker, changed: threading.Condition) -> None:
        self._worker = worker
        self._changed = changed
        self._value: Any = None  # Any: whatever the method returns
        self._error: BaseException | None = None
        self._where: TracebackType | None = None  # of the error
        self._is_done = False
        self._callbacks: list[Callable[[], None]] = []

    @property
    def worker(self) -> WorkerHandle:
        """Return the worker that was called."""
        return self._worker

    @property
    def is_done(self) -> bool:
        """Tell whether there is an outcome."""
        return self._is_done

    def result(self) -> Any:
        """Return what the method returned, at once; see `Call`."""
        with self._changed:
            if not self._is_done:
                raise CommError(f"a call of worker {self._worker.name!r} is under way: wait for it first.")
        if self._error is not None:
            raise self._error.with_traceback(self._where)  # each `raise` adds to it: as it was when it came
        return self._value

    def on_done(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the call is done; see `Call`."""
        with self._changed:
            if not self._is_done:
                self._callbacks.append(callback)
                return
        callback()

    def settle(self, value: Any = None, error: BaseException | None = None) -> None:
        """Set the outcome, unless there is one."""
        with self._changed:
            if self._is_done:
                return
            self._value, self._error, self._is_done = value, error, True
            self._where = None if error is None else error.__traceback__
            callbacks, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        for callback in callbacks:
            callback()


class ThreadWorker:
    """Implement WorkerHandle: one thread makes the object and does its calls, another does its control calls."""

    def __init__(self, make: Callable[[], object], name: str, changed: threading.Condition) -> None:
        self._name = name
        self._changed = changed
        self._guard = threading.Lock()
        self._open: set[ThreadCall] = set()
        self._failure: BaseException | None = None  # why every further call fails
        self._is_made = threading.Event()
        self._object: object = None
        self._ended = ThreadCall(self, changed)
        self._calls: SimpleQueue[_Work] = SimpleQueue()
        self._controls: SimpleQueue[_Work] = SimpleQueue()
        # Daemons, so that a method that never returns does not keep the process from ending.
        self._threads = (
            threading.Thread(target=self._work, args=(make,), name=name, daemon=True),
            threading.Thread(target=self._obey, name=f"{name}-control", daemon=True),
        )
        for thread in self._threads:
            thread.start()

    @property
    def name(self) -> str:
        """Return the worker's name."""
        return self._name

    @property
    def ended(self) -> ThreadCall:
        """Return a call that is done when the worker has ended."""
        return self._ended

    def call(self, method: str, *args: Any, **kwargs: Any) -> ThreadCall:
        """Begin to call a method; see `WorkerHandle`."""
        return self._begin(self._calls, method, args, kwargs)

    def control(self, method: str, *args: Any, **kwargs: Any) -> ThreadCall:
        """Begin to call a method beside the worker's calls; see `WorkerHandle`."""
        return self._begin(self._controls, method, args, kwargs)

    def end(self, why: str) -> None:
        """Have all calls under way, and all that follow, be lost; its threads end when their methods return."""
        self._fail(WorkerLostError(f"worker {self._name!r} was lost: {why}"))
        self._calls.put(None)
        self._controls.put(None)
        self._is_made.set()

    def join(self, deadline: float) -> bool:
        """Wait for the threads until `deadline`, of time.monotonic(); return whether they have ended."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(deadline - time.monotonic(), 0.0))
        return not any(thread.is_alive() for thread in self._threads)

    def _begin(self, queue: SimpleQueue[_Work], method: str, args: Any, kwargs: Any) -> ThreadCall:
        call = ThreadCall(self, self._changed)
        with self._guard:
            failure = self._failure
            if failure is None:
                self._open.add(call)
                queue.put((call, method, args, kwargs))
        if failure is not None:
            call.settle(error=failure)
        return call

    def _fail(self, failure: BaseException) -> None:
        """Have all calls under way and all that follow fail, and the worker be ended; the first failure counts."""
        with self._guard:
            if self._failure is None:
                self._failure = failure
            failed, self._open = self._open, set()
        for call in failed:
            call.settle(error=failure)
        if isinstance(failure, WorkerLostError):
            self._ended.settle(error=failure)
            return
        lost = WorkerLostError(f"worker {self._name!r} could not be made: {type(failure).__name__}: {failure}")
        lost.__cause__ = failure
        self._ended.settle(error=lost)

    def _work(self, make: Callable[[], object]) -> None:
        try:
            self._object = make()
        except BaseException as error:  # also SystemExit: it ends a worker, not its host
            self._fail(error)
        finally:
            self._is_made.set()
            del make
        if self._failure is None:
            self._do_all(self._calls)
        self._object = None

    def _obey(self) -> None:
        self._is_made.wait()  # without a deadline: `end` sets it too
        if self._failure is None:
            self._do_all(self._controls)

    def _do_all(self, queue: SimpleQueue[_Work]) -> None:
        """Do calls in order until there is a None, which `end` puts; then this thread ends."""
        while (work := queue.get()) is not None and self._failure is None:
            call, method, args, kwargs = work
            value, error = None, None
            try:
                given = [_resolved(each) for each in args]
                value = getattr(self._object, method)(*given, **{key: _resolved(each) for key, each in kwargs.items()})
            except BaseException as raised:  # what a method raises is its call's outcome
                error = raised
            with self._guard:
                self._open.discard(call)
            call.settle(value, error)
            del work, call, args, kwargs, value, error  # what a call was given is freed while this thread waits


class ThreadHost:
    """Implement Host with threads of this process.

    A thread cannot be stopped from outside: a worker that is killed is lost for its callers at once, and its threads
    end when their methods return.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()  # of the calls of all workers
        self._guard = threading.Lock()
        self._names: set[str] = set()
        self._workers: dict[WorkerHandle, ThreadWorker] = {}  # those whose threads may still run
        self._is_closed = False

    def start(self, make: Callable[[], object], *, name: str, resources: Resources) -> ThreadWorker:
        """Start a worker; see `Host`. Threads are given no resources of their own."""
        with self._guard:
            if self._is_closed:
                raise CommError(f"worker {name!r} is started after its host was closed.")
            if name in self._names:
                raise CommError(f"a worker named {name!r} was started before: names are used once.")
            self._names.add(name)
            for ended in [each for each in self._workers.values() if each.join(0.0)]:
                del self._workers[ended]
            worker = ThreadWorker(make, name, self._changed)
            self._workers[worker] = worker
        return worker

    def wait(self, calls: Sequence[Call], *, timeout_s: float) -> list[Call]:
        """Return the calls that are done; see `Host`."""
        own = [call for call in calls if isinstance(call, ThreadCall)]
        if len(own) < len(calls):
            raise CommError("calls of another host's workers are waited for: wait for them with that host.")
        with self._changed:
            if own:
                self._changed.wait_for(lambda: any(call.is_done for call in own), max(timeout_s, 0.0))
            return [call for call in own if call.is_done]

    def share(self, value: Any) -> Shared:
        """Return what stands for a copy of a value, whose arrays are read-only; see `Host`."""
        return Shared(_copied(value))

    def kill(self, worker: WorkerHandle) -> None:
        """Have a worker be lost; see `Host`."""
        own = self._workers.get(worker)
        if own is None:
            return
        own.end("it was killed.")
        if own.join(0.0):
            with self._guard:
                self._workers.pop(worker, None)

    def where(self, worker: WorkerHandle) -> str:
        """Return '': threads run on this machine."""
        return ""

    def close(self, *, timeout_s: float = 10.0) -> None:
        """End all workers and wait for their threads; see `Host`.

        A thread whose method does not return within `timeout_s` is named in a warning and left: it ends with its
        method, or with the process.
        """
        deadline = time.monotonic() + timeout_s
        with self._guard:
            self._is_closed = True
            workers = list(self._workers.values())
        for worker in workers:
            worker.end("its host was closed.")
        left = [worker for worker in workers if not worker.join(deadline)]
        with self._guard:
            self._workers = {worker: worker for worker in left}
        if left:
            names = ", ".join(worker.name for worker in left)
            logger.warning("workers that do not return %g s after their host was closed: %s", timeout_s, names)


class Shared:
    """Stand for a value that several calls are given."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _resolved(argument: Any) -> Any:
    return argument.value if isinstance(argument, Shared) else argument


def _copied(value: Any) -> Any:
    """Return a copy of arrays and tensors in nested containers; arrays are read-only, as they are where Ray runs."""
    if isinstance(value, np.ndarray):
        copied = value.copy()
        copied.flags.writeable = False
        return copied
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, tuple):
        items = [_copied(each) for each in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return [_copied(each) for each in value] if isinstance(value, list) else value
