"""A host whose workers do what a test says, and whose time passes when the test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from ding_like.comm.workers.host import Call, Resources, WorkerLostError
from ding_like.errors import CommError

_LONG_S = 60.0  # a test that waits for longer has failed


class ScriptedCall:
    """Call that is done when the host says so."""

    def __init__(self, worker: ScriptedWorker, method: str, begun_s: float | None = None) -> None:
        self.worker: Any = worker
        self.method = method
        self.begun_s = begun_s  # None: it is nobody's to answer
        self.is_done = False
        self._value: Any = None
        self._error: Exception | None = None

    def result(self) -> Any:
        if not self.is_done:
            raise CommError("under way")
        if self._error is not None:
            raise self._error
        return self._value

    def on_done(self, callback: Callable[[], None]) -> None:
        raise NotImplementedError

    def settle(self, value: Any = None, error: Exception | None = None) -> None:
        if not self.is_done:
            self.is_done, self._value, self._error = True, value, error


class ScriptedWorker:
    """Worker that answers `ready` and `stop` at once, unless the host's script says otherwise, and nothing else."""

    def __init__(self, host: ScriptedHost, name: str) -> None:
        self.name = name
        self.ended = ScriptedCall(self, "ended")
        self.calls: list[ScriptedCall] = []
        self._host = host

    def call(self, method: str, *args: Any, **kwargs: Any) -> ScriptedCall:
        return self._host.begin(self, method)

    control = call


class ScriptedHost:
    """Host whose workers are ready at once, but for those named in a script.

    `silent` never answer `ready`; `dying` die while they start; `failing` raise an error; `stuck` do not stop.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._now_s = 0.0
        self._error: Exception | None = None
        self.workers: dict[str, ScriptedWorker] = {}
        self.killed: list[str] = []
        self.stopped: list[str] = []
        self.silent: set[str] = set()
        self.dying: Callable[[str], bool] = lambda name: False
        self.failing: dict[str, Exception] = {}
        self.stuck: set[str] = set()

    # --- what a pool sees

    def start(self, make: Callable[[], object], *, name: str, resources: Resources) -> ScriptedWorker:
        with self._changed:
            assert name not in self.workers, f"{name} was used before"
            worker = self.workers[name] = ScriptedWorker(self, name)
            self._changed.notify_all()
        if self.dying(name):
            self.die(name)
        return worker

    def begin(self, worker: ScriptedWorker, method: str) -> ScriptedCall:
        call = ScriptedCall(worker, method, self._now_s)
        with self._changed:
            worker.calls.append(call)
            if worker.ended.is_done:
                call.settle(error=WorkerLostError(f"{worker.name} is lost"))
            elif method == "ready" and worker.name in self.failing:
                call.settle(error=self.failing[worker.name])
            elif method == "ready" and worker.name not in self.silent:
                call.settle({"name": worker.name})
            elif method == "stop":
                self.stopped.append(worker.name)
                if worker.name not in self.stuck:
                    call.settle()
            self._changed.notify_all()
        return call

    def wait(self, calls: Sequence[Call], *, timeout_s: float) -> list[Call]:
        asked: list[Any] = list(calls)
        with self._changed:
            # From the call on, so that time may pass between a call and the wait for it.
            deadline_s = max(self._now_s if call.begun_s is None else call.begun_s for call in asked) + timeout_s
            is_over = self._changed.wait_for(
                lambda: self._error or self._now_s >= deadline_s or any(call.is_done for call in asked), _LONG_S
            )
            assert is_over, f"nobody answered {[(call.worker.name, call.method) for call in asked]}"
            if self._error is not None:
                raise self._error
            return [call for call in asked if call.is_done]

    def share(self, value: Any) -> Any:
        return value

    def kill(self, worker: Any) -> None:
        with self._changed:
            self.killed.append(worker.name)
        self.die(worker.name)

    def where(self, worker: Any) -> str:
        return ""

    def close(self, *, timeout_s: float = 10.0) -> None:
        pass

    # --- what a test says

    def clock(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        with self._changed:
            self._now_s += seconds
            self._changed.notify_all()

    def die(self, *names: str) -> None:
        """Have workers die, all at the same moment."""
        with self._changed:
            for name in names:
                worker = self.workers[name]
                worker.ended.settle(error=WorkerLostError(f"{name} is gone"))
                for call in worker.calls:
                    call.settle(error=WorkerLostError(f"{name} is gone"))
            self._changed.notify_all()

    def answer(self, name: str, method: str) -> None:
        """Have a worker answer its calls of a method."""
        with self._changed:
            self.silent.discard(name)
            for call in self.workers[name].calls:
                if call.method == method:
                    call.settle()
            self._changed.notify_all()

    def fail(self, error: Exception) -> None:
        """Be lost: every wait raises."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def await_start(self, name: str, method: str = "ready") -> None:
        """Wait until a worker was started and called."""

        def was_called() -> bool:
            return name in self.workers and any(call.method == method for call in self.workers[name].calls)

        self._await(was_called, f"{name}'s {method}")

    def await_kill(self, name: str) -> None:
        """Wait until a worker was killed, which a pool does with each that it knows to be lost."""
        self._await(lambda: name in self.killed, f"the kill of {name}")

    def _await(self, is_so: Callable[[], bool], what: str) -> None:
        with self._changed:
            assert self._changed.wait_for(is_so, _LONG_S), f"{what} never came"
