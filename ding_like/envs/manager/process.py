"""Worker processes for envs and games: how the manager starts and ends them, their messages, and their main loop.

Messages are JSON with arrays. Nothing that a worker process sends is unpickled: a value in an env's `info` that is
neither plain Python nor numpy arrives as its `repr`.
"""

from __future__ import annotations

import base64
import builtins
import contextlib
import faulthandler
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn, Protocol

import cloudpickle
import numpy as np

from ding_like import errors
from ding_like.errors import EnvError
from ding_like.types import EnvFn, Json, Section
from ding_like.utils.imports import raised_at

_BOOT = "import sys; sys.path[:] = {path!r}; sys.argv = {argv!r}; from {module} import main; main({ends})"
_LENGTH_BYTES = 4
_CHUNK_BYTES = 65536  # what a pipe holds: most messages are read at once
_KIND = "__kind__"  # marks a dict that encodes a value without a JSON type
_PLAIN = frozenset((str, int, float, bool, type(None)))


class Channel:
    """Pair of pipes that carries one message at a time; None is the cheapest message, four bytes without JSON."""

    def __init__(self, read_end: int, write_end: int, *, foreign: Callable[[Any], Any] = repr) -> None:
        self.read_end = read_end
        self._write_end = write_end
        self._foreign = foreign  # converts a value that is neither plain Python nor numpy

    def send(self, message: Json = None) -> None:
        """Send a message. Raises BrokenPipeError if the reader has ended."""
        body = b"" if message is None else json.dumps(_plain(message, self._foreign)).encode()
        data = len(body).to_bytes(_LENGTH_BYTES, "little") + body
        sent = os.write(self._write_end, data)
        while sent < len(data):
            sent += os.write(self._write_end, data[sent : sent + _CHUNK_BYTES])

    def receive(self) -> Json:
        """Wait for a message and return it. Raises EOFError if the other side has ended."""
        data, size = b"", _LENGTH_BYTES
        while len(data) < size:
            more = os.read(self.read_end, _CHUNK_BYTES)
            if not more:
                raise EOFError("the other side closed the pipe")
            data += more
            size = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
        return json.loads(data[_LENGTH_BYTES:], object_hook=_from_plain) if size > _LENGTH_BYTES else None

    def close_write_end(self) -> None:
        """Close the sending end, so that the other side reads the end of the pipe; a second call does nothing."""
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1

    def close(self) -> None:
        """Close both ends."""
        self.close_write_end()
        os.close(self.read_end)


def _plain(value: object, foreign: Callable[[Any], Any]) -> Any:
    """Return `value` as JSON holds it; `_from_plain` restores its types."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, dict):
        if all(type(key) is str for key in value) and _KIND not in value:
            return {key: _plain(inner, foreign) for key, inner in value.items()}
        items = [[_plain(key, foreign), _plain(inner, foreign)] for key, inner in value.items()]
        return {_KIND: "dict", "items": items}
    if isinstance(value, (list, tuple)):
        items = [_plain(inner, foreign) for inner in value]
        return items if isinstance(value, list) else {_KIND: "tuple", "items": items}
    if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject and value.dtype.names is None:
        kind = "array" if isinstance(value, np.ndarray) else "scalar"
        data = base64.b64encode(value.tobytes()).decode()
        return {_KIND: kind, "dtype": value.dtype.str, "shape": value.shape, "data": data}
    if isinstance(value, bytes):
        return {_KIND: "bytes", "data": base64.b64encode(value).decode()}
    return foreign(value)


def _from_plain(value: dict[str, Any]) -> Any:
    kind = value.get(_KIND)
    if kind is None:
        return value
    if kind in ("dict", "tuple"):
        return dict(value["items"]) if kind == "dict" else tuple(value["items"])
    data = base64.b64decode(value["data"])
    if kind == "bytes":
        return data
    array = np.frombuffer(data, value["dtype"]).reshape(value["shape"])
    return array.copy() if kind == "array" else array[()]


def refuse_foreign(value: object) -> NoReturn:
    """Raise EnvError for a value that would not arrive as it is."""
    raise EnvError(
        f"the state_dict of a wrapper, or reset options hold {value!r}, a {type(value).__name__}; between the manager "
        "and an env in a process of its own go plain Python and numpy only. Build such objects inside the env, or use "
        "manager type 'base'."
    )


def check_arrives(value: object) -> None:
    """Raise EnvError if a part of `value` would arrive as its `repr`."""
    _plain(value, refuse_foreign)


def describe_failure(error: BaseException) -> dict[str, str]:
    """Return an exception as texts, from which `failure_of` makes an equal one without importing its class."""
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    kind = {"module": type(error).__module__, "name": type(error).__name__}
    return {**kind, "text": str(error), "trace": trace, "at": raised_at(error)}


class RemoteError(Exception):
    """Traceback of the env's own process: the cause of the exception that is raised in this one."""

    def __str__(self) -> str:
        return f"in the env's process:\n{self.args[0]}"


def failure_of(described: dict[str, str]) -> Exception:
    """Return an exception of the described class, or of one with its name if it is neither builtin nor ours."""
    home = {"builtins": builtins, "ding_like.errors": errors}.get(described["module"])
    kind = getattr(home, described["name"], None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        kind = type(described["name"], (Exception,), {})
    try:
        error: Exception = kind(described["text"])
    except TypeError:  # UnicodeDecodeError and a few others take more than a text
        error = RuntimeError(f"{described['name']}: {described['text']}")
    error.__cause__ = RemoteError(described["trace"])
    vars(error)["raised_at"] = described["at"]  # read by `utils/imports.py`
    return error


# --- in the manager's process


def anonymous_file() -> int:
    """Return the descriptor of memory without a name: the system frees it with the last process that holds it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("env process")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class WorkerProcess:
    """Fresh Python interpreter that runs the `main` of one of our modules and is sent `start`, pickled.

    It is not a `multiprocessing.Process`, which would import the user's script, and with it all that the script imports
    (torch: seconds, hundreds of megabytes), and require a `__main__` guard in it.
    """

    def __init__(self, module: str, start: Any, *descriptors: int) -> None:
        """Start it without waiting; `main` gets what `serve` takes, and `descriptors`, which it inherits."""
        theirs_read, ours_write = os.pipe()
        ours_read, theirs_write = os.pipe()
        life_read, self._life = os.pipe()
        theirs = (theirs_read, theirs_write, life_read)
        self.channel = Channel(ours_read, ours_write, foreign=refuse_foreign)
        self.is_running = True
        # In a file: to write it into a pipe would be to wait until the process reads.
        start_file = anonymous_file()
        with open(start_file, "wb", closefd=False) as file:
            file.write(ForkingPickler.dumps(start))
        inherited = (*theirs, start_file, *descriptors)
        path = [str(folder) for folder in sys.path]
        boot = _BOOT.format(path=path, argv=sys.argv, module=module, ends=", ".join(map(str, inherited)))
        try:
            self._popen = subprocess.Popen(
                [sys.executable, "-c", boot],
                stdin=subprocess.DEVNULL,
                pass_fds=inherited,
                # A group of its own: Ctrl-C in the terminal does not reach it, and a kill ends all that its envs
                # have started.
                start_new_session=True,
                # Envs side by side must not each take all cores for their linear algebra.
                env={"OMP_NUM_THREADS": "1", **os.environ},
            )
        finally:
            for end in (*theirs, start_file):
                os.close(end)

    def send(self, message: Json = None) -> None:
        """Send a message; that the process has ended is noticed when its answer is read."""
        with contextlib.suppress(BrokenPipeError):
            self.channel.send(message)

    def end(self) -> str:
        """Kill the process and all that its envs have started; return how it ended."""
        self.is_running = False
        # One that has ended already keeps its exit code.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        code = self._popen.wait()
        self.channel.close()
        os.close(self._life)
        return f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def stop_all(processes: Iterable[WorkerProcess], timeout_s: float) -> int:
    """End processes: idle ones close their envs, others are killed after `timeout_s`. Return how many were killed."""
    running = {process.channel.read_end: process for process in processes if process.is_running}
    poll = select.poll()
    for read_end, process in running.items():
        poll.register(read_end, select.POLLIN)
        process.channel.close_write_end()
    give_up_s = time.monotonic() + timeout_s
    while running and (left_s := give_up_s - time.monotonic()) > 0:
        for read_end, _ in poll.poll(left_s * 1000):
            if not os.read(read_end, 65536):  # anything else is an answer that is not waited for
                poll.unregister(read_end)
                running.pop(read_end).end()
    for process in running.values():
        process.end()
    return len(running)


def pickle_env_fns(env_fn: Sequence[EnvFn]) -> list[bytes]:
    """Return the callables as bytes that a new process makes them from: by name, those of the script with their code.

    Raises EnvError naming one that cannot be sent.
    """
    return [_pickle(lane, make) for lane, make in enumerate(env_fn)]


def _pickle(lane: int, make: EnvFn) -> bytes:
    # Written here and read by a process that this one starts, through a file: no other pickle is ever loaded.
    try:
        return bytes(cloudpickle.dumps(make))
    except Exception as error:  # __reduce__ of a user's class may raise anything
        raise EnvError(
            f"env {lane} cannot be made in a process of its own: {make!r} cannot be pickled "
            f"({type(error).__name__}: {error}). Give env_fn a class or function at the top of a module, a "
            "functools.partial of one, or an EnvFactory; or use manager type 'base'."
        ) from error


# --- in a worker process


class Worker(Protocol):
    """Owner of the envs or the game of one worker process."""

    def made(self) -> Section:
        """Return the first answer: what was made."""

    def carry_out(self, command: Json) -> Json:
        """Carry out one command and return the answer."""

    def close(self) -> None: ...


def serve(read_end: int, write_end: int, life: int, start_file: int, make: Callable[[Any], Worker]) -> None:
    """Make a worker of the start message and answer commands until the manager closes the pipes or ends."""
    for descriptor in (read_end, write_end, life):
        os.set_inheritable(descriptor, False)
    _die_with_the_manager(life)
    faulthandler.enable()
    # The manager decides when its envs end: Ctrl-C and a scheduler's SIGTERM are sent to it too. Handlers rather than
    # SIG_IGN, which programs that an env starts would inherit.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: None)
    channel = Channel(read_end, write_end)
    with contextlib.suppress(EOFError, BrokenPipeError):
        with open(start_file, "rb") as file:
            file.seek(0)
            start = ForkingPickler.loads(file.read())
        try:
            worker = make(start)
            made = worker.made()
        except Exception as error:  # importing and making envs runs the user's code; the manager raises it
            channel.send({"failure": describe_failure(error)})
            return
        try:
            channel.send(made)
            while True:
                channel.send(worker.carry_out(channel.receive()))
        finally:
            worker.close()


def _die_with_the_manager(life: int) -> None:
    """Have the system end this process when the manager's end of the `life` pipe closes, whatever an env is doing.

    The end of the pipe is a signal of the kernel's, SIGIO, and its default is death: no lock of the interpreter is in
    the way, as it would be for a thread that watches.
    """
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
