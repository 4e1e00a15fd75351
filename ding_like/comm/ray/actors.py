"""Ray, which is loaded here alone, its actors around workers, and results of their calls.

A worker is a plain object: the actor around it makes it where it runs, does one call after another, and answers control
calls beside them. What a method raises is returned, not raised: Ray would give it another type.
"""

from __future__ import annotations

import copy
import logging
import os
import re
import threading
import traceback
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

from ding_like.comm.workers.failures import WorkerTracebackError
from ding_like.errors import CommError, ConfigError, TrainingError
from ding_like.utils.registries import pip_line

logger = logging.getLogger(__name__)

ActorHandle: TypeAlias = Any  # Ray's own, which need not be installed
Ref: TypeAlias = Any  # ray.ObjectRef

_LONGEST = 300  # characters of a message of Ray's
_SLICE_S = 0.5  # of a wait: the loss of a cluster ends no call, so that it is looked at

# What Ray reads when it is imported or started. What the user has set is left alone.
ENVIRONMENT = {
    "RAY_worker_niceness": "0",  # else workers run at nice 15, behind everything else on the machine
    "RAY_ENABLE_AUTO_CONNECT": "0",  # else a call after the end of a cluster silently starts another one
    "RAY_USAGE_STATS_ENABLED": "0",  # no reports to the makers of Ray
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a worker without a GPU keeps its environment; without it Ray warns
}


def load_ray() -> ModuleType:
    """Import Ray. Raises ConfigError with the command that installs it where it is missing."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            f"Ray cannot be loaded ({error}): install it with {pip_line('ray')}, or train with -m serial."
        ) from error
    _keep_pages_off_the_console(ray)
    return ray


def _keep_pages_off_the_console(ray: Any) -> None:
    """Log the messages of Ray's node manager, a page for each death of a worker, at level DEBUG.

    Ray prints them to the console whatever `log_to_driver` is, and has no setting for it. The log of failures has a
    row for each death.
    """
    worker = getattr(getattr(ray, "_private", None), "worker", None)
    show = getattr(worker, "print_to_stdstream", None)
    if show is None or getattr(show, "is_quiet", False):
        return

    def show_others(data: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(data, dict) and data.get("pid") == "raylet":
            logger.debug("ray: %s", " ".join(map(str, data.get("lines", ()))))
        else:
            show(data, *args, **kwargs)

    show_others.is_quiet = True  # type: ignore[attr-defined]
    setattr(worker, show.__name__, show_others)


class WorkerDiedError(CommError):
    """Death of a worker's process, during a call or between two."""


class Raised(NamedTuple):
    """Error of a worker's method, with its traceback as text."""

    error: BaseException
    where: str

    def to_error(self, worker: str) -> BaseException:
        """Return the error, with the worker's traceback as its cause."""
        self.error.__cause__ = WorkerTracebackError(f"in worker {worker!r}:\n{self.where}")
        return self.error


class ActorShell:
    """Ray actor around a worker, which the call of `ready` makes after `prepare` has set the process up.

    After a restart of the process other calls are answered by WorkerDiedError until `ready` has made the worker anew,
    so that no work is done by a worker that lacks its weights and what else it was sent.
    """

    def __init__(self, make: Callable[[], object], prepare: Callable[[], None] | None) -> None:
        self._make, self._prepare = make, prepare
        self._worker: object = None

    def call(self, method: str, /, *args: object, **kwargs: object) -> object:
        """Call a method of the worker; return what it returns, or what it raises as Raised."""
        try:
            if self._worker is None and method != "ready":
                return Raised(WorkerDiedError("its process died between two calls"), "")
            if self._worker is None:
                if self._prepare is not None:
                    self._prepare()
                self._worker = self._make()
            return getattr(self._worker, method)(*args, **kwargs)
        except SystemExit as error:  # would end the process without a message
            return _raised(TrainingError(f"the worker's code called exit({error.code!r})"), error)
        except Exception as error:  # a user's code may raise anything; the caller raises it
            return _raised(error, error)

    def remake(self) -> object:
        """Stop the worker and make it anew; return what its `ready` returns, or Raised."""
        stopped = None if self._worker is None else self.call("stop")
        if isinstance(stopped, Raised):
            logger.warning("a worker did not stop by itself: %s", stopped.error)
        self._worker = None
        return self.call("ready")

    def control(self, method: str, /, *args: object, **kwargs: object) -> object:
        """Call a method beside the call under way; None where the worker is not made yet."""
        return None if self._worker is None else self.call(method, *args, **kwargs)


def _raised(error: BaseException, origin: BaseException) -> Raised:
    where = "".join(traceback.format_exception(type(origin), origin, origin.__traceback__)).rstrip()
    try:
        return Raised(copy.deepcopy(error), where)
    except Exception as reason:  # copying a user's exception may raise anything; its text is sent
        return Raised(CommError(f"{type(error).__name__}: {error} (as text: {reason})"), where)


def start_actor(
    make: Callable[[], object], *, title: str, options: Mapping[str, object], prepare: Callable[[], None] | None
) -> ActorHandle:
    """Start a worker as an actor with Ray's `options`, which Ray restarts whenever its process dies; return its handle.

    Its process is listed as `ray::{title}` (`ps`, `ray list actors`). Raises CommError where `make` cannot be sent.
    """
    ray = check_cluster()
    shell = type(title, (ActorShell,), {})
    for method, group in dict(call="work", remake="work", control="control").items():
        setattr(shell, method, ray.method(concurrency_group=group)(getattr(ActorShell, method)))
    actor = ray.remote(concurrency_groups={"work": 1, "control": 1}, max_restarts=-1, max_task_retries=0)(shell)
    try:
        return actor.options(**options).remote(make, prepare)
    except (ray.exceptions.RayError, TypeError, ValueError) as error:
        raise CommError(f"a worker cannot be started: {_brief(error)}") from error


def wait_first(refs: list[Ref], *, timeout_s: float) -> list[Ref]:
    """Return the references whose calls are done; wait for the first, for at most `timeout_s` and half a second."""
    ray = check_cluster()
    try:
        ready, others = ray.wait(refs, num_returns=1, timeout=max(min(timeout_s, _SLICE_S), 0.0))
        if ready and others:
            ready += ray.wait(others, num_returns=len(others), timeout=0)[0]
    except ray.exceptions.RayError as error:
        raise CommError(f"Ray cannot be asked any more: {_brief(error)}") from error
    return list(ready)


def value_of(ref: Ref) -> object:
    """Return the value of a call that is done; Raised for what it raised. Raises WorkerDiedError if the worker died."""
    ray = check_cluster()
    try:
        value: object = ray.get(ref, timeout=60.0)
    except ray.exceptions.RayError as error:
        raise WorkerDiedError(_brief(error)) from error
    if isinstance(value, Raised) and isinstance(value.error, WorkerDiedError):
        raise value.error
    return value


def check_cluster() -> ModuleType:
    """Return the module ray. Raises CommError where this process has no connection to a cluster, or has lost it."""
    ray = load_ray()
    if ClusterLoss.why is not None:
        raise CommError(f"the Ray cluster is lost: {ClusterLoss.why}")
    if not ray.is_initialized():
        raise CommError("this process is not connected to a Ray cluster.")
    return ray


class ClusterLoss:
    """Reason for which the cluster of this process is lost: a call of Ray could end the process. None: it is there."""

    why: str | None = None

    @classmethod
    def note(cls, why: str) -> None:
        """Have no more calls of Ray made."""
        cls.why = cls.why or why


def kill_actors(actors: list[ActorHandle], *, restarts: bool, timeout_s: float = 5.0) -> None:
    """End actors' processes, which Ray starts again if `restarts`.

    A thread asks Ray: a cluster whose head has died does not answer.
    """
    if not actors or ClusterLoss.why is not None or not load_ray().is_initialized():
        return
    thread = threading.Thread(target=_kill, args=(actors, restarts), name="kill", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        logger.warning("Ray has not ended %d workers within %g s: its head may be gone", len(actors), timeout_s)


def _kill(actors: list[Any], restarts: bool) -> None:
    ray = load_ray()
    for actor in actors:
        try:
            ray.kill(actor, no_restart=not restarts)
        except (ray.exceptions.RayError, ValueError) as error:  # it has ended, or the cluster is gone
            logger.debug("an actor was not killed: %s", error)


def _brief(error: Exception) -> str:
    """Return the cause out of the page of text of an exception of Ray's."""
    text = " ".join(str(error).split())
    exit_text = re.search(r"Worker exit type: (\w+) Worker exit detail: (.*?)(?= Some common causes|$)", text)
    if exit_text:
        return f"its process has died ({exit_text[1]}: {exit_text[2]})."
    if "is unavailable" in text:
        return "its connection broke, as its process ended"
    unsent = re.search(r"serialization: (?:\x1b\S+)?(.*?)(?= Inspecting| Detected|$)", text)
    return (unsent[1] if unsent else text)[:_LONGEST]
