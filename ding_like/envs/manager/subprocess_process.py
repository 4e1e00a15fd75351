"""Start, watch and end the process that steps some lanes' envs; what runs in it is `subprocess_worker`."""

from __future__ import annotations

import multiprocessing.spawn
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ding_like.envs.manager import subprocess_worker
from ding_like.envs.manager.subprocess_memory import Doing
from ding_like.envs.manager.subprocess_message import Channel, refuse_foreign
from ding_like.envs.manager.subprocess_worker import Start
from ding_like.errors import EnvError

_ROOT = str(Path(__file__).parents[3])
_BOOT = "import sys; sys.path.insert(0, {root!r}); from {module} import main; main({ends})"
# What multiprocessing tells a new process, less what only its own processes need.
_PREPARATION = ("sys_path", "sys_argv", "orig_dir", "dir", "init_main_from_name", "init_main_from_path")


class Command(NamedTuple):
    """Hold what a process was told last and has not answered."""

    kind: Literal["start", "replay", "begin", "ask", "step"]
    tasks: Mapping[int, object]  # what each lane was to do, the caller's matter; in the order in which it is done
    sent_s: float


class Interpreter:
    """Run the `main` of one of our modules in a process of its own, with pipes to it; one closes when this one ends.

    It is a fresh interpreter, not a `multiprocessing.Process`: that would import the user's script, and with it
    whatever the script imports (torch: seconds, hundreds of megabytes), and demand a `__main__` guard in it. The script
    is imported only if the pickled envs name something in it.
    """

    def __init__(self, module: str, *descriptors: int) -> None:
        """Start it, without waiting: `main` is given the ends of three pipes and `descriptors`, which it inherits."""
        theirs_read, ours_write = os.pipe()
        ours_read, theirs_write = os.pipe()
        life_read, self._life = os.pipe()
        theirs = (theirs_read, theirs_write, life_read)
        self.channel = Channel(ours_read, ours_write, foreign=refuse_foreign)
        boot = _BOOT.format(root=_ROOT, module=module, ends=", ".join(map(str, (*theirs, *descriptors))))
        try:
            self._popen = subprocess.Popen(
                [multiprocessing.spawn.get_executable() or sys.executable, "-c", boot],
                stdin=subprocess.DEVNULL,
                pass_fds=(*theirs, *descriptors),
                # A group of its own: Ctrl-C in the terminal does not reach it, and a kill takes along what its envs
                # have started.
                start_new_session=True,
                # Envs side by side must not each take all cores for their linear algebra.
                env={"OMP_NUM_THREADS": "1", **os.environ},
            )
        finally:
            for end in theirs:
                os.close(end)

    def wait(self, timeout_s: float) -> None:
        """Wait until it ends by itself, at most so long."""
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout_s)

    def end(self) -> str:
        """End it, and what it has started, at once; return what it died of."""
        # One that has ended already keeps its exit code.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        code = self._popen.wait()
        self.channel.close()
        os.close(self._life)
        return f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


class EnvProcess:
    """Hold one process and the command it is carrying out."""

    def __init__(self, start: Start, memory_file: int) -> None:
        self.lanes = list(start.lanes)
        self.command: Command | None = None
        self.doing: Doing | None = None  # None until the memory is laid out
        self._start = start
        self._memory_file = memory_file
        self._interpreter: Interpreter | None = None

    def start(self, spaces: Sequence[Any] | None = None) -> None:
        """Start the process, without waiting for it; `spaces` as described by an earlier one."""
        self._start = self._start._replace(spaces=spaces)
        self._interpreter = Interpreter(subprocess_worker.__name__, self._memory_file)
        self._channel = self._interpreter.channel
        self.command = Command("start", {}, time.monotonic())

    @property
    def read_end(self) -> int:
        """Return the descriptor that becomes readable when the process answers or ends."""
        return self._channel.read_end

    def send(
        self, kind: Literal["replay", "begin", "ask", "step"], tasks: Mapping[int, object], message: Any = None
    ) -> None:
        """Send a command; None steps all lanes. That a process has ended shows when its answer is read."""
        self.command = Command(kind, tasks, time.monotonic())
        with suppress(BrokenPipeError):
            self._channel.send(message)

    def receive(self) -> tuple[Command, Any] | None:
        """Return a command and its answer; None if the process has just been told what it runs.

        Raises EOFError if the process has ended.
        """
        answer = self._channel.receive()
        assert self.command is not None, "a process speaks only when it was spoken to"
        if self.command.kind == "start" and answer is None:
            with suppress(BrokenPipeError):
                self._channel.send(bytes(ForkingPickler.dumps(self._start)))
            return None
        command, self.command = self.command, None
        return command, answer

    def working_on(self) -> tuple[float, int, int] | None:
        """Return (begun at, lane, kind) of the work that is going on, None if there is none or it cannot be told."""
        return self.doing.read() if self.doing is not None and self.command is not None else None

    def end(self) -> str:
        """End the process, and what its envs have started, at once; return what it died of."""
        assert self._interpreter is not None, "a process that was never started has no end"
        interpreter, self._interpreter = self._interpreter, None
        how = interpreter.end()
        self.command = None
        if self.doing is not None:
            self.doing.forget()
        return how

    def stop(self) -> None:
        """Ask an idle process to close its envs and end; does not wait."""
        self._channel.close_write_end()

    @property
    def is_running(self) -> bool:
        return self._interpreter is not None


def stop_all(processes: Iterable[EnvProcess], timeout_s: float) -> int:
    """End all processes: closing their envs, or killed after `timeout_s`. Return how many had to be killed."""
    running = {process.read_end: process for process in processes if process.is_running}
    poll = select.poll()
    for read_end, process in running.items():
        poll.register(read_end, select.POLLIN)
        process.stop()
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
    """Be the pickle of a callable that carries its code along, so that no module of the user's needs to be imported."""


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
        # It is written here and read by a process that this one has started and told by a pipe: nobody else's pickle
        # is ever loaded.
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
    """Return what a new process needs to know to unpickle the envs."""
    if subprocess_worker.is_importing_main:
        raise EnvError(
            "a process for envs was importing this script for the env class in it, and the script started processes "
            "again. Put what runs at the end of the script under  if __name__ == '__main__':"
        )
    data = multiprocessing.spawn.get_preparation_data("env process")
    if not any(b"_main__" in pickled for pickled in env_fns if not isinstance(pickled, ByValue)):
        data = {key: value for key, value in data.items() if not key.startswith("init_main")}
    return {key: data[key] for key in _PREPARATION if key in data}
