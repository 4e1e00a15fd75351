"""Run workers as actors of a Ray cluster that this process is connected to.

A worker is a process: it may be on another machine, and may die alone. It dies with this process too, as Ray ends the
actors of a driver that is gone. What a worker prints or logs goes to the files `worker-*.out` and `worker-*.err` in the
folder `logs` of Ray's session, on the machine that the worker runs on, and to nobody's console unless the cluster was
connected to with `log_to_driver=True`.
"""

from __future__ import annotations

import logging
import platform
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ding_like.comm.ray.library import load_ray
from ding_like.comm.ray.shell import Process, Raised, Shell
from ding_like.comm.workers.host import Call, Resources, WorkerHandle, WorkerLostError
from ding_like.comm.workers.raised import WorkerTracebackError
from ding_like.errors import CommError
from ding_like.utils.processes import wait_for_end

logger = logging.getLogger(__name__)

_LONGEST = 300  # characters of what Ray says
_KILL_S = 1.0  # for Ray to hear that a worker is to end
_BEGIN_S = 5.0  # for a worker's process to be there, before Ray is told to end it
_FETCH_S = 60.0  # for a value that is there, and known to be
_SLICE_S = 0.5  # of a wait: a lost cluster ends no call, so that it is looked at


class RayCall:
    """Implement Call; threads may share it."""

    def __init__(self, worker: RayWorker, ref: Any, error: Exception | None = None) -> None:  # Any: ray.ObjectRef
        self._worker = worker
        self._guard = threading.Lock()
        self._ref = ref  # None once there is an outcome: the value's bytes are then its own
        self._value: Any = None  # Any: whatever the method returns
        self._error: BaseException | None = error

    @property
    def worker(self) -> RayWorker:
        """Return the worker that was called."""
        return self._worker

    @property
    def ref(self) -> Any:
        """Return Ray's reference to what is under way, None once it is settled."""
        return self._ref

    def result(self) -> Any:
        """Return what the method returned, at once; see `Call`."""
        with self._guard:
            if self._ref is not None:
                self._settle()
        if self._error is not None:
            raise self._error.with_traceback(None)  # where it was raised is in its cause; by calls it would grow
        return self._value

    def on_done(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the call is done; see `Call`."""
        ref = self._ref
        if ref is None:
            callback()
        else:
            ref.future().add_done_callback(lambda _: callback())

    def _settle(self) -> None:
        ray = load_ray()
        value: Any = None
        try:
            if ray.wait([self._ref], timeout=0)[0]:
                value = ray.get(self._ref, timeout=_FETCH_S)
            elif self._worker.lost is None:
                raise CommError(f"a call of worker {self._worker.name!r} is under way: wait for it first.")
            else:
                self._error = self._worker.lost
        except ray.exceptions.RayError as error:
            self._error = self._worker.translate(error)
        if isinstance(value, Raised):
            self._error = self._raised(value)
        else:
            self._value = value
        self._ref = None

    def _raised(self, raised: Raised) -> BaseException:
        """Return what the method raised, with the worker's traceback as its cause."""
        raised.error.__cause__ = WorkerTracebackError(f"in worker {self._worker.name!r}:\n{raised.where}")
        return raised.error


class EndedCall(RayCall):
    """Be the call that is done when the worker has ended."""

    def _raised(self, raised: Raised) -> BaseException:
        error = super()._raised(raised)
        lost = WorkerLostError(f"worker {self._worker.name!r} could not be made: {type(error).__name__}: {error}")
        lost.__cause__ = error
        return lost


class RayWorker:
    """Implement WorkerHandle: a process with one thread that makes the object and does its calls, and one for control.

    `lost` says why all its calls are lost, once that is known.
    """

    def __init__(self, actor: Any, name: str) -> None:  # Any: ray's handle of a Shell
        self.actor = actor
        self.lost: WorkerLostError | None = None
        self._name = name
        # Before all other control calls, so that it is answered while the object is made.
        self._described = RayCall(self, actor.describe.remote())
        self._ended = EndedCall(self, actor.watch.remote())

    @property
    def name(self) -> str:
        """Return the worker's name."""
        return self._name

    @property
    def ended(self) -> EndedCall:
        """Return a call that is done when the worker has ended."""
        return self._ended

    @property
    def process(self) -> Process | None:
        """Return the worker's process and machine, None while it has none."""
        try:
            found: Process = self._described.result()
        except CommError:
            return None
        return found

    @property
    def starting(self) -> Any:
        """Return what Ray settles when the worker's process has begun, None where it has, or never will."""
        return self._described.ref

    def call(self, method: str, *args: Any, **kwargs: Any) -> RayCall:
        """Begin to call a method; see `WorkerHandle`."""
        return self._begin(self.actor.call, method, args, kwargs)

    def control(self, method: str, *args: Any, **kwargs: Any) -> RayCall:
        """Begin to call a method beside the worker's calls; see `WorkerHandle`."""
        return self._begin(self.actor.control, method, args, kwargs)

    def translate(self, error: Exception) -> Exception:
        """Return what an exception of Ray's says of this worker, in a few words."""
        exceptions = load_ray().exceptions
        if isinstance(error, exceptions.RayTaskError):
            # Raised before the method was reached: an argument that cannot be read, or was lost.
            cause = error.cause if isinstance(error.cause, Exception) else error
            return CommError(f"worker {self._name!r} could not read a call: {type(cause).__name__}: {_brief(cause)}")
        if isinstance(error, (exceptions.RayActorError, exceptions.WorkerCrashedError, exceptions.NodeDiedError)):
            return self.lost or WorkerLostError(f"worker {self._name!r}{_process(error)} was lost: {_brief(error)}")
        if isinstance(error, exceptions.ObjectLostError):
            return WorkerLostError(f"what worker {self._name!r} returned was lost: {_brief(error)}")
        return CommError(f"a call of worker {self._name!r} failed in Ray: {type(error).__name__}: {_brief(error)}")

    def _begin(self, method: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RayCall:
        ref = None
        if self.lost is None:
            try:
                ref = method.remote(name, *args, **kwargs)
            except load_ray().exceptions.RayError as error:
                return RayCall(self, None, self.translate(error))
        return RayCall(self, ref, self.lost)


class RayHost:
    """Implement Host with actors of the cluster that this process is connected to, by `ray.init`.

    `prepare` is called in each worker's process before its object is made, in the thread that does its calls. A worker
    that asks for what the cluster has not free waits for it, and its calls with it, without an error.
    """

    def __init__(self, *, prepare: Callable[[], None] | None = None) -> None:
        ray = self._ray = load_ray()
        self._prepare = prepare
        self._guard = threading.Lock()
        self._names: set[str] = set()
        self._workers: set[RayWorker] = set()
        self._is_closed = False
        self._lost: str | None = None
        self._kills: list[threading.Thread] = []  # of workers that had no process yet
        groups = {"work": 1, "control": 1, "watch": 1}
        of_group = {"make": "work", "call": "work", "describe": "control", "control": "control", "watch": "watch"}
        shell = type("Shell", (Shell,), {})
        for name, group in of_group.items():
            setattr(shell, name, ray.method(concurrency_group=group)(getattr(Shell, name)))
        # Never restarted by Ray: a call under way would hang for seconds, and the state would be gone all the same.
        settings = dict(max_restarts=0, max_task_retries=0, allow_out_of_order_execution=False)
        self._actor_class = ray.remote(concurrency_groups=groups, **settings)(shell)

    def start(self, make: Callable[[], object], *, name: str, resources: Resources) -> RayWorker:
        """Start a worker; see `Host`. `make` is sent by Ray's own means; raises CommError if it cannot be."""
        with self._guard:
            if self._is_closed:
                raise CommError(f"worker {name!r} is started after its host was closed.")
            if name in self._names:
                raise CommError(f"a worker named {name!r} was started before: names are used once.")
            self._names.add(name)
        self._check_connected()
        needs: dict[str, Any] = dict(num_cpus=resources.num_cpus, num_gpus=resources.num_gpus)
        needs.update(resources=dict(resources.custom), memory=resources.memory)
        worker = None
        try:
            worker = RayWorker(self._actor_class.options(**needs).remote(), name)
            # In a list, and by reference, so that the worker reads it within `make` and can say that it cannot.
            worker.actor.make.remote([self._ray.put((make, self._prepare))])
        except (self._ray.exceptions.RayError, TypeError, ValueError) as error:
            if worker is not None:
                self._end([worker], "it could not be sent.", _KILL_S)
            raise CommError(f"worker {name!r} cannot be started: {_brief(error)}") from error
        with self._guard:
            self._workers.add(worker)
        return worker

    def wait(self, calls: Sequence[Call], *, timeout_s: float) -> list[Call]:
        """Return the calls that are done, in the order given; see `Host`."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            left_s = max(deadline_s - time.monotonic(), 0.0)
            done = self._done(calls, timeout_s=min(left_s, _SLICE_S))
            if done or not calls or left_s <= _SLICE_S:
                return done

    def _done(self, calls: Sequence[Call], *, timeout_s: float) -> list[Call]:
        self._check_there()
        pending = {id(call): _pending(call) for call in calls}
        refs = list({ref: None for ref in pending.values() if ref is not None})
        if refs:
            self._check_connected()
            timeout = timeout_s if len(refs) == len(pending) else 0.0
            try:
                ready, others = self._ray.wait(refs, num_returns=1, timeout=timeout)
                if ready and others:
                    ready += self._ray.wait(others, num_returns=len(others), timeout=0)[0]
            except self._ray.exceptions.RayError as error:
                raise CommError(f"Ray cannot be asked any more: {_brief(error)}") from error
            done = set(ready)
        else:
            done = set()
        return [call for call in calls if pending[id(call)] is None or pending[id(call)] in done]

    def share(self, value: Any) -> Any:
        """Return Ray's reference to a value in its object store; see `Host`."""
        self._check_connected()
        try:
            return self._ray.put(value)
        except self._ray.exceptions.RayError as error:
            raise CommError(f"Ray's object store did not take a value: {_brief(error)}") from error

    def kill(self, worker: WorkerHandle) -> None:
        """End a worker's process; see `Host`."""
        if isinstance(worker, RayWorker):
            self._end([worker], "it was killed.", _KILL_S)

    def lose(self, why: str) -> None:
        """Have all workers be lost, since the cluster is: who waits for a call is told so in a moment."""
        with self._guard:
            self._lost = self._lost or why
            workers = list(self._workers)
        self._note_lost(workers, why)

    def where(self, worker: WorkerHandle) -> str:
        """Return the hostname of another machine; see `Host`."""
        process = worker.process if isinstance(worker, RayWorker) else None
        return "" if process is None or process.machine == platform.node() else process.machine

    def close(self, *, timeout_s: float = 10.0) -> None:
        """End all workers and wait until their processes are gone; the cluster stays connected; see `Host`."""
        with self._guard:
            self._is_closed = True
            workers = list(self._workers)
        if self._lost is not None:
            return
        deadline = time.monotonic() + timeout_s
        pids = [each.pid for worker in workers if (each := worker.process) and each.machine == platform.node()]
        refs = [ref for worker in workers if (ref := worker.ended.ref) is not None]
        self._end(workers, "its host was closed.", deadline - time.monotonic())
        for thread in self._kills:
            thread.join(max(deadline - time.monotonic(), 0.0))
        if refs and self._ray.is_initialized():
            left = self._ray.wait(refs, num_returns=len(refs), timeout=max(deadline - time.monotonic(), 0.0))[1]
            if left:
                logger.warning("%d workers have not ended %g s after their host was closed", len(left), timeout_s)
        # A worker has ended for Ray when it is told to; its process on this machine is gone a little later.
        for pid in pids:
            wait_for_end(pid, timeout_s=deadline - time.monotonic())

    def _end(self, workers: Sequence[RayWorker], why: str, timeout_s: float) -> None:
        """Have workers be lost, and tell Ray to end them, for at most `timeout_s`.

        A cluster whose head has died answers never, so that a thread of its own asks: this one has to save a run. A
        worker that has no process yet is ended a little later, when it has: Ray 2.60 now and then keeps the CPUs of
        one that is ended while its process is looked for, until the cluster ends.
        """
        starting = [worker for worker in workers if worker.process is None and worker.starting is not None]
        refs = [worker.starting for worker in starting]
        self._note_lost(workers, why)
        if self._lost is not None or not self._ray.is_initialized():
            return
        if starting:
            later = threading.Thread(target=self._kill, args=(starting, refs), name="kill later", daemon=True)
            self._kills = [thread for thread in self._kills if thread.is_alive()] + [later]
            later.start()
        begun = [worker for worker in workers if worker not in starting]
        if begun:
            asking = threading.Thread(target=self._kill, args=(begun, []), name="kill", daemon=True)
            asking.start()
            asking.join(max(timeout_s, 0.0))
            if asking.is_alive():
                logger.warning("Ray has not ended %d workers within %g s: its head may be gone", len(begun), timeout_s)

    def _kill(self, workers: Sequence[RayWorker], refs: Sequence[Any]) -> None:
        """Tell Ray to end workers, once what `refs` stand for is there, or `_BEGIN_S` later."""
        deadline_s, left = time.monotonic() + _BEGIN_S, list(refs)
        with suppress(self._ray.exceptions.RayError):
            while left and time.monotonic() < deadline_s and self._lost is None and self._ray.is_initialized():
                left = self._ray.wait(left, num_returns=len(left), timeout=_SLICE_S)[1]
        for worker in workers:
            with suppress(self._ray.exceptions.RayError):  # it has ended already, or the cluster is gone
                if self._ray.is_initialized():
                    self._ray.kill(worker.actor, no_restart=True)

    def _note_lost(self, workers: Sequence[RayWorker], why: str) -> None:
        for worker in workers:
            if worker.lost is None:
                worker.lost = WorkerLostError(f"worker {worker.name!r} was lost: {why}")
        with self._guard:
            self._workers.difference_update(workers)

    def _check_there(self) -> None:
        if self._lost is not None:
            raise CommError(f"the Ray cluster is lost: {self._lost}")

    def _check_connected(self) -> None:
        self._check_there()
        if not self._ray.is_initialized():
            raise CommError("this process is not connected to a Ray cluster any more.")


def _pending(call: Call) -> Any:  # Any: ray.ObjectRef
    """Return the reference to wait for, None for a call that is done."""
    if not isinstance(call, RayCall):
        raise CommError("calls of another host's workers are waited for: wait for them with that host.")
    return call.ref if call.worker.lost is None else None


def _process(error: Exception) -> str:
    """Return which process an exception of Ray's is about, "" if it does not say."""
    told = re.search(r"pid: (\d+)(?:\s+namespace: \S+)?\s+ip: (\S+)", str(error))
    return f" (process {told[1]} at {told[2]})" if told else ""


def _brief(error: Exception) -> str:
    """Return what an exception of Ray's says has happened, out of a page that lists what may have."""
    lines = str(error).split("\n")
    if "raised in its creation task" in lines[0]:
        return f"its process could not begin: {lines[-1].strip()}"[:_LONGEST]
    text = " ".join(" ".join(lines).split())
    exit_told = re.search(r"Worker exit type: (\w+) Worker exit detail: (.*?)(?= Some common causes|$)", text)
    if exit_told:
        return f"its process has died ({exit_told[1]}: {exit_told[2]})."
    unsent = re.search(r"serialization: (?:\x1b\S+)?(.*?)(?= Inspecting| Detected|$)", text)
    if unsent:
        return unsent[1]
    reason = re.search(r"The actor (?:is dead|died) because (.*?)(?:\. |$)", text)
    return (f"{reason[1]}." if reason else text)[:_LONGEST]
