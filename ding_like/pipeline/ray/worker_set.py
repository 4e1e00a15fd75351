"""Bases of a scheme: workers, sets of them (of which failed ones are left out), and threads that work ahead."""

from __future__ import annotations

import logging
import math
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import torch

from ding_like import __version__
from ding_like.comm.ray.actors import (
    Raised,
    WorkerDiedError,
    check_cluster,
    kill_actors,
    start_actor,
    value_of,
    wait_first,
)
from ding_like.comm.ray.cluster import Need, RayCluster, open_cluster, options_of, resources_of
from ding_like.comm.workers.failures import (
    FailureLog,
    FailurePolicy,
    FailureRow,
    RestartBudget,
    describe_spent,
    place_raised,
)
from ding_like.errors import CommError, ConfigError, SchemaError, TrainingError
from ding_like.pipeline.process import prepare_worker
from ding_like.report.details import ProcessReport
from ding_like.types import Config, Factory, Info

logger = logging.getLogger(__name__)

T = TypeVar("T")  # results of a thread

LOOK_S = 1.0  # between two looks at whether a thread is to end, or has
_LEAVE_S = 5.0  # for calls under way when a run is to end
EXECUTIONS = ("Central", "Parallel", "Parallelised")
COMMUNICATIONS = ("synchronous", "asynchronous")


def check_word(name: str, word: str, allowed: Sequence[str]) -> None:
    """Raise ConfigError for a word that is not allowed."""
    if word not in allowed:
        raise ConfigError(f"{name} is {word!r}; expected {' or '.join(map(repr, allowed))}.")


def check_fraction(col_fraction_workers: float) -> None:
    """Raise ConfigError for what is no fraction of workers."""
    if not 0 < col_fraction_workers <= 1:
        raise ConfigError(f"col_fraction_workers is {col_fraction_workers}; expected more than 0, at most 1.")


class Worker:
    """Worker of a scheme: a plain object, in this process or in a Ray actor.

    Methods that change an attribute return whether there is one; a missing one is logged.
    """

    def __init__(self, index_worker: int) -> None:
        self.index_worker = index_worker

    def ready(self) -> Info:
        """Return where the worker runs, once it can work; a subclass may add to it."""
        return {"pid": os.getpid(), "node": socket.gethostname(), "version": __version__}

    def update_algorithm_parameter(self, parameter_name: str, new_parameter_value: object) -> bool:
        """Set an existing attribute of `algo`, in all workers that this one has; "lr" sets the optimizers too."""
        return self._update("algorithm", parameter_name, new_parameter_value)

    def update_storage_parameter(self, parameter_name: str, new_parameter_value: object) -> bool:
        """Set an existing attribute of `storage`, in all workers that this one has."""
        return self._update("storage", parameter_name, new_parameter_value)

    def replace_agent_component(self, component_name: str, new_component_factory: Factory) -> bool:
        """Replace an existing attribute by what `new_component_factory(device)` makes."""
        return self._set(self, component_name, lambda: new_component_factory(getattr(self, "device", None)))

    def stop(self) -> None:
        """Release what the worker holds; may be called again."""

    def _update(self, part: str, name: str, value: object) -> bool:
        owner = getattr(self, "algo" if part == "algorithm" else part, None)
        return self._set(owner, name, lambda: value)

    def _set(self, owner: object, name: str, make: Callable[[], object]) -> bool:
        if owner is None or name.startswith("_") or not hasattr(owner, name):
            part = "such part" if owner is None else f"'{name}' of {type(owner).__name__}"
            logger.warning("worker %d: there is no %s to set.", self.index_worker, part)
            return False
        setattr(owner, name, make())
        return True


@dataclass(eq=False)
class RemoteWorker:
    """Handle of a remote worker: its actor, the call under way, and what it is sent before the next one."""

    name: str
    index: int
    actor: Any  # Ray's handle
    is_healthy: bool = False
    is_killed: bool = False  # as it hung: its call under way fails next
    info: Any = None  # what its `ready` returned
    outbox: dict[str, tuple[str, tuple[object, ...]]] = field(default_factory=dict)  # the newest of each kind
    sent: list[Any] = field(default_factory=list)  # calls of the outbox, done before `pending`
    pending: Any = None  # reference of the call under way
    begun_s: float = 0.0
    heard_s: float = 0.0  # when its last answer came
    rows: int = 0  # that are lost with the call
    failure: FailureRow | None = None
    failed_s: float = 0.0


class Reply(NamedTuple):
    """Value that a worker returned; `worker` is None for the local one."""

    worker: RemoteWorker | None
    value: Any  # whatever the method returns


class WorkerSet:
    """Set of a local worker, of index 0, and `num_workers` Ray actors, which are called together or one by one.

    Workers are `worker_class(index_worker=..., **worker_params)`; `local_params` replace params of the local one, and
    `remote_config` has the resources of a remote one (see `resources_of`). Without remote workers, calls go to the
    local one. Without a connection to Ray a cluster is started on this machine, and ended by `stop`.

    A worker whose process dies, that does not answer for `policy.step_timeout_s`, or that raises, is marked unhealthy,
    recorded in `log`, and left out; Ray restarts it, and before its next call it is sent what was broadcast before.
    Each failure takes one restart of the budget: when that is spent, TrainingError is raised ("stop"), or the worker is
    removed ("shrink"). ConfigError and SchemaError of a worker are raised: another worker would raise them as well.
    """

    def __init__(
        self, worker_class: type[Worker], worker_params: Config, *, num_workers: int = 1,
        remote_config: Config | None = None, local_params: Config | None = None,
        kind: str = "worker", policy: FailurePolicy | None = None, log: FailureLog | None = None,
        is_leaving: Callable[[], bool] = lambda: False, also_needs: Iterable[Need] = (),
    ) -> None:  # fmt: skip
        """Make the local worker and start the others.

        Raises ConfigError for resources that cannot be had, what a worker's constructor raised, and TrainingError if
        the workers are not ready in time; then nothing is left.
        """
        self.worker_class, self.worker_params = worker_class, dict(worker_params)
        self.remote_config, self.kind = dict(remote_config or {}), kind
        self.policy, self.log = policy or FailurePolicy(), log if log is not None else FailureLog()
        self.is_leaving, self.num_asked = is_leaving, num_workers
        self._budget = RestartBudget(self.policy.restarts_per_10min)
        self._workers: list[RemoteWorker] = []
        self._guard = threading.Lock()  # of what follows, and the outboxes
        self._latest: dict[str, tuple[str, tuple[object, ...]]] = {}  # what was broadcast, by kind
        self._cluster: RayCluster | None = None
        self._local: Any = None  # of `worker_class`
        self.serving: Any = None  # the worker that is called where there is no remote one
        try:
            if num_workers:
                resources = resources_of(self.remote_config)
                self._cluster = open_cluster([Need(kind, num_workers, resources), *also_needs])
            self._local = self.serving = worker_class(index_worker=0, **{**self.worker_params, **(local_params or {})})
            for index in range(1, num_workers + 1):
                make = partial(worker_class, index_worker=index, **self.worker_params)
                options = options_of(resources)
                actor = start_actor(make, title=worker_class.__name__, options=options, prepare=prepare_worker)
                self._workers.append(RemoteWorker(f"{kind}{index}", index, actor))
            self._await_started()
        except BaseException:
            self.stop()
            raise

    # --- members

    @property
    def num_workers(self) -> int:
        """Number of remote workers."""
        return len(self._workers)

    def local_worker(self) -> Any:  # Any: of `worker_class`, which subclasses of the set choose
        """Return the worker of this process."""
        return self._local

    def remote_workers(self) -> list[RemoteWorker]:
        """Return the handles of the remote workers, unhealthy ones included."""
        return list(self._workers)

    def processes(self) -> list[ProcessReport]:
        """Return the processes of the remote workers; any thread may call it."""
        now_s = time.monotonic()
        return [
            ProcessReport(
                worker.name, worker.info["pid"], worker.info["node"],
                "running" if worker.is_healthy else "lost",
                heartbeat_s=now_s - worker.heard_s,
                note="" if worker.failure is None else f"{worker.failure.how}: it is restarted",
            )
            for worker in self.remote_workers()
            if worker.info is not None
        ]  # fmt: skip

    def _await_started(self) -> None:
        end_s = time.monotonic() + self.policy.start_timeout_s
        refs = {worker.actor.call.remote("ready"): worker for worker in self._workers}
        while refs and not self.is_leaving():
            for ref in wait_first(list(refs), timeout_s=end_s - time.monotonic()):
                worker, value = refs.pop(ref), value_of(ref)
                if isinstance(value, Raised):
                    raise value.to_error(worker.name)
                worker.info, worker.is_healthy, worker.heard_s = value, True, time.monotonic()
            if refs and time.monotonic() >= end_s:
                names = ", ".join(worker.name for worker in refs.values())
                raise TrainingError(
                    f"{names} did not start within failure.start_timeout_s={self.policy.start_timeout_s:g} s: raise "
                    "it, or see what holds them up (imports, envs, a cluster without room)."
                )

    def stop(self, *, timeout_s: float = 10.0) -> None:
        """Stop all workers, and the cluster that this set has started; may be called again."""
        self._end(self._workers, timeout_s=timeout_s / 2)
        if self._local is not None:
            self._local.stop()
        if self._cluster is not None:
            self._cluster.close(timeout_s=max(timeout_s / 2, 8.0))

    def _end(self, workers: Iterable[RemoteWorker], *, timeout_s: float) -> None:
        """Call `stop` of workers beside what they do, wait for it, and end their processes."""
        workers = list(workers)
        self._workers = [worker for worker in self._workers if worker not in workers]
        try:
            check_cluster()
            refs, end_s = [worker.actor.control.remote("stop") for worker in workers], time.monotonic() + timeout_s
            while refs and time.monotonic() < end_s:
                done = wait_first(refs, timeout_s=end_s - time.monotonic())
                refs = [ref for ref in refs if ref not in done]
        except (CommError, ConfigError) as error:  # no cluster, no workers
            logger.debug("workers were not stopped: %s", error)
        kill_actors([worker.actor for worker in workers], restarts=False, timeout_s=timeout_s)

    # --- calls

    def call(
        self, method: str, *args: object, quorum: float = 1.0, on_quorum: Callable[[], None] | None = None,
        least: int = 1, timeout_s: float | None = None,
        each: Callable[[int, int], Config | None] | None = None, **kwargs: object,
    ) -> list[Reply]:  # fmt: skip
        """Call a method of all healthy workers and return their replies in order; failed workers are left out.

        Once the fraction `quorum` of them has replied, `on_quorum` is called (to end the others' work early), and all
        are waited for. After `timeout_s`, `least` replies are enough, and late ones are dropped.
        `each(place, number)` returns further keyword arguments of a worker, None to leave it out.
        """
        if not self._workers:
            return [Reply(None, getattr(self.serving, method)(*args, **kwargs, **((each and each(0, 1)) or {})))]
        present, replies, is_signalled = self._present(), {}, False
        for place, worker in enumerate(present):
            own = each(place, len(present)) if each else {}
            if own is not None:
                self._begin(worker, method, args, {**kwargs, **own})
        asked = [worker for worker in present if worker.pending is not None]
        needed, begun_s, leave_s = math.ceil(quorum * len(asked) - 1e-9), time.monotonic(), math.inf
        while (waiting := [w for w in asked if w.pending is not None]) and time.monotonic() < leave_s:
            for worker, value in self._done(waiting):
                replies[worker.index] = Reply(worker, value)
            if self.is_leaving():
                leave_s = min(leave_s, time.monotonic() + _LEAVE_S)
            goes_on = any(worker.pending is not None for worker in asked)
            if on_quorum and goes_on and not is_signalled and (len(replies) >= needed or leave_s < math.inf):
                is_signalled = True
                on_quorum()
            if timeout_s is not None and time.monotonic() - begun_s > timeout_s and len(replies) >= least:
                break
        return [replies[index] for index in sorted(replies)]

    def next_ready(self, method: str, *args: object, timeout_s: float, **kwargs: object) -> Reply | None:
        """Keep one call under way in each healthy worker, and return the first reply; None: none came in time."""
        if not self._workers:
            return Reply(None, getattr(self.serving, method)(*args, **kwargs))
        end_s = time.monotonic() + timeout_s
        while True:
            self._done([w for w in self._workers if not w.is_healthy and w.pending is not None], wait=False)
            for worker in self._workers:
                if worker.is_healthy and worker.pending is None:
                    self._begin(worker, method, args, kwargs)
            for worker, value in self._done(self._workers, most=1):
                return Reply(worker, value)
            if time.monotonic() >= end_s or self.is_leaving():
                return None

    def broadcast(self, method: str, *args: object) -> None:
        """Have a method of every worker called before its next call; of several of a kind only the newest.

        Restarted workers get it, too. A kind is a method, with its first argument if that is a name.
        """
        self.send(None, method, *args)

    def send(self, worker: RemoteWorker | None, method: str, *args: object) -> None:
        """Do what `broadcast` does for one worker, and for others once they are restarted."""
        if not self._workers:
            getattr(self.serving, method)(*args)
            return
        # Arrays are stored once for all readers.
        args = tuple(check_cluster().put(arg) if isinstance(arg, tuple | dict) else arg for arg in args)
        key = f"{method}/{args[0]}" if args and isinstance(args[0], str) else method
        with self._guard:
            self._latest[key] = method, args
            for each in self._workers if worker is None else [worker]:
                each.outbox[key] = method, args

    def call_everywhere(self, method: str, *args: object) -> bool:
        """Call a method of the local worker, and broadcast it to all others; return what the local worker returned."""
        result = bool(getattr(self._local, method)(*args))
        if self._workers or self.serving is not self._local:
            self.broadcast(method, *args)
        return result

    def control(self, method: str, *args: object) -> None:
        """Call a method beside the calls under way; no answer is waited for."""
        if not self._workers:
            getattr(self.serving, method)(*args)
        for worker in self._workers:
            worker.actor.control.remote(method, *args)

    # --- health

    def _present(self) -> list[RemoteWorker]:
        """Return the healthy workers without a call; wait for the first to come back where there is none."""
        while True:
            self._done(self._workers, wait=False)
            present = [worker for worker in self._workers if worker.is_healthy and worker.pending is None]
            if present or self.is_leaving():
                return present
            self._done(self._workers)

    def _begin(self, worker: RemoteWorker, method: str, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        with self._guard:
            outbox, worker.outbox = worker.outbox, {}
        worker.sent = [worker.actor.call.remote(name, *given) for name, given in outbox.values()]
        worker.rows, worker.begun_s = getattr(kwargs.get("order"), "rows", 0), time.monotonic()
        worker.pending = worker.actor.call.remote(method, *args, **kwargs)

    def _done(
        self, workers: Iterable[RemoteWorker], *, wait: bool = True, most: int | None = None
    ) -> list[tuple[RemoteWorker, Any]]:
        """Return (worker, value) of the calls that are done, `most` of them; those of failed workers are not there."""
        refs = {worker.pending: worker for worker in workers if worker.pending is not None}
        if not refs:
            return []
        found: list[tuple[RemoteWorker, Any]] = []
        for ref in wait_first(list(refs), timeout_s=1.0 if wait else 0.0)[:most]:
            worker = refs.pop(ref)
            worker.pending = None
            try:
                value = next((v for v in map(value_of, worker.sent) if isinstance(v, Raised)), None) or value_of(ref)
            except WorkerDiedError as error:
                self._handle_death(worker, str(error))
                continue
            worker.sent, worker.heard_s = [], time.monotonic()
            if isinstance(value, Raised):
                self._handle_error(worker, value)
            elif worker.is_healthy:
                found.append((worker, value))
            else:
                self._take_back(worker, value)
        for worker in refs.values():
            limit_s = self.policy.step_timeout_s if worker.is_healthy else self.policy.start_timeout_s
            if time.monotonic() - worker.begun_s > limit_s and not worker.is_killed:
                worker.is_killed = self._fail(worker, f"no answer for {limit_s:g} s")
                kill_actors([worker.actor], restarts=worker.is_killed)
        return found

    def _handle_death(self, worker: RemoteWorker, detail: str) -> None:
        """Ask a worker whose process has died when it is ready again: Ray restarts it.

        Calls may fail until it has, which is no failure of its own before `start_timeout_s` are over.
        """
        is_restarting = worker.failure is not None and time.monotonic() - worker.failed_s < self.policy.start_timeout_s
        if is_restarting or self._fail(worker, "process died", detail):
            worker.is_killed = False
            worker.pending, worker.begun_s = worker.actor.call.remote("ready"), time.monotonic()

    def _handle_error(self, worker: RemoteWorker, raised: Raised) -> None:
        """Have a worker that raised an error made anew. Raises errors that it would raise again."""
        error = raised.to_error(worker.name)
        if isinstance(error, ConfigError | SchemaError):
            raise error
        place = place_raised(error)
        at = f" (raised at {place})" if place else ""
        if self._fail(worker, "raised an error", f"{type(error).__name__}: {error}{at}"):
            worker.pending, worker.begun_s = worker.actor.remake.remote(), time.monotonic()

    def _fail(self, worker: RemoteWorker, how: str, detail: str = "") -> bool:
        """Mark a worker unhealthy and record it; return whether it may be restarted, else it is removed."""
        role = "working" if worker.is_healthy else "starting"
        row = self.log.note(worker.name, how=how, detail=detail, rows_lost=worker.rows, role=role)
        logger.warning("%s failed: %s%s; the others go on", worker.name, how, f" ({detail})" if detail else "")
        if worker.failure is None:
            worker.failed_s = time.monotonic()
        worker.is_healthy, worker.sent, worker.rows, worker.failure = False, [], 0, row
        with self._guard:
            worker.outbox = dict(self._latest)
        if self._budget.spend():
            return True
        if self.policy.when_spent == "stop" or len(self._workers) == 1:
            raise TrainingError(describe_spent(row, self.policy, least=1))
        logger.warning("%s is removed: failure.restarts_per_10min is spent", worker.name)
        worker.pending = None
        self._end([worker], timeout_s=0.0)
        return False

    def _take_back(self, worker: RemoteWorker, info: Any) -> None:
        worker.is_healthy, worker.info = True, info
        if worker.failure is not None:
            took_ms = 1000 * (time.monotonic() - worker.failed_s)
            self.log.amend(worker.failure, replaced_by=worker.name, replaced_ms=round(took_ms, 1))
            worker.failure = None


class ProducerThread(threading.Thread, Generic[T]):
    """Thread that makes results ahead of a caller, as many as `outqueue` holds (0: any number); an error is the last.

    A subclass defines `produce`.
    """

    def __init__(self, name: str, *, max_queue_size: int = 0) -> None:
        super().__init__(name=name, daemon=True)
        self.stopped = False
        self.outqueue: queue.Queue[T | BaseException] = queue.Queue(max_queue_size)

    def produce(self) -> T | None:
        """Return the next result; None where there is none after a second, so that the thread may end."""
        raise NotImplementedError

    def run(self) -> None:
        """Produce until stopped, or until an error, which `next_result` raises."""
        torch.set_flush_denormal(True)  # of this thread: see `training_process`
        try:
            while not self.stopped:
                found = self.produce()
                if found is not None:
                    self._put(found)
        except BaseException as error:  # raised in the thread that waits for results
            self._put(error)

    def _put(self, found: T | BaseException) -> None:
        while not self.stopped:
            try:
                return self.outqueue.put(found, timeout=LOOK_S)
            except queue.Full:
                continue  # results are as far ahead as they may be

    def next_result(self) -> T | None:
        """Return the next result, None if none came within a second.

        Raises what `produce` raised, and CommError once the thread has ended.
        """
        is_alive = self.is_alive()
        try:
            found = self.outqueue.get(timeout=LOOK_S if is_alive else 0.0)
        except queue.Empty:
            if not is_alive:
                raise CommError(f"the {self.name} has ended: there is nothing to wait for.") from None
            return None
        if isinstance(found, BaseException):
            raise found
        return found

    def stop(self, *, timeout_s: float = 5.0) -> bool:
        """End the thread after the result under way; return whether it has ended in time."""
        self.stopped = True
        if self.ident is not None and self is not threading.current_thread():
            self.join(timeout_s)
            if self.is_alive():
                logger.warning("the %s has not ended %g s after it was to stop.", self.name, timeout_s)
        return not self.is_alive()
