"""Processes that report when they are ready and why they fail, and end with their parent.

A pipe of JSON messages joins the two. The child ends when the parent's end of it is closed, in whatever way the parent
ends, or when it has another parent: the parent's end may have been inherited by another process.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

import ding_like.errors
from ding_like.comm.workers.failures import WorkerTracebackError
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
            _print_to(self._output)
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
    error.__cause__ = WorkerTracebackError(f"in worker {worker!r}:\n{failure['trace']}")
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


def _print_to(output: Path) -> None:
    """Have all that this process prints go to the end of a file of its own user."""
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for number in (1, 2):
        os.dup2(descriptor, number)
    os.close(descriptor)


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
