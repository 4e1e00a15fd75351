"""Read a file that another process may have put there: no link, no pipe, nothing of another size is read."""

from __future__ import annotations

import os
import stat


class NotRegularError(OSError):
    """Say that a name is not that of one ordinary file: it is a link, a pipe, a folder, or a second name."""


class WrongSizeError(OSError):
    """Say that a file has another size than was announced."""


def read_regular_file(folder: str | os.PathLike[str], name: str, *, nbytes: int | None = None) -> bytes:
    """Return the bytes of the file `name` in `folder`; see `read_regular_buffer`."""
    return bytes(read_regular_buffer(folder, name, nbytes=nbytes))


def read_regular_buffer(folder: str | os.PathLike[str], name: str, *, nbytes: int | None = None) -> bytearray:
    """Return the bytes of the file `name` in `folder`, which must be exactly `nbytes` if that is given.

    The folder is opened first and the file within it, neither through a link, so that nothing that is exchanged
    meanwhile is followed. Raises FileNotFoundError, NotRegularError for a link, a pipe, a folder or a file with a
    second name (a hard link: its owner may change it later), WrongSizeError, and OSError for what the system says.
    """
    where = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for its writer.
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=where)
    finally:
        os.close(where)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise NotRegularError(f"{name} is not a regular file")
        if found.st_nlink > 1:
            raise NotRegularError(f"{name} has {found.st_nlink} names (hard links), expected one")
        if nbytes is not None and found.st_size != nbytes:
            raise WrongSizeError(f"{name} has {found.st_size} bytes, {nbytes} were announced")
        wanted = found.st_size
        data = bytearray(wanted)
        view, done = memoryview(data), 0
        while done < wanted and (count := file.readinto(view[done:])):
            done += count
    if done != wanted:
        raise WrongSizeError(f"{name} ends after {done} of {wanted} bytes")
    return data
