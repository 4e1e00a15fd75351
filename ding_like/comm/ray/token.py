"""Make and find the token without which nobody may use a Ray cluster.

Ray's processes listen on every address of the machine, and whoever may talk to them runs code as this user: the token
is what keeps strangers out. Source: Ray's documentation, "Token authentication" (RAY_AUTH_MODE, RAY_AUTH_TOKEN_PATH).
"""

from __future__ import annotations

import logging
import os
import secrets
from pathlib import Path

from ding_like.errors import ConfigError
from ding_like.utils.private_file import NotPrivateError, read_private_file

logger = logging.getLogger(__name__)

MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
_MAX_BYTES = 4096


def make_token(folder: Path) -> Path:
    """Write a new token of 256 random bits to a file of `folder` that only this user can read; return its path."""
    path = folder / "token"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    return path


def default_path() -> Path:
    """Return where Ray looks for a token that nothing else names."""
    return Path.home() / ".ray" / "auth_token"


def check_token(address: str, *, allow_open: bool) -> str:
    """Return the mode that a cluster is to be attached to with, "token" or "disabled".

    Raises ConfigError if the environment asks for no token, or there is none, unless `allow_open`.
    """
    mode = os.environ.get(MODE, "").lower()
    if mode == "disabled" or (allow_open and not mode and _missing() is not None):
        if allow_open:
            return "disabled"
        raise ConfigError(
            f"{MODE}=disabled: without a token anybody who reaches {address} runs code as its user. Unset it and name "
            f"the cluster's token by {TOKEN_PATH}, or allow it by system_config.ray.allow_open=True."
        )
    missing = _missing()
    if missing is not None:
        raise ConfigError(
            f"Ray at {address} is attached to with a token, and {missing}. Copy the cluster's token to a file of mode "
            f"0600 and name it by {TOKEN_PATH}; a cluster without one needs system_config.ray.allow_open=True."
        )
    return "token"


def describe_token() -> str:
    """Say which token Ray uses, never what it is."""
    if os.environ.get(TOKEN):
        return f"the token in {TOKEN}"
    path = os.environ.get(TOKEN_PATH)
    return f"the token file {path} ({TOKEN_PATH})" if path else f"the token file {default_path()}"


def _missing() -> str | None:
    """Return what is wrong with the token that Ray would use, None if it can be read."""
    if os.environ.get(TOKEN):
        return None
    path = Path(os.environ.get(TOKEN_PATH) or default_path())
    try:
        text = read_private_file(path, max_bytes=_MAX_BYTES)
    except NotPrivateError as error:
        # Ray makes its own this way.
        logger.warning("the token file %s: %s; chmod 600 keeps it secret", path, error)
        text = path.read_bytes()[:_MAX_BYTES]
    except OSError as error:
        return f"{describe_token()} cannot be read ({error.strerror or error})"
    return None if text.strip() else f"{describe_token()} is empty"
