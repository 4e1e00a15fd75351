"""`python simulated.py SYSTEM MODULE:FUNCTION [ARGUMENT...]`: call a function where Python is as on another system.

The standard library and other packages are imported first, for they load what this machine has. Then what the system
lacks is removed, and `ding_like` is imported: what it needs of this is missed when it is imported, or used.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import types

# What Windows and macOS lack of what Linux has, as the pages of the standard library list it under "Availability".
_LINUX_ALONE = {
    os: "sched_getaffinity sched_setaffinity memfd_create eventfd pidfd_open preadv pwritev posix_fallocate".split(),
    signal: ["pidfd_send_signal"],
    socket: ["SOCK_SEQPACKET", "SO_PEERCRED"],
}
_POSIX_ALONE = {
    os: (
        "fork forkpty register_at_fork killpg setsid setpgid getpgid getuid geteuid getgid pread pwrite readv writev "
        "O_DIRECTORY O_NOFOLLOW O_NONBLOCK O_ASYNC sysconf statvfs fchmod set_blocking uname nice getloadavg"
    ).split(),
    signal: (
        "SIGHUP SIGKILL SIGCHLD SIGSTOP SIGCONT SIGIO SIGUSR1 SIGUSR2 SIGPIPE SIGALRM SIGQUIT setitimer alarm pause "
        "pthread_sigmask sigwait"
    ).split(),
    socket: ["AF_UNIX", "send_fds", "recv_fds"],
    select: ["poll"],
}
_POSIX_MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog")
_THIRD_PARTY = (
    "torch torch._dynamo gymnasium numpy rich.console rich.progress flask waitress werkzeug.serving requests easydict "
    "tensorboardX safetensors.numpy safetensors.torch click threadpoolctl cloudpickle gymnasium.envs.classic_control "
    "matplotlib.pyplot PIL.Image pygame"
).split()
_OF_THREADPOOLCTL = "/proc/self/maps"  # it has another way on each system
_LIBRARY = (
    "asyncio multiprocessing.connection multiprocessing.reduction multiprocessing.shared_memory subprocess pty".split()
)


def become(system: str) -> None:
    """Make this interpreter as one of `system`, "win32" or "darwin", as far as it can be."""
    import fcntl

    for name in (*_LIBRARY, *_THIRD_PARTY):
        pkgutil.resolve_name(name)
    for module, names in _LINUX_ALONE.items():
        _remove(module, names)
    if system == "win32":
        for module, names in _POSIX_ALONE.items():
            _remove(module, names)
        vars(subprocess)["Popen"].kill = subprocess.Popen.terminate  # as it is on Windows
        sys.modules["msvcrt"] = _msvcrt(fcntl)
        for name in _POSIX_MODULES:
            sys.modules[name] = None  # type: ignore[assignment]  # an import of it fails
    _hide_proc()
    sys.platform = system


def _remove(module: types.ModuleType, names: list[str]) -> None:
    for name in names:
        vars(module).pop(name, None)


def _msvcrt(fcntl: types.ModuleType) -> types.ModuleType:
    """Return the one function of Windows' `msvcrt` that is used here, by locks of this system."""

    def locking(descriptor: int, mode: int, nbytes: int) -> None:
        try:
            how = fcntl.LOCK_UN if mode == module.LK_UNLCK else fcntl.LOCK_EX | fcntl.LOCK_NB
            fcntl.flock(descriptor, how)
        except BlockingIOError as error:
            raise PermissionError(errno.EACCES, "Permission denied") from error

    module = types.ModuleType("msvcrt")
    vars(module).update(LK_UNLCK=0, LK_NBLCK=2, locking=locking)
    return module


def _hide_proc() -> None:
    """Let no file of /proc be opened or listed; libraries that were loaded before have read theirs."""

    def refuse(event: str, arguments: tuple[object, ...]) -> None:
        path = str(arguments[0]) if event in ("open", "os.listdir", "os.scandir") else ""
        if path.startswith(("/proc/", "/sys/")) and path != _OF_THREADPOOLCTL:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(arguments[0]))

    sys.addaudithook(refuse)


def import_all() -> None:
    """Print how many modules of the package can be imported, and each that cannot with the reason."""
    import ding_like

    names = [each.name for each in pkgutil.walk_packages(ding_like.__path__, "ding_like.")]
    failed = []
    for name in names:
        if not name.endswith("__main__"):  # importing one runs it
            try:
                importlib.import_module(name)
            except (Exception, SystemExit) as error:
                failed.append(f"{name}: {error!r}")
    print(json.dumps({"modules": len(names), "failed": failed}))


def main() -> None:
    system, place, *arguments = sys.argv[1:]
    become(system)
    sys.argv = ["ding", *arguments]
    pkgutil.resolve_name(place)()


if __name__ == "__main__":
    main()
