"""Child processes and their ends, and temporary folders that are deleted after the process that made them."""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import math
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol
from urllib.parse import urlsplit

from ding_like.errors import ConfigError

logger = logging.getLogger(__name__)

_KILL_S = 5.0  # for a process that was killed to be gone
_TAIL = 2_000  # bytes of an output file in which its last line is
_MARK = "DING_PARENT_HOLDS_STDIN"
_is_finalisation_skipped = threading.Event()

# Signals by which a process is asked to end; Windows has no SIGHUP.
ENDING_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def require_posix(part: str, *, instead: str) -> None:
    """Raise ConfigError on Windows, for a part that needs the signals and inherited descriptors of POSIX."""
    if sys.platform == "win32":
        raise ConfigError(
            f"{part} needs Linux or macOS: its processes are joined by POSIX signals and inherited descriptors, which "
            f"Windows does not have. {instead}, or run ding in WSL 2."
        )


class Child(Protocol):
    """Child process, as subprocess.Popen has it."""

    @property
    def stdin(self) -> IO[bytes] | None: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float) -> int: ...

    def send_signal(self, sig: int) -> None: ...


def start_child(arguments: Sequence[str], **settings: Any) -> subprocess.Popen[bytes]:
    """Start a program that can call `watch_parent`, with Popen's `settings`; its standard input is an end of a pipe."""
    environment = {**(settings.pop("env", None) or os.environ), _MARK: "1"}
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, env=environment, **settings)


def one_thread() -> dict[str, str]:
    """Return the environment of a process that computes in one thread, unless this one's says otherwise."""
    return {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **os.environ}


def forget_child(process: Child) -> None:
    """Close this process's end of the pipe to a child that has ended; may be called again."""
    if process.stdin is not None:
        process.stdin.close()


def mark_child() -> None:
    """Mark this process as one whose standard input is an end of a pipe that its parent holds."""
    os.environ[_MARK] = "1"


def watch_parent(when_it_ends: Callable[[], None]) -> bool:
    """Call `when_it_ends` from a thread once the parent has ended, in whatever way: it closes the pipe between them.

    Returns False in a process that neither `start_child` nor a `ForkServer` started. The mark is removed, so that this
    process's own children do not inherit it.
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
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-status).name}"
    return f"was killed by signal {-status}"


def last_line(output: Path) -> str:
    """Return the last line that a process has written into a file, "" where there is none."""
    with suppress(OSError), output.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - _TAIL, 0))
        return ["", *file.read().decode(errors="replace").strip().splitlines()][-1].strip()
    return ""


def end_processes(processes: Sequence[Child], *, own_s: float = 10.0, asked_s: float = 10.0) -> None:
    """Wait `own_s` for children to end by themselves, terminate the others, wait `asked_s`, and kill those left.

    A stopped child (SIGSTOP) is continued, so that it receives the signal.
    """
    _wait(processes, own_s)
    for number, wait_s in ((signal.SIGTERM, asked_s), (signal.SIGKILL, _KILL_S)):
        for process in processes:
            if process.poll() is None:
                process.send_signal(number)
                process.send_signal(signal.SIGCONT)
        _wait(processes, wait_s)
    for process in processes:
        forget_child(process)


def _wait(processes: Sequence[Child], timeout_s: float) -> None:
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
    code = error.code if isinstance(error, SystemExit) else None
    status = code & 0xFF if isinstance(code, int) else int(code is not None)
    if code is not None and not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
    elif error is not None and not isinstance(error, SystemExit):
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
        with suppress(FileNotFoundError):  # another start swept it meanwhile
            if owner is None or path.is_symlink() or path.lstat().st_uid != os.getuid():
                continue
            pid, start = int(owner[1], 16), int(owner[2], 16)
            if start and start_of(pid) != start:
                logger.info("%s is left by process %s, which has ended: it is deleted", path, pid)
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
    return next(iter(_fields_of(pid)), "")


def runs_with(pid: int, word: str) -> bool:
    """Return whether a process of this machine runs and has a word in its command line; False without /proc."""
    with suppress(OSError):
        return word.encode() in Path("/proc", str(pid), "cmdline").read_bytes()
    return False


def _fields_of(pid: int) -> list[str]:
    with suppress(OSError):
        # The name of the program, in brackets, may hold anything: fields are counted behind it.
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    return []


# The fix of a host name to listen on that is unknown.
OWN_HOST = "give an address or a name of this machine (127.0.0.1), or 0.0.0.0 for all of its addresses"
_EVERY_ADDRESS = ("0.0.0.0", "::", "*", "")
# Of IPv4 and IPv6: the family, an address of other networks (for documentation, RFC 5737 and 3849), the loopback.
_OUTSIDE = (socket.AF_INET, "192.0.2.1", "127.0.0.1"), (socket.AF_INET6, "2001:db8::1", "::1")
_GIB = 2**30


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host name or address."""
    with suppress(ValueError):
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False


def is_known(host: str) -> bool:
    """Return whether this machine can resolve a host name; addresses, and those for every address, are known."""
    with suppress(OSError, UnicodeError):  # UnicodeError: an empty or very long part between dots
        return host in _EVERY_ADDRESS or bool(socket.getaddrinfo(host, None))
    return False


def check_known(host: str, option: str, fix: str) -> None:
    """Raise ConfigError for a host name that this machine cannot resolve."""
    if not is_known(host):
        raise ConfigError(f"{option} names the host {host!r}, which this machine cannot resolve; {fix}.")


def reachable(host: str) -> str:
    """Return the address by which other machines reach a server that listens at `host`, perhaps on every address.

    It is the one that packets to other networks leave by; without a route to them, the one that the machine's name
    resolves to, and the loopback if there is none either.
    """
    if host not in _EVERY_ADDRESS:
        return host
    family, outside, loopback = _OUTSIDE[":" in host]
    # Without a way out the name may still be known.
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as way_out:
        way_out.connect((outside, 9))  # sends nothing: it only chooses the way
        return str(way_out.getsockname()[0])
    with suppress(OSError):
        found = {str(each[4][0]) for each in socket.getaddrinfo(socket.gethostname(), None, family)}
        return min((each for each in found if not is_loopback(each)), default=loopback)
    return loopback


def reachable_url(url: str) -> str:
    """Return a URL, `http://HOST:PORT`, with the host as others reach it."""
    scheme, _, place = url.partition("://")
    host, _, port = place.rpartition(":")
    found = reachable(host.strip("[]"))
    return f"{scheme}://{f'[{found}]' if ':' in found else found}:{port}"


def coordinator_url(text: str) -> str:
    """Return the URL of "http://host:port" or "host:port"; raises ConfigError for anything else."""
    url = (text if "://" in text else f"http://{text}").rstrip("/")
    with suppress(ValueError):  # a port that is no number, or too large
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port:
            return url
    raise ConfigError(f"the coordinator's address is {text!r}; expected http://HOST:PORT, as it logs at its start.")


def num_cores() -> int:
    """Return how many CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_bytes() -> float:
    """Return how much memory can be allocated without swapping; infinity where the system does not report it."""
    found = [math.inf]
    with suppress(OSError):  # no such file: another system than Linux, or no cgroup
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        found += [int(limit)] if limit.isdecimal() else []  # of a container; "max": none
    return min(found)


def check_memory(needed: int, *, what: str, fix: str) -> None:
    """Raise ConfigError if `needed` bytes are more than are available.

    Linux grants more memory than there is, and later kills the process that uses it: so this is checked before.
    """
    available = available_bytes()
    if needed > available:
        raise ConfigError(
            f"{what} needs {needed / _GIB:,.1f} GiB of memory, {available / _GIB:,.1f} GiB are available: {fix}."
        )


def check_buffer_memory(rows: int, row_bytes: int) -> None:
    """Raise ConfigError for a replay buffer of so many rows that memory cannot hold them."""
    fits = available_bytes() / 2 / max(row_bytes, 1)
    check_memory(
        rows * row_bytes,
        what=f"policy.other.replay_buffer.replay_buffer_size is {rows:,}, which at {row_bytes:,} bytes a row",
        fix=f"give {int(fits) if fits < math.inf else rows:,} or fewer",
    )


@contextmanager
def no_window() -> Iterator[None]:
    """Keep pygame, which many envs draw with, from opening a window and printing a greeting while the block runs."""
    settings = {"SDL_VIDEODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}
    added = {name: value for name, value in settings.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
