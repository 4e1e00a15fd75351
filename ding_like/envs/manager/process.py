"""Worker processes for envs and games: how the manager starts and ends them, and what runs in them."""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import multiprocessing.spawn
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, Protocol

from ding_like.envs.manager.message import Channel, describe_failure, refuse_foreign
from ding_like.errors import EnvError

_ROOT = str(Path(__file__).parents[3])
_BOOT = "import sys; sys.path.insert(0, {root!r}); from {module} import main; main({ends})"
# What multiprocessing sends to a new process, without what only its own processes need.
_PREPARATION = ("sys_path", "sys_argv", "orig_dir", "dir", "init_main_from_name", "init_main_from_path")

# True while a worker process imports the script that started it: that script must not start processes then.
_is_importing_main = False


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
    (torch: seconds, hundreds of megabytes), and require a `__main__` guard in it. The script is imported only if the
    pickled envs name something in it.
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
        boot = _BOOT.format(root=_ROOT, module=module, ends=", ".join(map(str, inherited)))
        try:
            self._popen = subprocess.Popen(
                [multiprocessing.spawn.get_executable() or sys.executable, "-c", boot],
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

    def send(self, message: Any = None) -> None:
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
    """End processes: let idle ones close their envs, kill the others after `timeout_s`. Return how many were killed."""
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


class ByValue(bytes):
    """Pickle of a callable that carries its code along, so that no module of the user needs to be imported."""


def pickle_env_fns(env_fn: Sequence[Callable[[], Any]]) -> list[bytes]:
    """Return the callables as what a new process makes them from. Raises EnvError naming one that cannot be sent."""
    return [_pickle(lane, make) for lane, make in enumerate(env_fn)]


def _pickle(lane: int, make: Callable[[], Any]) -> bytes:
    """Return one callable pickled by its name; a lambda, a closure or a class of the script with its code."""
    try:
        return bytes(ForkingPickler.dumps(make))
    except Exception as error:  # __reduce__ of a user's class may raise anything
        reason: Exception = error
    try:
        # It is written here and read by a process that this one has started, through a pipe: no other pickle is ever
        # loaded.
        import cloudpickle

        return ByValue(cloudpickle.dumps(make))
    except ImportError:
        hint = " Lambdas and closures can be sent once cloudpickle is installed: pip install cloudpickle."
    except Exception as error:  # as above, from cloudpickle
        reason, hint = error, ""
    raise EnvError(
        f"env {lane} cannot be made in a process of its own: {make!r} cannot be pickled "
        f"({type(reason).__name__}: {reason}). Give env_fn a class or function at the top of a module, a "
        f"functools.partial of one, or an EnvFactory; or use manager type 'base'.{hint}"
    ) from reason


def preparation(env_fns: Sequence[bytes]) -> dict[str, Any]:
    """Return what a new process needs to unpickle the envs: `sys.path` and, if they name it, the user's script."""
    if _is_importing_main:
        raise EnvError(
            "a process for envs was importing this script for the env class in it, and the script started processes "
            "again. Put what runs at the end of the script under  if __name__ == '__main__':"
        )
    data = multiprocessing.spawn.get_preparation_data("env process")
    if not any(b"_main__" in pickled for pickled in env_fns if not isinstance(pickled, ByValue)):
        data = {key: value for key, value in data.items() if not key.startswith("init_main")}
    return {key: data[key] for key in _PREPARATION if key in data}


# --- in a worker process


class Worker(Protocol):
    """Owner of the envs or the game of one worker process."""

    def made(self) -> dict[str, Any]:
        """Return the first answer: what was made."""

    def carry_out(self, command: Any) -> Any:
        """Carry out one command and return the answer."""

    def close(self) -> None: ...


def serve(read_end: int, write_end: int, life: int, start_file: int, make: Callable[[Any], Worker]) -> None:
    """Make a worker of the start message and let it answer commands until the manager closes the pipes or ends."""
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
            _prepare(start.preparation)
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


def _prepare(preparation: dict[str, Any]) -> None:
    """Import the script that started this process, if the envs need it, without starting what it starts."""
    global _is_importing_main
    _is_importing_main = True
    multiprocessing.spawn.prepare(preparation)
    _is_importing_main = False


def _die_with_the_manager(life: int) -> None:
    """Have the system end this process when the manager's end of the `life` pipe closes, whatever an env is doing.

    The end of the pipe is a signal of the kernel's, SIGIO, and its default is death: no lock of the interpreter is in
    the way, as it would be for a thread that watches.
    """
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
