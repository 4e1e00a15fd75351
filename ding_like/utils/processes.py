"""Child processes and their ends, and temporary folders that are deleted after the process that made them."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

_KILL_S = 5.0  # for a process that was killed to be gone
_TAIL = 2_000  # bytes of an output file in which its last line is
_MARK = "DING_PARENT_HOLDS_STDIN"
_is_finalisation_skipped = threading.Event()


def start_child(arguments: Sequence[str], **settings: Any) -> subprocess.Popen[bytes]:
    """Start a program that can call `watch_parent`, with Popen's `settings`; its standard input is an end of a pipe."""
    environment = {**(settings.pop("env", None) or os.environ), _MARK: "1"}
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, env=environment, **settings)


def forget_child(process: subprocess.Popen[bytes]) -> None:
    """Close this process's end of the pipe to a child that has ended; may be called again."""
    if process.stdin is not None:
        process.stdin.close()


def watch_parent(when_it_ends: Callable[[], None]) -> bool:
    """Call `when_it_ends` from a thread once the parent has ended, in whatever way: it closes the pipe between them.

    Returns False in a process that `start_child` did not start. The mark is removed, so that this process's own
    children do not inherit it.
    """
    if os.environ.pop(_MARK, None) is None:
        return False

    def watch() -> None:
        while os.read(0, 4096):
            pass  # nothing is written; a pipe gives nothing when its other end is closed
        when_it_ends()

    threading.Thread(target=watch, name="parent", daemon=True).start()
    return True


def describe_status(status: int) -> str:
    """Return how a process ended, in words, from Popen's return code."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


def last_line(output: Path) -> str:
    """Return the last line that a process has written into a file, "" where there is none."""
    try:
        with output.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL, 0))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].strip() if lines else ""


def end_processes(processes: Sequence[subprocess.Popen[bytes]], *, own_s: float = 10.0, asked_s: float = 10.0) -> None:
    """Wait `own_s` for children to end by themselves, terminate the others, wait `asked_s`, and kill those left.

    A stopped child (SIGSTOP) is continued, so that it receives the signal.
    """
    _wait(processes, own_s)
    for end, wait_s in ((subprocess.Popen.terminate, asked_s), (subprocess.Popen.kill, _KILL_S)):
        for process in processes:
            if process.poll() is None:
                end(process)
                process.send_signal(signal.SIGCONT)
        _wait(processes, wait_s)
    for process in processes:
        forget_child(process)


def _wait(processes: Sequence[subprocess.Popen[bytes]], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(deadline - time.monotonic(), 0.0))


def skip_finalisation() -> None:
    """Let `end_process` end this process without the interpreter's finalisation.

    It is for a library with threads that do not end, that it cannot wait for, and that would crash then. A program
    that continues is not ended; it may call `end_process` when it is done.
    """
    _is_finalisation_skipped.set()


def end_process(error: BaseException | None) -> None:
    """Return, unless `skip_finalisation` was called: end with the status that the interpreter would end with.

    `error` is what ends the program, None for nothing. Streams and logs are flushed; `atexit` is not called.
    """
    if not _is_finalisation_skipped.is_set():
        return
    status = 0
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        status = (error.code or 0) & 0xFF
    elif isinstance(error, SystemExit):
        sys.stderr.write(f"{error.code}\n")
        status = 1
    elif error is not None:
        traceback.print_exception(error)
        status = 1
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # it is closed, here or by its reader, or there is none
            stream.flush()
    os._exit(status)


def make_own_folder(prefix: str, *, where: str | os.PathLike[str] | None = None) -> Path:
    """Return a new folder `{prefix}{machine}-{pid}-{start}-{random}` below `where`, by default the temporary folder.

    Folders of the same prefix whose process has ended without deleting them are deleted first. A folder has its
    owner's name from the beginning, so that it is never taken for a dead process's. The name is short, with numbers to
    the base 16: a socket's whole path may have 107 characters.
    """
    base = Path(where or tempfile.gettempdir())
    sweep(prefix, base)
    own = f"{prefix}{machine_mark()}-{os.getpid():x}-{start_of(os.getpid()):x}-"
    return Path(tempfile.mkdtemp(prefix=own, dir=base))


def sweep(prefix: str, base: Path) -> list[Path]:
    """Delete this user's folders of dead processes of this machine; return them.

    A process lives if one with its id and its start time does. Folders of other users, machines and containers, and
    those whose process cannot be looked up, stay.
    """
    name = re.compile(re.escape(prefix + machine_mark()) + r"-([0-9a-f]{1,8})-([0-9a-f]{1,16})-\w+")
    swept = []
    for path in base.glob(f"{prefix}*"):
        owner = name.fullmatch(path.name)
        try:
            if owner is None or path.is_symlink() or path.lstat().st_uid != os.getuid():
                continue
        except FileNotFoundError:  # another start swept it meanwhile
            continue
        if owner[2] != "0" and start_of(int(owner[1], 16)) != int(owner[2], 16):
            logger.info("%s is left by process %s, which has ended: it is deleted", path, int(owner[1], 16))
            shutil.rmtree(path, ignore_errors=True)
            swept.append(path)
    return swept


def machine_mark() -> str:
    """Return a mark of this boot of this machine and of the space of its process ids: containers have their own."""
    try:
        seen = Path("/proc/sys/kernel/random/boot_id").read_text() + os.readlink("/proc/self/ns/pid")
    except OSError:
        seen = ""
    return hashlib.sha256(f"{socket.gethostname()} {seen}".encode()).hexdigest()[:8]


def start_of(pid: int) -> int:
    """Return when a process was started, in clock ticks since the boot; 0 if there is none, or no /proc."""
    fields = _fields_of(pid)
    return int(fields[19]) if fields else 0


def state_of(pid: int) -> str:
    """Return the letter of a process's state, "T" of one that is paused; "" if there is none, or no /proc."""
    fields = _fields_of(pid)
    return fields[0] if fields else ""


def runs_with(pid: int, word: str) -> bool:
    """Return whether a process of this machine runs and has a word in its command line; False without /proc."""
    try:
        return word.encode() in Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:
        return False


def _fields_of(pid: int) -> list[str]:
    try:
        stat = Path("/proc", str(pid), "stat").read_text()
    except OSError:
        return []
    # The name of the program, in brackets, may hold anything: fields are counted behind it.
    return stat.rpartition(")")[2].split()
