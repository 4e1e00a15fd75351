"""Control access to a policy server: open on the loopback interface, with a token on any other."""

from __future__ import annotations

import os
import re
import secrets
import shlex
from collections.abc import Mapping
from pathlib import Path

from ding_like.comm.rest.refusal import RefusedError
from ding_like.errors import ConfigError
from ding_like.utils.addresses import OWN_HOST, check_known, is_loopback
from ding_like.utils.private_file import NotPrivateError, read_private_file

_MAX_FILE = 4096
_MIN_LENGTH, _MAX_LENGTH = 20, 1024  # characters
_MIN_DISTINCT = 8  # a random token of 32 hex digits has about 14 different characters
_TOKEN = re.compile(r"[\x21-\x7e]+")
_HOST = re.compile(r"(?:(?P<name>[A-Za-z0-9.-]+)|\[(?P<six>[0-9A-Fa-f:]+)\])(?::[0-9]{1,5})?")
_LOCAL_NAMES = frozenset(("127.0.0.1", "localhost", "::1"))
_HOW = "(umask 077; python -c 'import secrets; print(secrets.token_urlsafe(32))' > FILE)"


def read_token(path: str | Path) -> str:
    """Return the token in a file. Raises ConfigError for one that others can read, or that could be guessed.

    A file that holds no token is refused as such, whatever its mode.
    """
    exposed: NotPrivateError | None = None
    try:
        try:
            text = read_private_file(path, max_bytes=_MAX_FILE)
        except NotPrivateError as error:
            exposed = error
            with open(path, "rb") as file:  # of a file that is no token, its mode is no matter of this command
                text = file.read(_MAX_FILE)
        is_own = os.stat(path).st_uid == os.geteuid()
    except OSError as error:
        raise ConfigError(
            f"the token file {path} cannot be read: {error.strerror or error}. Make one: {_HOW}"
        ) from error
    token = text.decode("latin-1").strip()
    if (
        _TOKEN.fullmatch(token) is None
        or not _MIN_LENGTH <= len(token) <= _MAX_LENGTH
        or len(set(token)) < _MIN_DISTINCT
    ):
        raise ConfigError(
            f"the token file {path} holds no token that is hard to guess: expected one line of {_MIN_LENGTH} to "
            f"{_MAX_LENGTH:,} random letters, digits and signs. Make one: {_HOW}"
        )
    if exposed is not None:
        way = f"do `chmod 600 {shlex.quote(str(path))}`, or make another" if is_own else "make one of your own"
        raise ConfigError(
            f"the token file {path} can be read or changed by others (mode {exposed.mode:04o}): {way}: {_HOW}"
        ) from exposed
    return token


def check_host(host: str, token: str | None) -> None:
    """Raise ConfigError for a host that is not known, or that other machines could reach without a token."""
    if not host.strip():
        raise ConfigError(
            "the host is empty, which would be every interface of this machine: give --host 127.0.0.1 for this machine "
            "alone, or --host 0.0.0.0 with --token-file for all that reach it."
        )
    check_known(host, "--host", OWN_HOST)
    if token is None and not is_loopback(host):
        raise ConfigError(
            f"a policy served on {host} can be asked from other machines: give --token-file FILE, a secret that its "
            f"clients send as `Authorization: Bearer ...`. Make one: {_HOW}"
        )


class Access:
    """Check requests: for the token, or without one that they come from this machine."""

    def __init__(self, token: str | None, host: str) -> None:
        self._expected = None if token is None else f"Bearer {token}".encode()
        # A web page whose name was made to resolve to this machine (DNS rebinding) sends that name as Host.
        self._names = _LOCAL_NAMES if token is None and is_loopback(host) else None

    def is_known(self, headers: Mapping[str, str]) -> bool:
        """Tell whether a request has the token; names of headers are in capitals with underscores."""
        if self._expected is None:
            return True
        said = headers.get("AUTHORIZATION", "").encode("utf-8", "surrogateescape")
        return secrets.compare_digest(said, self._expected)

    def check(self, headers: Mapping[str, str]) -> None:
        """Raise RefusedError for a request without access; names of headers as for `is_known`."""
        if "ORIGIN" in headers:
            raise RefusedError("wrong_role", "the request has an Origin: requests of web pages are not answered")
        found = _HOST.fullmatch(headers.get("HOST", ""))
        if self._names is not None and (found is None or (found["name"] or found["six"]).lower() not in self._names):
            raise RefusedError(
                "malformed",
                f"the Host of the request is {headers.get('HOST', '')[:80]!r}, expected one of "
                f"{', '.join(sorted(self._names))}",
            )
        if not self.is_known(headers):
            given = "another token" if "AUTHORIZATION" in headers else "no token"
            raise RefusedError("bad_key", f"the request has {given}, expected `Authorization: Bearer TOKEN`")
