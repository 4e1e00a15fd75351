"""Files that are written whole or not at all, a full disk that is waited for, and files that others may have placed."""

from __future__ import annotations

import errno
import itertools
import json
import logging
import os
import secrets
import shlex
import shutil
import socket
import stat
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeVar

from ding_like.errors import ConfigError
from ding_like.utils.measure import Interval
from ding_like.utils.processes import machine_mark, start_of, state_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")

# Of `when_there_is_room`: between two tries, between two reports, and in all.
_LOOK_S = 1.0
_WORD_S = 60.0
_LONGEST_S = 600.0


_OPENS_FOLDERS = hasattr(os, "O_DIRECTORY")


@contextmanager
def atomic_write(path: str | os.PathLike[str], *, durable: bool = False) -> Iterator[BinaryIO]:
    """Yield a binary file that takes the name `path` when the block ends without an error.

    A reader sees the old file or the new one, never half of one, also when this process is killed in between;
    what a killed process leaves is a hidden `.<name>.<random>.tmp` beside it. An error inside the block removes that.
    `durable=True` also waits until the disk has it, so that it survives a power cut; that costs milliseconds.
    Missing folders are made.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8 as `atomic_write` does."""
    with atomic_write(path) as file:
        file.write(text.encode())


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the entries of a folder: a rename is one of those. Windows opens no folders."""
    if not _OPENS_FOLDERS:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def retry(
    call: Callable[[], T],
    errors: type[Exception] | tuple[type[Exception], ...],
    *,
    timeout_s: float,
    first_wait_s: float = 0.05,
    max_wait_s: float = 2.0,
) -> T:
    """Return `call()`, trying again after `errors` until `timeout_s` has passed; then the last error is raised.

    Waits double from `first_wait_s` to `max_wait_s` and end at the deadline. This is the one place that sleeps: use
    it for what gives no signal to wait for, such as a server that is starting or a network file system.
    """
    deadline_s = time.monotonic() + timeout_s
    wait_s = first_wait_s
    while True:
        try:
            return call()
        except errors:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise
        time.sleep(min(wait_s, left_s))
        wait_s = min(2 * wait_s, max_wait_s)


def is_full(error: BaseException) -> bool:
    """Return whether an error means that a disk, or the user's share of it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def when_there_is_room(
    write: Callable[[], T],
    *,
    report: Callable[[str], None],
    wait: Callable[[float], bool] | None = None,
    longest_s: float = _LONGEST_S,
) -> T:
    """Return `write()`, trying again each second while the disk is full.

    `report` receives a line at first and then once a minute. `wait(seconds)` returns True if there is no time left.
    Raises the last error of `write` then, and after `longest_s`. An error that was raised from that of a full disk
    counts as one.
    """
    wait = wait or threading.Event().wait
    deadline = time.monotonic() + longest_s
    words = Interval(_WORD_S, starts_due=True, clock=time.monotonic)
    while True:
        try:
            return write()
        except Exception as error:  # torch and sqlite wrap the OSError of a full disk; any other error is raised
            is_no_room = is_full(error) or (error.__cause__ is not None and is_full(error.__cause__))
            if not is_no_room or time.monotonic() >= deadline:
                raise
            if words.pass_s():
                report(f"the disk is full ({error}); waiting for room")
            if wait(_LOOK_S):
                raise


class NotRegularError(OSError):
    """Name that is not that of one ordinary file: a link, a pipe, a folder, or a second name of a file."""


class WrongSizeError(OSError):
    """File of another size than was announced."""


def read_regular_file(folder: str | os.PathLike[str], name: str, *, nbytes: int | None = None) -> bytearray:
    """Return the bytes of the file `name` in `folder`, which must be exactly `nbytes` if that is given.

    Another process may have put the file there: the folder is opened first and the file within it, neither through a
    link, so that nothing that is exchanged meanwhile is followed. Raises FileNotFoundError, NotRegularError for a
    link, a pipe, a folder or a file with a second name (a hard link: its owner may change it later), WrongSizeError,
    and other OSErrors of the system.
    """
    where = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for its writer.
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=where)
    finally:
        os.close(where)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise NotRegularError(f"{name} is not a regular file")
        if found.st_nlink > 1:
            raise NotRegularError(f"{name} has {found.st_nlink} names (hard links), expected one")
        if nbytes is not None and found.st_size != nbytes:
            raise WrongSizeError(f"{name} has {found.st_size} bytes, {nbytes} were announced")
        data = bytearray(found.st_size)
        done = file.readinto(data)
    if done != len(data):
        raise WrongSizeError(f"{name} ends after {done} of {len(data)} bytes")
    return data


class NotPrivateError(OSError):
    """File that other users than its owner can read or change; `mode` is its permissions."""

    def __init__(self, mode: int) -> None:
        super().__init__(f"others can read or change it (mode {mode:04o})")
        self.mode = mode


def read_private_file(path: str | os.PathLike[str], *, max_bytes: int) -> bytes:
    """Return at most `max_bytes` of a file with a secret, one that only its owner can read or change.

    A link to the file is followed, as mounted secrets are links: what counts is who can read the file itself. Raises
    NotPrivateError, and OSError for what is no file or cannot be read.
    """
    # The checks are of the file that was opened: a name could point elsewhere a moment later. O_NONBLOCK: see above.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is not a file")
        mode = stat.S_IMODE(found.st_mode)
        if mode & 0o077:
            raise NotPrivateError(mode)
        return file.read(max_bytes)


def save_plan(path: Path, plan: DataclassInstance, *, version: int) -> None:
    """Write the fields of a dataclass as JSON, with the version of their format."""
    write_text(path, json.dumps({"format": version, **asdict(plan)}, indent=2))


def load_plan(path: Path, cls: type[T], *, version: int, still: str) -> T | None:
    """Return the dataclass that `save_plan` wrote, lists as tuples; None if there is no file.

    Raises ConfigError for a file of another version, and for a damaged one; `still` is what can be done about it.
    """
    if not path.is_file():
        return None
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = values.pop("format")
        if found == version:
            for field in fields(cls):  # type: ignore[arg-type]  # a dataclass
                if str(field.type).startswith("tuple["):
                    values[field.name] = _as_tuple(values[field.name], int if "int" in str(field.type) else str)
            return cls(**values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is damaged ({error}); {still}") from error
    raise ConfigError(f"{path} is of format {found!r}, this version of ding_like reads format {version}.")


def _as_tuple(value: Any, kind: type[Any]) -> tuple[Any, ...]:
    if not isinstance(value, list) or not all(isinstance(each, kind) for each in value):
        raise TypeError(f"{value!r} is no list of {kind.__name__}")
    return tuple(value)


logger = logging.getLogger(__name__)

LOCK_FILE = ".lock"

# What file systems without locks answer.
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_LONGEST_COMMAND = 200
# What a start writes before the first iteration, beside the logs of its own process.
_OF_A_START = frozenset(
    (LOCK_FILE, "total_config.py", "formatted_total_config.py", "config_diff.txt")
    + ("parallel_config.py", "run_arguments.json", "agent.json", "keys.json")
)
_STATE = "coordinator.sqlite"  # and the files beside it
_NAMED_LOGS = ("learners", "ray", "seed")  # to which messages point
_TRACEBACK = b"Traceback (most recent call last)"


class Holder(NamedTuple):
    """Process that holds a folder, or held it last."""

    pid: int
    start: int  # of the process, in clock ticks since the machine's
    host: str
    machine: str  # a mark of the machine's boot and of the container
    command: str
    since: str
    inode: int  # of the lock file: in a copy it is another


class FolderLock(AbstractContextManager["FolderLock"]):
    """Lock of an existing folder for this process alone, until `close` or the end of the process.

    Raises ConfigError, and changes nothing, while another process holds it, and if no file can be made in it.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        resume: Sequence[str] = ("ding", "--resume"),
        named_by: str = "--exp-name",
    ) -> None:
        """Take the lock; `resume` is the command that resumes in the folder, `named_by` the option that names it."""
        self.folder = Path(folder)
        self._path = self.folder / LOCK_FILE
        self._resume, self._named_by = resume, named_by
        self._descriptors: list[int] = []  # of the folder and of its lock file, while they are locked
        try:
            self._lock_folder()
            file = self._lock_file()
        except OSError as error:
            self.leave_to_parent()
            raise ConfigError(
                f"a run cannot begin in '{self.folder}/': {error.strerror} ({self._path}). Make room, or "
                f"give {named_by} a place where files can be written."
            ) from error
        except ConfigError:
            self.leave_to_parent()
            raise
        _held.add(self)
        with suppress(OSError):  # a full disk: the folder is locked all the same, without the holder's name
            os.truncate(file, 0)
            os.lseek(file, 0, os.SEEK_SET)
            os.write(file, json.dumps(_this_process(file)._asdict()).encode())

    def close(self) -> None:
        """Release the folder; a second call does nothing."""
        with suppress(OSError, IndexError):  # closed already
            os.truncate(self._descriptors[-1], 0)
        self.leave_to_parent()

    def leave_to_parent(self) -> None:
        """Close the descriptors alone: in a forked child they would hold the folder beyond its parent's end."""
        _held.discard(self)
        while self._descriptors:
            os.close(self._descriptors.pop())

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lock_folder(self) -> None:
        """Lock the folder itself, if its file system locks folders: NFS does not, and Windows opens none."""
        if not _OPENS_FOLDERS:
            return
        self._descriptors.append(os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY))
        try:
            _lock(self._descriptors[-1])
        except BlockingIOError:
            raise self._in_use(holder_of(self.folder)) from None
        except OSError:  # the lock of the file decides
            pass

    def _lock_file(self) -> int:
        """Return the descriptor of the lock file, locked."""
        while True:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            self._descriptors.append(descriptor)
            try:
                _lock(descriptor)
            except BlockingIOError:
                raise self._in_use(_read(descriptor)) from None
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                self._check_holder(_read(descriptor), error)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(self._path), os.fstat(descriptor)):
                    return descriptor
            os.close(self._descriptors.pop())  # its last holder has deleted the file meanwhile

    def _check_holder(self, holder: Holder | None, error: OSError) -> None:
        """Raise ConfigError if a file that cannot be locked names a living process, or one of another machine."""
        is_here = holder is not None and holder.machine == machine_mark()
        if holder is not None and not (is_here and start_of(holder.pid) != holder.start):
            fix = "" if is_here else f" If that process has ended, delete {self._path} and try again."
            raise self._in_use(holder, fix)
        text = "%s/ is on a file system without locks (%s): that no other process trains in it is known by %s alone."
        logger.warning(text, self.folder, error.strerror, LOCK_FILE)

    def _in_use(self, holder: Holder | None, fix: str = "") -> ConfigError:
        """Return the error of a second process, which names the holder and what to do."""
        again = f"wait for its end, or give another {self._named_by} to a new run.{fix}"
        if holder is None:
            return ConfigError(
                f"{self.folder}/ is in use: another process, which {LOCK_FILE} does not name, trains in it, and two "
                f"would write the same files; {again}"
            )
        is_here = holder.machine == machine_mark()
        if is_here and holder.pid == os.getpid():
            return ConfigError(f"{self.folder}/ is in use by a run of this very process, since {holder.since}; {again}")
        where = "" if is_here else f"on {holder.host} "
        stop = f"stop it with  kill {holder.pid}  {where}(it saves a point first) and go on"
        command = shlex.join([*self._resume, str(self.folder)])
        if is_here and state_of(holder.pid) == "T":
            stop = f"it is paused, and  kill -CONT {holder.pid}  lets it go on; or {stop}"
        return ConfigError(
            f"{self.folder}/ is in use: process {holder.pid} on {holder.host} (`{holder.command}`) has trained in it "
            f"since {holder.since}, and two would write the same files; {stop} with  {command} ; or {again}"
        )


_held: weakref.WeakSet[FolderLock] = weakref.WeakSet()


def _leave_all_to_parent() -> None:
    for lock in list(_held):
        lock.leave_to_parent()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_leave_all_to_parent)


_FAR = 1 << 30  # place of the byte that is locked on Windows: other processes cannot read what is locked


def _lock(descriptor: int, *, is_shared: bool = False) -> None:
    """Lock an open file. Raises BlockingIOError if another process has locked it."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(descriptor, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError(error.errno, error.strerror) from error
    else:
        import fcntl

        fcntl.flock(descriptor, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def is_held(folder: Path) -> bool:
    """Return whether a process holds a run's folder."""
    for path in (folder, folder / LOCK_FILE):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                _lock(descriptor, is_shared=True)
            except BlockingIOError:
                return True
            finally:
                os.close(descriptor)
    return False


def holder_of(folder: str | os.PathLike[str]) -> Holder | None:
    """Return the holder of a folder that its `.lock` names, None if that names none; nothing is locked or changed."""
    with suppress(OSError), open(Path(folder) / LOCK_FILE, "rb") as file:
        return _read(file.fileno())
    return None


def _read(descriptor: int) -> Holder | None:
    """Return the holder that a lock file names; None if it names none, or was copied."""
    with suppress(OSError, ValueError, TypeError):
        os.lseek(descriptor, 0, os.SEEK_SET)
        holder = Holder(**json.loads(os.read(descriptor, 1 << 16)))
        return holder if holder.inode == os.fstat(descriptor).st_ino else None
    return None


def _this_process(descriptor: int) -> Holder:
    program, *arguments = sys.argv or [""]
    name = Path(program).name
    command = shlex.join([{"__main__.py": "ding", "cli.py": "ding"}.get(name, name), *arguments])
    if len(command) > _LONGEST_COMMAND:
        command = f"{command[:_LONGEST_COMMAND]}..."
    pid, since, inode = os.getpid(), time.strftime("%Y-%m-%d %H:%M:%S"), os.fstat(descriptor).st_ino
    return Holder(pid, start_of(pid), socket.gethostname(), machine_mark(), command, since, inode)


class RunFolder(AbstractContextManager["RunFolder"]):
    """Folder of one run, held for this process while the block runs.

    If the block ends by an error before `keep` was called, a folder that `claim` has made is deleted again, unless
    there is more in it than a start writes. Without a claim nothing is held. `check` receives the name of a claimed
    folder before anything is written there, and raises if it cannot be the run's.
    """

    def __init__(self, check: Callable[[str], None] | None = None) -> None:
        self._check = check
        self.lock: FolderLock | None = None  # of the folder that is held
        self._made: list[Path] = []  # by this start, the innermost first

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None and self.lock is not None and self._made:
            self._delete_start()  # while it is held: no other run has begun in it
        self.close()

    def hold(self, name: str | os.PathLike[str]) -> None:
        """Hold an existing folder. Raises ConfigError while another process does."""
        self.close()
        self.lock = FolderLock(name)

    def claim(self, name: str, *, is_fresh: bool) -> str:
        """Hold the folder `name`, made if it is missing, and return its name.

        One that is to be `fresh` gets another name, with the date, if it is there already: two runs that start together
        never get the same. Raises ConfigError if it cannot be made, or is held by another process.
        """
        for folder in fresh_names(name) if is_fresh else [name]:
            self._made = [each for each in (Path(folder), *Path(folder).parents) if not each.exists()]
            if make_folder(folder, exist_ok=not is_fresh):
                name = folder
                break
        self.hold(name)
        if self._check is not None and not is_fresh:
            self._check(name)
        return name

    def keep(self) -> None:
        """Leave the folder where it is, also if the run fails: it has begun."""
        self._made = []

    def close(self) -> None:
        """Release the folder; a second call does nothing."""
        if self.lock is not None:
            self.lock.close()
            self.lock = None

    def _delete_start(self) -> None:
        """Delete the folders that this start has made, if nothing else is in them."""
        folder, *parents = self._made
        if _is_of_a_start(folder):
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # another run has a folder there
                for parent in parents:
                    parent.rmdir()


def _is_of_a_start(folder: Path) -> bool:
    """Return whether a folder holds only what a start writes, and no logs to look into."""
    for path in folder.rglob("*"):
        inner = path.relative_to(folder)
        if path.is_dir() or not path.lstat().st_size:
            continue
        if inner.parts[0] == "log" and inner.parts[1] not in _NAMED_LOGS and _TRACEBACK not in path.read_bytes():
            continue
        if not (inner.name in _OF_A_START or inner.name.startswith(_STATE)):
            return False
    return True


def fresh_names(name: str) -> Iterator[str]:
    """Yield `name`, then names that distinguish the run from others of the same name: with the date, and numbered."""
    dated = f"{name}_{datetime.now():%y%m%d_%H%M%S}"
    return itertools.chain([name, dated], (f"{dated}_{count}" for count in itertools.count(1)))


def make_folder(folder: str, *, exist_ok: bool = False) -> bool:
    """Make a folder and return True; False if it is there and not `exist_ok`. Raises ConfigError if it cannot."""
    try:
        os.makedirs(folder, exist_ok=exist_ok)
    except OSError as error:
        if isinstance(error, FileExistsError) and not exist_ok:
            return False
        raise ConfigError(
            f"cannot make the experiment folder '{folder}': {error.strerror}; give a folder where you may write, with "
            "--exp-name"
        ) from error
    return True
