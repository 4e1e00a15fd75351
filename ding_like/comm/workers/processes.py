"""Processes that report when they are ready and why they fail, and end with their parent; and their supervisor.

A pipe of JSON messages joins a process and its parent. The child ends when the parent's end of it is closed, in
whatever way the parent ends, or when it has another parent: the parent's end may have been inherited by another one.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import multiprocessing.connection
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TypeAlias

import ding_like.errors
from ding_like.comm.workers import failures
from ding_like.comm.workers.failures import FailureLog, FailurePolicy, FailureRow, RestartBudget
from ding_like.errors import CommError, ConfigError, DingError, TrainingError
from ding_like.types import Json, State
from ding_like.utils.processes import describe_status, last_line

_MAX_TEXT = 8_000  # characters of an error, or of a traceback, that are reported: the pipe holds several of them
_PARENT_S = 1.0  # between two looks at who the parent is
_KILL_S = 5.0  # for a process that was killed to be gone
_environment = threading.Lock()  # while a child inherits a changed one
_reporting = threading.Lock()

_logger = logging.getLogger(__name__)


class ChildProcess(SpawnProcess):
    """Base of a process that serves until it is asked to end.

    A subclass implements `serve(stop)`, calls `report_ready` once it can work, and returns soon after `stop` is set: by
    SIGTERM, or because the parent has ended. One that does not return `grace_s` later is ended without being asked.
    What `serve` raises is reported to the parent, and the process exits with status 1. It is pickled to be started, as
    every process of multiprocessing is: keep only plain attributes. Computation takes one thread unless
    OMP_NUM_THREADS says otherwise.
    """

    def __init__(
        self, *, name: str, daemon: bool = True, output: str | os.PathLike[str] | None = None, grace_s: float = 5.0
    ) -> None:
        """Name the process; what it prints goes to the end of the file `output`, by default where the parent prints.

        A `daemon` is ended when its parent's program ends; it may have children by multiprocessing all the same.
        """
        super().__init__(name=name, daemon=daemon)
        self._output = None if output is None else Path(output)
        self._grace_s = grace_s
        self.reports: Connection | None = None  # readable when there are messages; None before and after that
        self.child_end: Connection | None = None
        self._info: Mapping[str, Json] | None = None
        self._failure: Mapping[str, Json] | None = None

    # --- in the child

    def serve(self, stop: threading.Event) -> None:
        """Work until `stop` is set."""
        raise NotImplementedError

    def report_ready(self, **info: Json) -> None:
        """Report that this process can work, with `info` for the parent as plain JSON."""
        self.report("ready", **info)

    def report(self, kind: str, **plain: Json) -> None:
        """Send the parent a message, unless it has ended or does not read what it is sent."""
        assert self.child_end is not None, "only the process itself sends"
        message = json.dumps({**plain, "kind": kind}).encode()
        with _reporting:
            poll = select.poll()
            poll.register(self.child_end, select.POLLOUT)
            # A pipe into which anything can be written has room for several messages.
            if poll.poll(0):
                with suppress(OSError):
                    self.child_end.send_bytes(message)

    def run(self) -> None:
        """Serve, in the process itself."""
        assert self.child_end is not None, "start comes first"
        self._config["daemon"] = False  # type: ignore[attr-defined]  # or multiprocessing would refuse it children
        os.setsid()  # Ctrl-C in the terminal is for the parent; and a kill takes along what this process has started
        if self._output is not None:
            descriptor = os.open(self._output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            for number, stream in enumerate((sys.stdout, sys.stderr), 1):
                stream.flush()
                os.dup2(descriptor, number)
            os.close(descriptor)
        faulthandler.enable()
        with _stopping(self.child_end, self._grace_s) as stop:
            try:
                self.serve(stop)
            except BaseException as error:  # also SystemExit: the parent gets the cause before the process ends
                self.report("failed", **describe_error(error))
                raise

    # --- in the parent

    def start(self) -> None:
        """Start the process, without waiting for it. Raises ConfigError if it cannot be sent there."""
        self.connect()
        try:
            with _environment, _single_threaded():
                super().start()
        except Exception as error:  # __reduce__ of a user's class may raise anything
            self.release()
            if isinstance(error, OSError):
                raise
            raise ConfigError(
                f"{self.name} cannot be sent to a process of its own ({type(error).__name__}: {error}). Give classes "
                "and functions at the top of a module, or a functools.partial of one, and start what a script does "
                "under  if __name__ == '__main__':"
            ) from error
        finally:
            self.child_end.close()  # type: ignore[union-attr]  # `connect` made it

    def connect(self) -> None:
        """Make the pipe between parent and child."""
        self.reports, self.child_end = multiprocessing.connection.Pipe()

    def __getstate__(self) -> State:
        """Return what goes to the child: all but the parent's end of the pipe, which would never close."""
        return {**self.__dict__, "reports": None}

    def take_messages(self) -> list[Mapping[str, Json]]:
        """Return the messages that have come since, the oldest first, without waiting.

        Each has a `kind`: "ready" once it can work, "done" before it ends as it should, "failed" with `type`, `text`
        and `trace`. "lost", "back" and "gone" are about a part of it, named by `worker`: "lost" is a failure, "back"
        that it works again, "gone" a failure after which it will not.
        """
        found: list[Mapping[str, Json]] = []
        try:
            while self.reports is not None and self.reports.poll():
                found.append(json.loads(self.reports.recv_bytes(1_000_000)))
        except (EOFError, OSError):
            self._close_reports()
        for message in found:
            if message["kind"] == "ready":
                self._info = {key: value for key, value in message.items() if key != "kind"}
            elif message["kind"] == "failed":
                self._failure = message
        return found

    def wait_ready(self, *, timeout_s: float) -> Mapping[str, Json]:
        """Wait until the process has reported ready; return the `info` of that.

        Raises what it could not start for, and CommError where it ended or did not become ready in time; it is not
        ended then.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            is_over = not self.is_alive()
            self.take_messages()
            if self._info is not None:
                return self._info
            if is_over:
                raise self.error() or CommError(f"{self.name} {self.how_it_ended()} before it was ready.")
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise CommError(f"{self.name} was not ready within {timeout_s:g} s.")
            multiprocessing.connection.wait([self.sentinel, *([self.reports] if self.reports else [])], left_s)

    def error(self) -> Exception | None:
        """Return the failure that the process reported; None: none."""
        return None if self._failure is None else error_of(self.name, self._failure)

    def how_it_ended(self) -> str:
        """Describe how a process ended, with the last line that it printed if that went to a file."""
        assert self.exitcode is not None, "it has not ended"
        words = last_line(self._output) if self.exitcode != 0 and self._output is not None else ""
        return describe_status(self.exitcode) + (f" ({words})" if words else "")

    def kill(self) -> None:
        """Kill the process, and what it has started, at once."""
        with suppress(ProcessLookupError, PermissionError):  # it has no group of its own yet, or has ended
            if self.pid is not None and self.exitcode is None:
                os.killpg(self.pid, signal.SIGKILL)
        if self.pid is not None:
            super().kill()

    def terminate(self) -> None:
        """Ask the process to end; one that was stopped (SIGSTOP) is continued first."""
        if self.pid is not None:
            super().terminate()
            if self.exitcode is None:
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGCONT)

    def end(self, *, timeout_s: float = 5.0) -> None:
        """Ask the process to end, kill it if it has not after `timeout_s`, and release it; may be called again."""
        if self.pid is not None:
            self.terminate()
            self.join(timeout_s)
            if self.exitcode is None:
                self.kill()
                self.join(_KILL_S)
            self.release()

    def release(self) -> None:
        """Close what the parent holds of a process that has ended."""
        self.take_messages()
        self._close_reports()

    def _close_reports(self) -> None:
        if self.reports is not None:
            self.reports.close()
            self.reports = None


class ChildThread:
    """Thread of this process that does the work of a `ChildProcess` and takes its place; it cannot be killed.

    `on_end` is called in the thread when it ends. All that is not here is the child's.
    """

    pid: int | None = None
    exitcode: int | None = None

    def __init__(self, child: ChildProcess, *, on_end: Callable[[], None] = lambda: None) -> None:
        self._child, self._on_end = child, on_end
        self._stop = threading.Event()
        self.sentinel, self._ended = os.pipe()
        self._thread = threading.Thread(target=self._run, name=child.name, daemon=True)
        self.take_messages, self.error, self.join = child.take_messages, child.error, self._thread.join

    @property
    def reports(self) -> Connection | None:
        """The end of the pipe that is readable when there are messages."""
        return self._child.reports

    def start(self) -> None:
        """Start the thread."""
        self._child.connect()
        self._thread.start()

    def _run(self) -> None:
        status = 1
        try:
            self._child.serve(self._stop)
            status = 0
        except BaseException as error:  # also SystemExit of an env: the owner gets it and raises it
            self._child.report("failed", **describe_error(error))
        finally:
            self._child.child_end.close()  # type: ignore[union-attr]  # `start` made it
            self.exitcode = status
            os.close(self._ended)
            self._on_end()

    def is_alive(self) -> bool:
        """Return whether it still works."""
        return self._thread.ident is not None and self.exitcode is None

    def how_it_ended(self) -> str:
        """Describe how it ended."""
        return describe_status(self.exitcode or 0)

    def terminate(self) -> None:
        """Ask it to end."""
        self._stop.set()

    kill = terminate

    def release(self) -> None:
        """Close what is held of one that has ended, or was never started; may be called again."""
        if self.is_alive() or self._ended < 0:
            return
        self._child.release()
        if self._thread.ident is None:
            os.close(self._ended)
        else:
            self._thread.join()
        os.close(self.sentinel)
        self._ended = -1


def describe_error(error: BaseException) -> dict[str, str]:
    """Return an error as plain JSON, for `error_of`."""
    trace = "".join(traceback.format_exception(error))
    return {"type": type(error).__name__, "text": str(error)[:_MAX_TEXT], "trace": trace[-_MAX_TEXT:]}


def error_of(worker: str, failure: Mapping[str, Json]) -> Exception:
    """Return the error that a worker reported: of ding_like's own kinds, or TrainingError that names the kind.

    Its cause has the place where it was raised.
    """
    kind = getattr(ding_like.errors, str(failure["type"]), None)
    if isinstance(kind, type) and issubclass(kind, DingError):
        error: Exception = kind(f"{worker}: {failure['text']}")
    else:
        error = TrainingError(f"{worker}: {failure['type']}: {failure['text']}")
    error.__cause__ = failures.WorkerTracebackError(f"in worker {worker!r}:\n{failure['trace']}")
    return error


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Let children that are started meanwhile compute in one thread, unless the user sets these variables."""
    names = [name for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS") if name not in os.environ]
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)


@contextmanager
def _stopping(link: Connection, grace_s: float) -> Iterator[threading.Event]:
    """Yield an event that is set by SIGTERM and by the end of the parent; end the process where it is not heeded."""
    stop, is_done = threading.Event(), threading.Event()
    parent_pid = os.getppid()
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    # The number of a signal is written at once, whatever Python code runs; a handler would wait for it, and could not
    # set an event that is being waited for.
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent_pid:
            ready = multiprocessing.connection.wait([link, readable], _PARENT_S)
            # The parent sends nothing: its end was closed.
            if link in ready or (ready and signal.SIGTERM in os.read(readable, 64)):
                break
        stop.set()
        if not is_done.wait(grace_s):
            _logger.warning("the process was asked to end and still works after %g s: it ends now.", grace_s)
            faulthandler.dump_traceback()
            os._exit(1)

    watcher = threading.Thread(target=watch, name="stopping", daemon=True)
    watcher.start()
    try:
        yield stop
    finally:
        is_done.set()
        with suppress(OSError):
            os.write(writable, bytes([signal.SIGTERM]))
        watcher.join()


_LOOK_S = 0.2  # the longest wait for an end or a message, after which deadlines are looked at
_AWAY_S = 1.0  # between two looks: this process was stopped meanwhile, and could not receive anything
_BACKOFF_S, _MAX_BACKOFF_S = 0.1, 5.0  # before one that died while it started is started again, doubled each time


Member: TypeAlias = ChildProcess | ChildThread


@dataclass(eq=False)
class Slot:
    """Place of one process after another, and its state, which only the thread of `Processes` changes.

    `make` gets the number of processes that have filled it before. `sources` are the names whose messages show that it
    works; one that has none is never silent.
    """

    name: str
    make: Callable[[int], Member]
    sources: tuple[str, ...] = ()
    member: Member | None = field(default=None, init=False)
    state: str = field(default="empty", init=False)  # "starting", "working", "waiting" after a loss, "done", "closed"
    since_s: float = field(default=0.0, init=False)  # that it is in this state
    due_s: float = field(default=0.0, init=False)  # when it is to be ready, or to be started again
    number: int = field(default=0, init=False)  # of processes that it has had
    deaths: int = field(default=0, init=False)  # in a row before one was ready
    loss: FailureRow | None = field(default=None, init=False)  # that is to be made good
    lost_s: float = field(default=0.0, init=False)
    excused: dict[str, float] = field(default_factory=dict, init=False)  # sources of lost parts: silent until then

    @property
    def kind(self) -> str:
        """The name without its number."""
        return self.name.rstrip("0123456789")


class Processes:
    """Supervisor of processes, one for each slot.

    One that ends, is not ready `start_timeout_s` after its start, or has a source without a message for
    `step_timeout_s` is killed and replaced, within a budget for each kind. `heard` returns when the last message of
    each source came, by the monotonic clock, and `lost` how many ordered rows are lost with some sources. Once a budget
    is spent, the run has failed ("stop"), or goes on without, as long as there is one of each kind ("shrink"): `check`
    raises why.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        *,
        policy: FailurePolicy | None = None,
        log: FailureLog | None = None,
        heard: Callable[[], Mapping[str, float]] = dict,
        lost: Callable[[Sequence[str]], int] = lambda _: 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy or FailurePolicy()
        self.log = log or FailureLog()
        self._heard, self._lost, self._clock = heard, lost, clock
        self._slots = slots
        kinds = {slot.kind for slot in slots}
        self._budgets = {kind: RestartBudget(self._policy.restarts_per_10min, clock=clock) for kind in kinds}
        self._parts: dict[str, tuple[FailureRow, float]] = {}  # parts of processes that were lost, and when
        self._changed = threading.Condition()  # guards the next two, and reports every change of a slot
        self._failure: Exception | None = None
        self._is_stopping = False
        self._awake_s = clock()  # when the thread ran last
        self._blind_until_s = float("-inf")  # it did not run for a while before, and could receive nothing
        self._thread = threading.Thread(target=self._watch, name="supervision", daemon=True)

    # --- from any thread

    def start(self, *, is_leaving: Callable[[], bool] = lambda: False) -> bool:
        """Start all, and wait until they are ready; False: `is_leaving` became true before.

        If one cannot be started, all are ended, and what it reported is raised; TrainingError if it was not ready in
        time.
        """
        try:
            self._thread.start()
            with self._changed:
                while not self._is_stopping and any(slot.state != "working" for slot in self._slots):
                    self.check()
                    if is_leaving():
                        return False
                    self._changed.wait(_LOOK_S)
            self.check()
        except BaseException:
            self.close()
            raise
        return True

    def check(self) -> None:
        """Raise why the run cannot go on, if it cannot."""
        if self._failure is not None:
            raise self._failure

    def describe(self) -> dict[str, str]:
        """Return the states of the processes: rows of a run's panel."""
        states = {kind: [slot.state for slot in self._slots if slot.kind == kind] for kind in self._budgets}
        rows = {
            kind: f"{each.count('working')} of {len(each)} at work"
            for kind, each in states.items()
            if {*each} != {"working"}
        }
        return {**rows, "failures": str(self.log)} if self.log.rows else rows

    def is_expected(self, source: str) -> bool:
        """Return whether a source is one of these processes', which works or is to be replaced."""
        return any(
            source in slot.sources and slot.state not in ("done", "closed") and slot.excused.get(source) != float("inf")
            for slot in self._slots
        )

    @property
    def pids(self) -> dict[str, int]:
        """The process ids of those that are ready, by slot."""
        members = {slot.name: slot.member for slot in self._slots if slot.state == "working"}
        return {name: member.pid for name, member in members.items() if member is not None and member.pid is not None}

    def members(self) -> list[tuple[Slot, int | None]]:
        """Return the slots, each with the id of its present process, if it has one."""
        members = [(slot, slot.member) for slot in self._slots]
        return [(slot, None if member is None else member.pid) for slot, member in members]

    def close(self, *, timeout_s: float = 10.0) -> None:
        """Ask all to end, kill those that have not after half of `timeout_s`, and release them; may be called again."""
        self._is_stopping = True
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        members = [slot.member for slot in reversed(self._slots) if slot.member is not None]
        for member in members:
            member.terminate()
        left = self._await_ends(members, timeout_s / 2)
        for member in left:
            member.kill()
        for member in self._await_ends(left, _KILL_S):
            _logger.warning("process %s was killed and is still there.", member.pid)
        for member in members:
            member.release()
        for slot in self._slots:
            slot.member, slot.state = None, "closed"

    def _await_ends(self, members: Iterable[Member], timeout_s: float) -> list[Member]:
        """Return those that have not ended after `timeout_s`."""
        deadline_s, left = self._clock() + timeout_s, [member for member in members if member.is_alive()]
        while left and (left_s := deadline_s - self._clock()) > 0:
            multiprocessing.connection.wait([member.sentinel for member in left], left_s)
            left = [member for member in left if member.is_alive()]
        return left

    # --- in the thread that watches

    def _watch(self) -> None:
        try:
            while not self._is_stopping:
                if self._failure is None:
                    self._look_at_deadlines()
                members = [slot.member for slot in self._slots if slot.member is not None]
                ends = [member.reports for member in members if member.reports is not None]
                multiprocessing.connection.wait([*ends, *(member.sentinel for member in members)], _LOOK_S)
                for slot in self._slots:
                    if slot.member is None:
                        continue
                    has_ended = not slot.member.is_alive()
                    for message in slot.member.take_messages():  # what it sent before it ended counts
                        self._take_message(slot, message)
                    if has_ended and slot.state == "done":
                        slot.member.release()
                        slot.member = None
                    elif has_ended:
                        self._lose(slot, slot.member.how_it_ended(), slot.member.error())
        except BaseException as error:  # any error of this thread ends the watch; `check` raises it
            self._fail(error if isinstance(error, Exception) else CommError(f"the supervisor has failed: {error!r}"))

    def _look_at_deadlines(self) -> None:
        """Start what is due, and kill what is late."""
        heard, now_s = self._heard(), self._clock()
        if now_s - self._awake_s > _AWAY_S:
            self._blind_until_s = now_s
        self._awake_s = now_s
        for slot in self._slots:
            if slot.state in ("empty", "waiting") and now_s >= slot.due_s:
                self._start(slot)
            elif slot.state == "starting" and now_s >= slot.due_s:
                how = f"was not ready {self._policy.start_timeout_s:g} s after its start (failure.start_timeout_s)"
                self._lose(slot, how, TrainingError(f"{slot.name} {how}: raise it, or see what the process waits for."))
            elif slot.state == "working":
                least_s = max(slot.since_s, self._blind_until_s)
                for source in slot.sources:
                    last_s = max(heard.get(source, least_s), least_s, slot.excused.get(source, least_s))
                    if slot.state == "working" and now_s - last_s >= self._policy.step_timeout_s:
                        self._lose(slot, f"{source} was silent for {self._policy.step_timeout_s:g} s")

    def _start(self, slot: Slot) -> None:
        slot.excused.clear()
        self._move(slot, "starting", within_s=self._policy.start_timeout_s)
        slot.number += 1
        try:
            slot.member = slot.make(slot.number - 1)
            slot.member.start()
        except Exception as error:  # starting runs the user's code; the loss is counted and reported
            self._lose(slot, f"could not be started: {error}", error)

    def _take_message(self, slot: Slot, message: Mapping[str, Json]) -> None:
        kind, worker = message["kind"], str(message.get("worker", ""))
        if kind == "ready":
            slot.deaths = 0
            self._move(slot, "working")
            if slot.loss is not None:
                ms = self._ms_since(slot.lost_s)
                self.log.amend(slot.loss, replaced_by=f"{slot.name} (start {slot.number})", replaced_ms=ms)
                _logger.info("%s was lost and replaced after %.0f ms.", slot.name, ms)
                slot.loss = None
        elif kind == "lost":
            how, lost = f"{message['type']}: {message['text']}", self._lost([worker])
            row = self.log.note(worker, how=how, rows_lost=lost, detail=f"a thread of {slot.name}")
            self._parts[worker] = row, self._clock()
            slot.excused[worker] = self._clock() + self._policy.start_timeout_s
        elif kind == "back" and worker in self._parts:
            row, lost_s = self._parts.pop(worker)
            self.log.amend(row, replaced_by=worker, replaced_ms=self._ms_since(lost_s))
            slot.excused[worker] = self._clock()
        elif kind == "gone":
            slot.excused[worker] = float("inf")
            if self._policy.when_spent == "stop":
                self._fail(error_of(worker, message))
        elif kind == "done":
            self._move(slot, "done")

    def _lose(self, slot: Slot, how: str, error: Exception | None = None) -> None:
        """Record that a process is lost and kill it; have another one started, or fail the run.

        The run fails if the first one in a slot had an error before it was ready: the next one would have it too.
        """
        state, member = slot.state, slot.member
        slot.member = None
        if member is not None:
            member.kill()
            self._await_ends([member], _KILL_S)
            member.release()
        slot.lost_s = self._clock()
        detail = "" if error is None else f"{type(error).__name__}: {error}"
        slot.loss = self.log.note(slot.name, how=how, role=state, rows_lost=self._lost(slot.sources), detail=detail)
        _logger.warning("%s is lost: %s%s", slot.name, how, f" ({detail})" if detail else "")
        if error is not None and slot.number == 1 and state == "starting":
            self._move(slot, "closed")
            self._fail(error)
        elif self._budgets[slot.kind].spend():
            slot.deaths += state == "starting"
            backoff_s = min(_BACKOFF_S * 2**slot.deaths, _MAX_BACKOFF_S) if slot.deaths else 0.0
            self._move(slot, "waiting", within_s=backoff_s)
        else:
            self._move(slot, "closed")
            others = [each for each in self._slots if each.kind == slot.kind and each.state != "closed"]
            if self._policy.when_spent == "stop" or not others:
                spent = TrainingError(failures.describe_spent(slot.loss, self._policy, least=1))
                spent.__cause__ = error
                self._fail(spent)

    def _ms_since(self, then_s: float) -> float:
        return round(1000 * (self._clock() - then_s), 1)

    def _move(self, slot: Slot, state: str, *, within_s: float = 0.0) -> None:
        with self._changed:
            slot.state, slot.since_s = state, self._clock()
            slot.due_s = slot.since_s + within_s
            self._changed.notify_all()

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()
