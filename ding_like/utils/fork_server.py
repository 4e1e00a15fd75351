"""Process that has imported what its children need, and forks them: each can work within milliseconds. Linux only.

A socket joins the server and its owner. With each request come three files: the child's standard input, what it prints
to, and a pipe by which the owner is sent the child's process id, and later how it ended. When the owner closes the
socket, or ends in whatever way, the server ends after its last child; children notice the owner's end by
`processes.watch_parent`. When the server ends before them, the kernel kills them.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import pkgutil
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ding_like.errors import ConfigError, TrainingError
from ding_like.utils.processes import ENDING_SIGNALS, forget_child, last_line, mark_child, one_thread, start_child

# What the workers of mode parallel run, and what they import.
WORKERS = "ding_like.entry.cli:main", ("ding_like.entry.dist_entry",)
IS_POSSIBLE = sys.platform == "linux"
_MOST_BYTES = 1 << 16  # of a request
_START_S = 120.0  # for the server's imports, on a busy machine
_KILL_S = 5.0  # for a server that was killed to be gone
_NUMBER = struct.Struct("i")
_LOST = -9  # SIGKILL: how a child has ended whose server has
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15  # linux/prctl.h


class ForkedChild:
    """Child of a `ForkServer`, with the methods of a subprocess.Popen that this package uses."""

    def __init__(self, pid: int, ended: int, stdin: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdin = os.fdopen(stdin, "wb")
        self._ended = ended  # the pipe by which its end is reported
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return how it ended, as Popen does; None: it has not."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Return how it ended. Raises subprocess.TimeoutExpired if it has not after `timeout` seconds."""
        with self._lock:
            if self.returncode is None:
                if not select.select([self._ended], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(str(self.pid), timeout)
                status = os.read(self._ended, _NUMBER.size)
                self.returncode = _NUMBER.unpack(status)[0] if status else _LOST
                os.close(self._ended)
            return self.returncode

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sig)


class ForkServer:
    """Starter of children that run `main`, "module:function", which gets their arguments.

    Its module and `imports` are imported at once. Children compute in one thread, unless OMP_NUM_THREADS and
    OPENBLAS_NUM_THREADS say otherwise.
    """

    _early: ForkServer | None = None

    def __init__(self, main: str, imports: Sequence[str] = ()) -> None:
        if not IS_POSSIBLE:
            raise ConfigError("a fork server needs Linux; start workers as processes of their own with `start_child`.")
        self._output = tempfile.TemporaryFile()  # closed by `close`
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "ding_like.utils.fork_server", str(theirs.fileno()), main, *imports]
        with theirs:
            self._process = start_child(
                command,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                env=one_thread(),
                pass_fds=[theirs.fileno()],
            )

    @classmethod
    def begin(cls, main: str, imports: Sequence[str] = ()) -> None:
        """Start a server, which the next `take` returns: it imports while this process does."""
        cls._early = cls(main, imports)

    @classmethod
    def end_early(cls) -> None:
        """End the server that `begin` started, if none has taken it."""
        early, cls._early = cls._early, None
        if early is not None:
            early._process.kill()
            early.close()

    @classmethod
    def take(cls, main: str, imports: Sequence[str] = ()) -> ForkServer:
        """Return the server that `begin` started, else a new one."""
        early, cls._early = cls._early, None
        return cls(main, imports) if early is None else early

    @property
    def is_alive(self) -> bool:
        """Whether it can start children."""
        return self._process.poll() is None

    def start(self, name: str, arguments: Sequence[str], *, output: Path) -> ForkedChild:
        """Start a child, whose output goes to the end of a file, once the server's imports are done.

        Raises TrainingError, with the last line that the server printed, where it has ended.
        """
        (stdin, owner_end), (ended, their_end) = os.pipe(), os.pipe()
        printed = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            with suppress(OSError):  # it has ended: nothing will come
                message = json.dumps({"name": name, "arguments": list(arguments)}).encode()
                socket.send_fds(self._link, [message], [stdin, printed, their_end])
        finally:
            for descriptor in (stdin, printed, their_end):
                os.close(descriptor)
        is_there = bool(select.select([ended], [], [], _START_S)[0])
        pid = os.read(ended, _NUMBER.size) if is_there else b""
        if not pid:
            os.close(ended)
            os.close(owner_end)
            words = last_line(Path("/proc/self/fd", str(self._output.fileno()))) or "it printed nothing"
            raise TrainingError(f"the process that starts workers has started none: {words}")
        return ForkedChild(_NUMBER.unpack(pid)[0], ended, owner_end)

    def close(self, *, timeout_s: float = 5.0) -> None:
        """Let the server end after its last child, and kill it if it has not in time; may be called again."""
        self._link.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(_KILL_S)
        forget_child(self._process)
        self._output.close()


# --- in the server


def _serve(link: socket.socket) -> list[str]:
    """Fork a child for each request; return its arguments in the child. In the server it returns none: it exits."""
    children: dict[int, int] = {}  # pid: the pipe to report its end by
    wakes, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # Those of a terminal, or of a whole group of processes, are for the owner and the children: all ends by the link.
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, *ENDING_SIGNALS)}
    gc.freeze()  # so that collecting garbage writes to no page that is shared
    is_open = True
    while is_open or children:
        ready = select.select([wakes, *([link.fileno()] if is_open else [])], [], [])[0]
        if wakes in ready:
            os.read(wakes, 64)
            _report_ends(children)
        if link.fileno() in ready:
            message, files, *_ = socket.recv_fds(link, _MOST_BYTES, 3)
            is_open = bool(message)
            if is_open:
                request, server_pid = json.loads(message), os.getpid()
                pid = os.fork()
                if pid == 0:
                    for descriptor in (*children.values(), wakes, woken):
                        os.close(descriptor)
                    for number, handler in before.items():
                        signal.signal(number, handler)
                    _become_child(request["name"], files, server_pid)
                    return list(request["arguments"])
                os.write(files[2], _NUMBER.pack(pid))
                children[pid] = files[2]
                for descriptor in files[:2]:
                    os.close(descriptor)
    sys.exit(0)


def _report_ends(children: dict[int, int]) -> None:
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pipe = children.pop(ended[0])
            with suppress(BrokenPipeError):  # the owner has ended
                os.write(pipe, _NUMBER.pack(os.waitstatus_to_exitcode(ended[1])))
            os.close(pipe)


def _become_child(name: str, files: Sequence[int], server_pid: int) -> None:
    """Be the process that a fresh interpreter would be: its own files and random numbers, no handlers of a server."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, descriptor in zip((0, 1), files[:2], strict=True):
        os.dup2(descriptor, number)
    os.dup2(1, 2)
    for descriptor in files:
        os.close(descriptor)
    system = ctypes.CDLL(None)
    system.prctl(_PR_SET_NAME, f"ding-{name}".encode(), 0, 0, 0)
    system.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != server_pid:  # the server ended before
        os._exit(1)
    mark_child()
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()  # Python's own generator seeds itself; torch's begins with the same seed in any process


def _main() -> None:
    link = socket.socket(fileno=int(sys.argv[1]))
    main, *_ = map(pkgutil.resolve_name, sys.argv[2:])
    ctypes.CDLL(None).prctl(_PR_SET_NAME, b"ding-fork-server", 0, 0, 0)
    arguments = _serve(link)
    link.close()
    main(arguments)


if __name__ == "__main__":
    _main()
