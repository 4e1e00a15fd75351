"""Write files whole or not at all, and retry what may fail for a moment."""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

T = TypeVar("T")


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
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    # The rename itself is an entry of the folder, which has a place of its own on the disk.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_full(error: BaseException) -> bool:
    """Tell whether an error says that a disk, or the user's share of it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


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
