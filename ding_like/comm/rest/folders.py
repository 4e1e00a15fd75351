"""Read and write files below a folder that others may write to, by their names in it and never by a path.

A name is looked up in the opened folder itself, links are not followed, and what was opened is what is looked at:
neither a link, nor a second name of a file elsewhere, nor a pipe is read, and never more than a limit.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def read_below(folder: Path, names: tuple[str, ...], *, limit: int) -> bytes | None:
    """Return the bytes of `folder/names...`; None if there is no such file, or none that may be read."""
    try:
        with _open_folder(folder, names[:-1], make=False) as parent:
            descriptor = os.open(names[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    except OSError as error:
        # No such file; a link instead of a file or a folder; a file instead of a folder; a socket.
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            return None
        raise
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_size > limit:
            return None
        data = file.read(limit + 1)  # it may grow while it is read
    return data if len(data) <= limit else None


def write_below(folder: Path, names: tuple[str, ...], data: bytes) -> None:
    """Make `folder/names...` hold `data`, whole or not at all. Missing folders are made.

    Raises OSError, also for a link in the place of a folder.
    """
    with _open_folder(folder, names[:-1], make=True) as parent:
        temporary = f".{names[-1]}.{secrets.token_hex(4)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(temporary, flags, 0o666, dir_fd=parent), "wb") as file:
                file.write(data)
            os.replace(temporary, names[-1], src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            try:
                os.unlink(temporary, dir_fd=parent)
            except FileNotFoundError:  # it has its name already, or was never made
                pass
            raise


@contextmanager
def _open_folder(folder: Path, names: tuple[str, ...], *, make: bool) -> Iterator[int]:
    """Yield a descriptor of a folder below `folder`, which may itself be a link: its owner named it."""
    if make:
        folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, _FOLDER)
    try:
        for name in names:
            if make:
                try:
                    os.mkdir(name, dir_fd=descriptor)
                except FileExistsError:
                    pass
            inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)
