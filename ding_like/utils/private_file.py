"""Read a file with a secret: one that only its owner can read or change."""

from __future__ import annotations

import os
import stat


class NotPrivateError(OSError):
    """Say that others than its owner can read or change a file; `mode` is its permissions."""

    def __init__(self, mode: int) -> None:
        super().__init__(f"others can read or change it (mode {mode:04o})")
        self.mode = mode


def read_private_file(path: str | os.PathLike[str], *, max_bytes: int) -> bytes:
    """Return at most `max_bytes` of a file that only its owner can read or change.

    A link to the file is followed, as mounted secrets are links: what counts is who can read the file itself. Raises
    NotPrivateError, and OSError for what is no file or cannot be read.
    """
    # What was opened is what is looked at: a name could point elsewhere a moment later. A pipe is not waited for.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is not a file")
        mode = stat.S_IMODE(found.st_mode)
        if mode & 0o077:
            raise NotPrivateError(mode)
        return file.read(max_bytes)
