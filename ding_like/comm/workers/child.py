"""Run a part of a run in a process of its own, which says when it is ready and why it fails, and ends with its parent.

The two are joined by a pipe of JSON messages. Its end tells the child that its parent has ended, in whatever way; on
Linux the system says so too, in case somebody else has inherited the parent's end.
"""

from __future__ import annotations

import ctypes
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
from typing import Any

import ding_like.errors
from ding_like.comm.workers.raised import WorkerTracebackError
from ding_like.errors import CommError, ConfigError, DingError, TrainingError
from ding_like.utils.processes import describe_status

_MAX_TEXT = 8_000  # characters of an error, or of a traceback, that are told: the pipe holds several of them
_TAIL = 2_000  # bytes of an output file that are looked at for last words
_PR_SET_PDEATHSIG = 1
# Sent by the system when the thread that started the child has ended, which need not be the end of the process.
_PARENT_SIGNAL = signal.SIGUSR1
_KILL_S = 5.0  # for a process that was killed to be gone
_environment = threading.Lock()  # while a child inherits a changed one
_telling = threading.Lock()

_logger = logging.getLogger(__name__)


class ChildProcess(SpawnProcess):
    """Be the base of a process that serves until it is asked to end.

    A subclass implements `serve(stop)`, calls `tell_ready` once it can work, and returns soon after `stop` is set: by
    SIGTERM, or because the parent has ended. One that does not return `grace_s` later is ended without being asked.
    What `serve` raises is told to the parent, and the process exits with status 1. It is pickled to be started, as
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
        self._parent_pid = os.getpid()
        self._parent_end, self._child_end = None, None  # type: Connection | None, Connection | None
        self._info: Mapping[str, Any] | None = None
        self._failure: Mapping[str, Any] | None = None

    # --- in the child

    def serve(self, stop: threading.Event) -> None:
        """Work until `stop` is set."""
        raise NotImplementedError

    def tell_ready(self, **info: Any) -> None:
        """Tell the parent that this process can work, with what it wants to know, as plain JSON."""
        self.tell("ready", **info)

    def tell(self, kind: str, **plain: Any) -> None:
        """Send the parent a message, unless it has ended or does not read what it is sent."""
        assert self._child_end is not None, "only the process itself tells"
        message = json.dumps({**plain, "kind": kind}).encode()
        with _telling:
            poll = select.poll()
            poll.register(self._child_end, select.POLLOUT)
            # A pipe into which anything can be written has room for several messages.
            if any(event & select.POLLOUT for _, event in poll.poll(0)):
                with suppress(OSError):
                    self._child_end.send_bytes(message)

    def run(self) -> None:
        """Serve, in the process itself."""
        assert self._child_end is not None, "start comes first"
        self._config["daemon"] = False  # type: ignore[attr-defined]  # or multiprocessing would refuse it children
        os.setsid()  # Ctrl-C in the terminal is for the parent; and a kill takes along what this process has started
        if self._output is not None:
            _print_to(self._output)
        faulthandler.enable()
        with _stopping(self._child_end, self._parent_pid, self._grace_s) as stop:
            try:
                self.serve(stop)
            except BaseException as error:  # also SystemExit: the parent gets the cause before the process ends
                self.tell("failed", **describe_error(error))
                raise

    # --- in the parent

    def start(self) -> None:
        """Start the process, without waiting for it. Raises ConfigError if it cannot be sent there."""
        self._join_ends()
        try:
            with _environment, _single_threaded():
                super().start()
        except OSError:
            self.release()
            raise
        except Exception as error:  # __reduce__ of a user's class may raise anything
            self.release()
            raise ConfigError(
                f"{self.name} cannot be sent to a process of its own ({type(error).__name__}: {error}). Give classes "
                "and functions at the top of a module, or a functools.partial of one, and start what a script does "
                "under  if __name__ == '__main__':"
            ) from error
        finally:
            self._close_end()

    def _join_ends(self) -> None:
        self._parent_end, self._child_end = multiprocessing.connection.Pipe()

    def __getstate__(self) -> dict[str, Any]:
        """Return what goes to the child: all but the parent's end of the pipe, which would never close."""
        return {**self.__dict__, "_parent_end": None}

    @property
    def reports(self) -> Connection | None:
        """Return what becomes readable when there are messages; None before the start and after the last message."""
        return self._parent_end

    def take_messages(self) -> list[Mapping[str, Any]]:
        """Return the messages that have come since, the oldest first, without waiting; each has a `kind`."""
        found: list[Mapping[str, Any]] = []
        end = self._parent_end
        try:
            while end is not None and end.poll():
                found.append(json.loads(end.recv_bytes(1_000_000)))
        except (EOFError, OSError):
            self._close_reports()
        for message in found:
            if message["kind"] == "ready":
                self._info = {key: value for key, value in message.items() if key != "kind"}
            elif message["kind"] == "failed":
                self._failure = message
        return found

    def wait_ready(self, *, timeout_s: float) -> Mapping[str, Any]:
        """Wait until the process has said that it is ready; return what it said besides.

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
            ends = [] if self._parent_end is None else [self._parent_end]
            multiprocessing.connection.wait([self.sentinel, *ends], left_s)

    def _close_end(self) -> None:
        assert self._child_end is not None, "start comes first"
        self._child_end.close()

    def error(self) -> Exception | None:
        """Return what the process told that it failed with; None: nothing."""
        return None if self._failure is None else error_of(self.name, self._failure)

    def how_it_ended(self) -> str:
        """Say how a process that has ended did, with the last line that it printed if that went to a file."""
        assert self.exitcode is not None, "it has not ended"
        words = last_words(self._output) if self.exitcode != 0 and self._output is not None else ""
        return describe_status(self.exitcode) + (f" ({words})" if words else "")

    def kill(self) -> None:
        """Kill the process, and what it has started, at once."""
        with suppress(ProcessLookupError, PermissionError):  # it has no group of its own yet, or has ended
            if self.pid is not None and self.exitcode is None:
                os.killpg(self.pid, signal.SIGKILL)
        if self._popen is not None:  # type: ignore[attr-defined]  # or it was never started
            super().kill()

    def terminate(self) -> None:
        """Ask the process to end; one that was stopped (SIGSTOP) is let go on, so that it hears it."""
        if self._popen is not None:  # type: ignore[attr-defined]  # or it was never started
            super().terminate()
        if self.pid is not None and self.exitcode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)

    def end(self, *, timeout_s: float = 5.0) -> None:
        """Ask the process to end, kill it if it has not after `timeout_s`, and release it; may be called again."""
        if self._popen is not None:  # type: ignore[attr-defined]  # started, and not released
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
        if self._parent_end is not None:
            self._parent_end.close()
            self._parent_end = None


class ChildThread:
    """Thread of this process that does the work of a `ChildProcess` and behaves like one; it cannot be killed.

    `on_end` is called in the thread when it ends.
    """

    pid: int | None = None

    def __init__(self, child: ChildProcess, *, on_end: Callable[[], None] = lambda: None) -> None:
        self._child, self._on_end = child, on_end
        self._stop = threading.Event()
        self.exitcode: int | None = None
        self.sentinel, self._ended = os.pipe()
        self._thread = threading.Thread(target=self._run, name=child.name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._child._join_ends()
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the end of the thread, for at most `timeout_s`."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        status = 1
        try:
            self._child.serve(self._stop)
            status = 0
        except BaseException as error:  # also SystemExit of an env: the owner gets it and raises it
            self._child.tell("failed", **describe_error(error))
        finally:
            self._child._close_end()
            self.exitcode = status
            os.close(self._ended)
            self._on_end()

    @property
    def reports(self) -> Connection | None:
        """Return what becomes readable when there are messages."""
        return self._child.reports

    def take_messages(self) -> list[Mapping[str, Any]]:
        """Return the messages that have come since, the oldest first."""
        return self._child.take_messages()

    def is_alive(self) -> bool:
        """Tell whether it still works."""
        return self._thread.ident is not None and self.exitcode is None

    def error(self) -> Exception | None:
        """Return what it failed with; None: nothing."""
        return self._child.error()

    def how_it_ended(self) -> str:
        """Say how it ended."""
        assert self.exitcode is not None, "it has not ended"
        return describe_status(self.exitcode)

    def terminate(self) -> None:
        """Ask it to end."""
        self._stop.set()

    kill = terminate

    def release(self) -> None:
        """Close what is held of one that has ended, or was never started; may be called again."""
        if not self.is_alive():
            self._child.release()
            if self._thread.ident is not None:
                self._thread.join()
            elif self._ended >= 0:
                os.close(self._ended)
            if self._ended >= 0:
                os.close(self.sentinel)
            self._ended = -1


def describe_error(error: BaseException) -> dict[str, str]:
    """Return an error as plain JSON, for `error_of`."""
    trace = "".join(traceback.format_exception(error))
    return {"type": type(error).__name__, "text": str(error)[:_MAX_TEXT], "trace": trace[-_MAX_TEXT:]}


def error_of(worker: str, told: Mapping[str, Any]) -> Exception:
    """Return the error that a worker told of: of ding_like's own kinds, or TrainingError that names the kind.

    Its cause says where it was raised.
    """
    kind = getattr(ding_like.errors, str(told["type"]), None)
    if isinstance(kind, type) and issubclass(kind, DingError):
        error: Exception = kind(f"{worker}: {told['text']}")
    else:
        error = TrainingError(f"{worker}: {told['type']}: {told['text']}")
    error.__cause__ = WorkerTracebackError(f"in worker {worker!r}:\n{told['trace']}")
    return error


def last_words(output: Path) -> str:
    """Return the last line of a file, "" where there is none."""
    try:
        with open(output, "rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL, 0))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].strip() if lines else ""


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Let children that are started meanwhile compute in one thread, unless the user says otherwise."""
    names = [name for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS") if name not in os.environ]
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)


def _print_to(output: Path) -> None:
    """Have all that this process prints go to the end of a file that nobody else may read."""
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for number in (1, 2):
        os.dup2(descriptor, number)
    os.close(descriptor)


@contextmanager
def _stopping(link: Connection, parent_pid: int, grace_s: float) -> Iterator[threading.Event]:
    """Yield what is set by SIGTERM and by the end of the parent, and end the process where that is not heeded."""
    stop, is_done = threading.Event(), threading.Event()
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    # The number of a signal is written at once, whatever Python code runs; a handler would wait for it, and could not
    # set an event that is being waited for.
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, _PARENT_SIGNAL):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _ask_to_be_told(_PARENT_SIGNAL)

    def watch() -> None:
        _wait_for_end(link, readable, parent_pid)
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


def _wait_for_end(link: Connection, signals: int, parent_pid: int) -> None:
    """Return once this process is to end: SIGTERM came, or the parent has ended."""
    while True:
        for ready in multiprocessing.connection.wait([link, signals]):
            if ready is link:
                return  # the parent sends nothing: its end was closed
            if signal.SIGTERM in os.read(signals, 64) or os.getppid() != parent_pid:
                return


def _ask_to_be_told(number: int) -> None:
    """Have the system send a signal when the parent ends; where it is not Linux, the pipe alone tells."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
