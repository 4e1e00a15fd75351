"""Files that are written whole or not at all, a full disk that is waited for, and files that others may have placed."""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from ding_like.errors import ConfigError
from ding_like.utils.timing import Interval

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")

# Of `when_there_is_room`: between two tries, between two reports, and in all.
_LOOK_S = 1.0
_WORD_S = 60.0
_LONGEST_S = 600.0


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
    """Wait until the disk has the entries of a folder: a rename is one of those."""
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
