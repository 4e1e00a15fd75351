"""Sign requests: a key per role, a signature over everything a request says, a window in time, and no request twice."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path

from ding_like.comm.refusal import RefusedError
from ding_like.errors import ConfigError

ROLES = ("collector", "learner", "admin")
WINDOW_S = 300.0
_KEY_BYTES = 32
_MAX_NONCES = 200_000
_HEADER = re.compile(
    r"DL1 key=(?P<role>[a-z]{1,16}),ts=(?P<ts>\d{1,12}),nonce=(?P<nonce>[0-9a-f]{32}),sig=(?P<sig>[0-9a-f]{64})"
)

Keys = Mapping[str, bytes]


def make_keys(path: str | os.PathLike[str]) -> dict[str, bytes]:
    """Write a new key for each role to a file that only its owner can read, and return them."""
    keys = {role: secrets.token_bytes(_KEY_BYTES) for role in ROLES}
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        json.dump({role: key.hex() for role, key in keys.items()}, file)
    return keys


def load_keys(path: str | os.PathLike[str]) -> dict[str, bytes]:
    """Return the keys of a file by role; it may hold only some. Raises ConfigError for one that is no key file."""
    try:
        keys = {role: bytes.fromhex(text) for role, text in json.loads(Path(path).read_text("ascii")).items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ConfigError(f"{path} cannot be read as a key file: {error}.") from error
    if not keys or any(len(key) < _KEY_BYTES for key in keys.values()) or not set(keys) <= set(ROLES):
        raise ConfigError(f"{path} holds no keys of {_KEY_BYTES} bytes for {', '.join(ROLES)}.")
    return keys


def sign(key: bytes, role: str, method: str, path: str, body: bytes, *, now_s: float) -> str:
    """Return the Authorization header of a request; `path` includes the query."""
    ts, nonce = str(int(now_s)), secrets.token_hex(16)
    return f"DL1 key={role},ts={ts},nonce={nonce},sig={_signature(key, method, path, body, ts, nonce)}"


class Verifier:
    """Check signatures, and that no request comes twice."""

    def __init__(self, keys: Keys, *, wall_clock: Callable[[], float]) -> None:
        self._keys = dict(keys)
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, float] = OrderedDict()  # nonce -> when it may be forgotten

    def role_of(self, header: str, method: str, path: str, body: bytes) -> str:
        """Return the role that signed a request. Raises RefusedError for anything else."""
        found = _HEADER.fullmatch(header)
        key = self._keys.get(found["role"]) if found else None
        if found is None or key is None:
            raise RefusedError("bad_key", "the request is not signed with a key that is known here")
        expected = _signature(key, method, path, body, found["ts"], found["nonce"])
        if not hmac.compare_digest(expected, found["sig"]):
            raise RefusedError("bad_key", "the signature does not fit: another key, or the request was changed")
        now = self._wall_clock()
        if abs(now - int(found["ts"])) > WINDOW_S:
            raise RefusedError("bad_key", f"the request was signed more than {WINDOW_S:g} s ago or ahead")
        self._remember(found["nonce"], now)
        return found["role"]

    def _remember(self, nonce: str, now: float) -> None:
        with self._lock:
            while self._seen and next(iter(self._seen.values())) < now:
                self._seen.popitem(last=False)
            if nonce in self._seen:
                raise RefusedError("bad_key", "the request was sent before")
            if len(self._seen) >= _MAX_NONCES:
                raise RefusedError("quota", "too many requests at once", retry_after_s=1.0)
            self._seen[nonce] = now + 2 * WINDOW_S


def _signature(key: bytes, method: str, path: str, body: bytes, ts: str, nonce: str) -> str:
    parts = (method, path, hashlib.sha256(body).hexdigest(), ts, nonce)
    return hmac.new(key, "\n".join(parts).encode(), hashlib.sha256).hexdigest()
