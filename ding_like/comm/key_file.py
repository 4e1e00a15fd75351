"""Read a file of keys, which only its owner can read."""

from __future__ import annotations

import os

from ding_like.errors import ConfigError
from ding_like.utils.private_file import NotPrivateError, read_private_file


def read_key_file(path: str | os.PathLike[str], *, max_bytes: int, made_by: str) -> bytes:
    """Return the bytes of a file that only its owner can read or change; the command `made_by` makes one.

    Raises ConfigError for one that others can read, and OSError as `read_private_file` does.
    """
    try:
        return read_private_file(path, max_bytes=max_bytes)
    except NotPrivateError as error:
        raise ConfigError(
            f"{path} can be read or changed by others (mode {error.mode:04o}): its keys may be known to them. Do "
            f"`chmod 600 {path}`, or make new keys with `{made_by}`."
        ) from error
