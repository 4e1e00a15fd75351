"""Keys of a run, one for each role, and tokens of a policy server: in files that only their owner can read."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
from collections.abc import Mapping
from pathlib import Path

from ding_like.errors import ConfigError
from ding_like.utils.files import NotPrivateError, read_private_file

ROLES = ("collector", "learner", "admin")
_KEY_BYTES = 32
_MIN_DISTINCT = 12  # of the bytes of a key; 32 random ones have about 30, and fewer than 12 never
_MAX_FILE = 65_536
_TOKEN = re.compile(r"[\x21-\x7e]{20,1024}")
_MIN_DISTINCT_LETTERS = 8  # a random token of 32 hex digits has about 14 different characters
MAKE_TOKEN = "(umask 077; python -c 'import secrets; print(secrets.token_urlsafe(32))' > FILE)"

Keys = Mapping[str, bytes]


def make_keys(path: str | os.PathLike[str], *, per_role: bool = False) -> dict[str, bytes]:
    """Write a new key for each role to a file that only its owner can read, and return them.

    `per_role` also writes one file for each role, beside it, with that role's key alone (see `role_file`). Raises
    FileExistsError, and writes nothing, if one of the files is there.
    """
    keys = {role: secrets.token_bytes(_KEY_BYTES) for role in ROLES}
    files = {Path(path): keys}
    if per_role:
        files.update({role_file(path, role): {role: key} for role, key in keys.items()})
    made: list[Path] = []
    try:
        for each, held in files.items():
            descriptor = os.open(each, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            made.append(each)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                json.dump({role: key.hex() for role, key in held.items()}, file)
    except OSError:
        for each in made:
            each.unlink(missing_ok=True)
        raise
    return keys


def role_file(path: str | os.PathLike[str], role: str) -> Path:
    """Return the name of the file of one role beside the file of all: keys.json, keys.collector.json."""
    path = Path(path)
    return path.with_name(f"{path.stem}.{role}{path.suffix}")


def load_keys(path: str | os.PathLike[str]) -> dict[str, bytes]:
    """Return the keys of a file by role; it may hold only some.

    A link to the file is followed, as mounted secrets are links: what counts is who can read the file itself. Raises
    ConfigError for one that is not a key file, that others than its owner can read, or whose keys are weak or equal.
    """
    try:
        text = read_key_file(path, max_bytes=_MAX_FILE, made_by="ding keys FILE")
        keys = {role: bytes.fromhex(key) for role, key in json.loads(text).items()}
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as a key file: {error}.") from error
    if not keys or any(len(key) < _KEY_BYTES for key in keys.values()) or not set(keys) <= set(ROLES):
        raise ConfigError(f"{path} holds no keys of {_KEY_BYTES} bytes for {', '.join(ROLES)}.")
    weak = [role for role, key in keys.items() if len(set(key)) < _MIN_DISTINCT]
    if weak:
        raise ConfigError(
            f"{path}: the key of {', '.join(weak)} can be guessed: it has the same bytes again and again. Make keys "
            "with `ding keys FILE`."
        )
    if len(set(keys.values())) < len(keys):
        raise ConfigError(
            f"{path} has one key for several roles, so that each could do what the others may. Make keys with "
            "`ding keys FILE`."
        )
    return keys


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


def read_token(path: str | Path) -> str:
    """Return the token in a file. Raises ConfigError for one that others can read, or that could be guessed."""
    try:
        token = read_private_file(path, max_bytes=_MAX_FILE).decode("latin-1").strip()
    except NotPrivateError as error:
        raise ConfigError(
            f"the token file {path} can be read or changed by others (mode {error.mode:04o}): do "
            f"`chmod 600 {shlex.quote(str(path))}`, or make another: {MAKE_TOKEN}"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"the token file {path} cannot be read: {error.strerror or error}. Make one: {MAKE_TOKEN}"
        ) from error
    if _TOKEN.fullmatch(token) is None or len(set(token)) < _MIN_DISTINCT_LETTERS:
        raise ConfigError(
            f"the token file {path} holds no token that is hard to guess: expected one line of 20 to 1,024 random "
            f"letters, digits and signs. Make one: {MAKE_TOKEN}"
        )
    return token
