"""Hold a run's folder for one process, so that no second one writes into it; who only reads needs no lock.

The lock is a flock of the folder, which lasts if files in it are deleted, and of `{folder}/.lock`, which NFS can lock,
and which names the holder. The system releases both when the process ends, in whatever way. A copy is free.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import shlex
import socket
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from ding_like.errors import ConfigError
from ding_like.utils.processes import machine_mark, start_of, state_of

logger = logging.getLogger(__name__)

LOCK_FILE = ".lock"

# What file systems without locks answer.
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_LONGEST_COMMAND = 200


class Holder(NamedTuple):
    """Say who holds a folder, or held it last."""

    pid: int
    start: int  # of the process, in clock ticks since the machine's
    host: str
    machine: str  # a mark of the machine's boot and of the container
    command: str
    since: str
    inode: int  # of the file: a copy of it says nothing of its own folder


Tell = Callable[[Holder | None], str]  # what a second process is told, of who holds the folder


class FolderLock:
    """Hold a folder that is there, for this process alone, until `close` or the end of the process.

    Raises ConfigError, and changes nothing, while another process holds it, and where no file can be made in it.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        resume: Sequence[str] = ("ding", "--resume"),
        named_by: str = "--exp-name",
    ) -> None:
        """Take the lock; `resume` is the command that goes on in the folder, `named_by` the option that names it."""
        self.folder = Path(folder)
        self._descriptor: int | None = None
        tell = partial(_in_use, self.folder, resume=resume, named_by=named_by)
        try:
            self._folder_descriptor = _take_folder(self.folder, tell)
            try:
                self._descriptor = _take(self.folder, tell)
            except BaseException:
                os.close(self._folder_descriptor)
                raise
        except OSError as error:
            raise ConfigError(
                f"a run cannot begin in '{self.folder}/': {error.strerror} ({self.folder / LOCK_FILE}). Make room, or "
                f"give {named_by} a place where files can be written."
            ) from error
        _held.add(self)
        with suppress(OSError):  # of a full disk: it is held all the same, without a word of who does
            os.truncate(self._descriptor, 0)
            os.pwrite(self._descriptor, json.dumps(_this_process(self._descriptor)._asdict()).encode(), 0)

    def close(self) -> None:
        """Let the folder go; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        _held.discard(self)
        with suppress(OSError):
            os.truncate(descriptor, 0)
        os.close(descriptor)
        os.close(self._folder_descriptor)

    def leave_to_parent(self) -> None:
        """Forget the lock in a forked child, which would else hold it beyond its parent's end."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
            os.close(self._folder_descriptor)

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_held: weakref.WeakSet[FolderLock] = weakref.WeakSet()


def is_held(folder: Path) -> bool:
    """Tell whether a process holds a run's folder."""
    for path in (folder, folder / LOCK_FILE):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(descriptor)
    return False


def _leave_all_to_parent() -> None:
    for lock in list(_held):
        lock.leave_to_parent()


os.register_at_fork(after_in_child=_leave_all_to_parent)


def holder_of(folder: str | os.PathLike[str]) -> Holder | None:
    """Return who holds a folder as its `.lock` says, None if that says nothing; nothing is locked or changed."""
    with suppress(OSError):
        descriptor = os.open(Path(folder) / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _read(descriptor)
        finally:
            os.close(descriptor)
    return None


def _take_folder(folder: Path, tell: Tell) -> int:
    """Return a descriptor of the folder itself, locked where its file system locks folders: NFS does not."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigError(tell(holder_of(folder))) from None
    except OSError:  # the lock of the file decides
        pass
    return descriptor


def _take(folder: Path, tell: Tell) -> int:
    """Return the descriptor of the folder's lock file, locked; `tell` says who has it."""
    path = folder / LOCK_FILE
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _lock(descriptor, folder, tell)
            seen, own = os.stat(path), os.fstat(descriptor)
            if (seen.st_dev, seen.st_ino) == (own.st_dev, own.st_ino):
                return descriptor
        except FileNotFoundError:
            pass  # it was deleted by who held it until now, as is one that another has taken the place of
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _lock(descriptor: int, folder: Path, tell: Tell) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(tell(_read(descriptor))) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        _check_by_word(descriptor, folder, tell)
        logger.warning(
            "%s/ is on a file system without locks (%s): that no other process trains in it is known by %s alone.",
            folder,
            error.strerror,
            LOCK_FILE,
        )


def _check_by_word(descriptor: int, folder: Path, tell: Tell) -> None:
    """Raise ConfigError if the file says that a process holds it which lives, or of which that is not known here."""
    holder = _read(descriptor)
    if holder is None or (holder.machine == machine_mark() and start_of(holder.pid) != holder.start):
        return
    fix = f" If that process has ended, delete {folder / LOCK_FILE} and try again."
    raise ConfigError(tell(holder) + ("" if holder.machine == machine_mark() else fix))


def _this_process(descriptor: int) -> Holder:
    pid, since = os.getpid(), time.strftime("%Y-%m-%d %H:%M:%S")
    inode = os.fstat(descriptor).st_ino
    return Holder(pid, start_of(pid), socket.gethostname(), machine_mark(), _command(), since, inode)


def _command() -> str:
    program, *arguments = sys.argv or [""]
    name = Path(program).name
    words = [{"__main__.py": "ding", "cli.py": "ding"}.get(name, name), *arguments]
    text = shlex.join(words)
    return text if len(text) <= _LONGEST_COMMAND else f"{text[:_LONGEST_COMMAND]}..."


def _read(descriptor: int) -> Holder | None:
    """Return who the file says holds it; None if it says nothing, or was copied from elsewhere."""
    try:
        found: Any = json.loads(os.pread(descriptor, 1 << 16, 0))
        holder = Holder(**found)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return holder if holder.inode == os.fstat(descriptor).st_ino else None


def _in_use(folder: Path, holder: Holder | None, *, resume: Sequence[str], named_by: str) -> str:
    """Return what a second process is told."""
    again = f"wait for its end, or give another {named_by} to a new run."
    if holder is None:
        return (
            f"{folder}/ is in use: another process, which {LOCK_FILE} does not name, trains in it, and two would write "
            f"the same files; {again}"
        )
    is_here = holder.machine == machine_mark()
    if is_here and holder.pid == os.getpid():
        return f"{folder}/ is in use by a run of this very process, since {holder.since}; {again}"
    where = "" if is_here else f"on {holder.host} "
    stop = f"stop it with  kill {holder.pid}  {where}(it saves a point first) and go on"
    command = shlex.join([*resume, str(folder)])
    if is_here and state_of(holder.pid) == "T":
        stop = f"it is paused, and  kill -CONT {holder.pid}  lets it go on; or {stop}"
    return (
        f"{folder}/ is in use: process {holder.pid} on {holder.host} (`{holder.command}`) has trained in it since "
        f"{holder.since}, and two would write the same files; {stop} with  {command} ; or {again}"
    )
