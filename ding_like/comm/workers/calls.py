"""Keep calls of a pool's workers under way, and say which came back and whose worker was lost or hangs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ding_like.comm.workers.host import Call, Host, WorkerHandle, WorkerLostError
from ding_like.comm.workers.pool import WorkerPool
from ding_like.comm.workers.raised import place_raised
from ding_like.errors import ConfigError, SchemaError


@dataclass(frozen=True)
class Task:
    """Hold a call that a worker was given, for its `place`."""

    place: int
    worker: WorkerHandle
    call: Call
    rows: int  # that are lost with it if the worker is
    begun_s: float


@dataclass(frozen=True)
class Returned:
    """Hold what came of a task: what the worker returned, or the worker that took its place where it was lost."""

    task: Task
    value: Any = None  # whatever the method returns
    is_lost: bool = False
    replacement: WorkerHandle | None = None  # of a lost worker; None: there is one fewer


class WorkerCalls:
    """Give workers of a pool one call each, with a deadline; threads do not share it.

    A worker that dies, hangs for `step_timeout_s` or raises is lost to the pool, and its task comes back as lost, with
    the worker that has its place within `replace_s`, with `replaces_in_time` also within the wait of `ready`: whoever
    gave it gives it again. Errors that another worker would raise as well, of the kinds `raised`, are raised.
    """

    def __init__(
        self,
        host: Host,
        pool: WorkerPool,
        *,
        step_timeout_s: float,
        replace_s: float = 1.0,  # one that stands by takes milliseconds
        replaces_in_time: bool = False,
        raised: tuple[type[Exception], ...] = (ConfigError, SchemaError),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._pool = pool
        self._step_timeout_s = step_timeout_s
        self._replace_s = replace_s
        self._replaces_in_time = replaces_in_time
        self._raised = raised
        self._clock = clock
        self.tasks: dict[str, Task] = {}  # under way, by worker, the oldest first

    def begin(self, worker: WorkerHandle, method: str, *args: Any, place: int, rows: int, **kwargs: Any) -> None:
        """Begin to call a method of a worker, which has no other call under way."""
        call = worker.call(method, *args, **kwargs)
        self.tasks[worker.name] = Task(place, worker, call, rows, self._clock())

    def ready(self, *, timeout_s: float) -> list[Returned]:
        """Return what came back since; wait for the first for at most `timeout_s`, and for none that hangs.

        Raises CommError if the host is lost, and TrainingError where no worker may be replaced any more.
        """
        if not self.tasks:
            return []
        end_s = self._clock() + timeout_s
        hangs_s = min(task.begun_s for task in self.tasks.values()) + self._step_timeout_s
        calls = [task.call for task in self.tasks.values()]
        done = {id(call) for call in self._host.wait(calls, timeout_s=max(min(end_s, hangs_s) - self._clock(), 0.0))}
        now = self._clock()
        found = [task for task in self.tasks.values() if id(task.call) in done or self._hangs(task, now)]
        for task in found:
            del self.tasks[task.worker.name]
        last_s = end_s if self._replaces_in_time else math.inf
        silence = f"no answer for {self._step_timeout_s:g} s"
        return [
            self._take(task, last_s) if id(task.call) in done else self._lose(task, silence, last_s=last_s)
            for task in found
        ]

    def control(self, method: str, *args: Any) -> None:
        """Have all workers with a call under way do something beside it; nobody waits for their answers."""
        for task in list(self.tasks.values()):
            task.worker.control(method, *args)

    def forget(self) -> None:
        """Let go of the calls that are under way: nobody waits for them any more."""
        self.tasks.clear()

    def _hangs(self, task: Task, now: float) -> bool:
        return now - task.begun_s >= self._step_timeout_s

    def _take(self, task: Task, last_s: float) -> Returned:
        try:
            return Returned(task, task.call.result())
        except WorkerLostError as error:
            return self._lose(task, "process died", str(error), last_s=last_s)
        except self._raised:
            raise
        except Exception as error:  # a user's env may raise anything; the worker is replaced
            place = place_raised(error)
            at = f" (raised at {place})" if place else ""
            return self._lose(task, "raised an error", f"{type(error).__name__}: {error}{at}", last_s=last_s)

    def _lose(self, task: Task, how: str, detail: str = "", *, last_s: float) -> Returned:
        wait_s = min(self._replace_s, max(last_s - self._clock(), 0.0))
        found = self._pool.lost(task.worker, how=how, rows_lost=task.rows, detail=detail, wait_s=wait_s)
        return Returned(task, is_lost=True, replacement=found)
