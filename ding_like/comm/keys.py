"""Keys of a run, one for each role, tokens of a policy server, and CURVE keys: in files that only their owner can read.

A peer without a listed CURVE key is not admitted. The driver's file holds the pair of the server, a pair for the
driver's own processes, and the public keys of workers by name. Each worker has a file with its own pair and the
server's public key. A public key that is taken off the driver's file is refused at the next handshake: a client that is
connected stays until its connection ends. Source: RFC 26 (CurveZMQ) and RFC 27 (ZAP) of ZeroMQ, which pyzmq's
`ThreadAuthenticator` implements.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import re
import secrets
import shlex
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from ding_like.comm.zmq import load_curve, own_authenticator
from ding_like.errors import ConfigError
from ding_like.types import Json
from ding_like.utils.files import NotPrivateError, atomic_write, read_private_file

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


logger = logging.getLogger(__name__)

LOCAL = "local"  # the client that processes of the driver are
_MAX_CURVE_FILE = 1_048_576
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_KEY = re.compile(r"[!-~]{40}")


class Pair(NamedTuple):
    """Pair of keys, 40 characters each: 32 bytes as Z85 (RFC 32 of ZeroMQ)."""

    public: str
    secret: str

    def __repr__(self) -> str:
        return f"Pair({self.public!r})"


@dataclass(frozen=True)
class SeedKeys:
    """Keys of one file: the pair that this process connects with and, in the driver's, the clients to admit."""

    path: Path
    server_public: str
    own: Pair
    server: Pair | None = None  # None: a worker's file
    clients: Mapping[str, str] = field(default_factory=dict)  # public keys by name, `LOCAL` apart

    def secure(self, raw: Any, *, is_server: bool) -> Admission | None:  # Any: zmq.Socket
        """Let a socket that is about to be bound (`is_server`) or connected use these keys.

        Returns the admission of the peers of a bound socket, which is closed with it.

        Raises ConfigError for a bound socket with a worker's keys, and where pyzmq has no CURVE.
        """
        load_curve()
        if not is_server:
            raw.curve_serverkey = self.server_public.encode()
            raw.curve_publickey, raw.curve_secretkey = self.own.public.encode(), self.own.secret.encode()
            return None
        if self.server is None:
            raise ConfigError(
                f"{self.path} is the key file of a worker, and cannot admit others: give the driver the file that "
                "`ding keys --curve` wrote first."
            )
        # Two runs of one process ask under different names.
        domain = hashlib.sha256(f"{self.path.absolute()} {self.server_public}".encode()).hexdigest()[:32]
        raw.curve_server = True
        raw.curve_publickey, raw.curve_secretkey = self.server.public.encode(), self.server.secret.encode()
        raw.zap_domain = domain.encode()
        return Admission(domain, self)

    def callback(self, domain: str, key: bytes) -> bool:
        """Return whether a client with a public key may connect, as the file is now; pyzmq's authenticator calls it.

        While the file cannot be read, only the driver's own processes may.
        """
        public, admitted = key.decode(), {self.own.public}
        with suppress(ConfigError):
            now = load_seed_keys(self.path)
            if now.server == self.server:
                admitted.update(now.clients.values())
        if public not in admitted:
            _warn_of(public)
        return public in admitted


@cache
def _warn_of(public: str) -> None:
    """Log a refused client, once for each key: it tries again and again."""
    logger.warning("a client was refused: its public key %s is not listed in this run's key file", public)


class Admission:
    """Admission of the clients of one bound socket; the thread that decides on them ends with the last one."""

    _lock = threading.Lock()  # guards the next two
    _open: ClassVar[set[Admission]] = set()
    _authenticator: ClassVar[Any] = None  # Any: pyzmq's, one for all sockets of this process

    def __init__(self, domain: str, keys: SeedKeys) -> None:
        with self._lock:
            if not self._open:
                Admission._authenticator = own_authenticator()
                self._authenticator.start()
            self._authenticator.configure_curve_callback(domain, keys)
            self._open.add(self)

    def close(self) -> None:
        """Admit no further clients; may be called again."""
        with self._lock:
            if self in self._open:
                self._open.discard(self)
                if not self._open:
                    self._authenticator.stop()


def make_seed_keys(path: str | os.PathLike[str], clients: Sequence[str] = ()) -> list[Path]:
    """Write new keys to the driver's file and a file beside it for each client; return the files, the driver's first.

    Raises FileExistsError, and writes nothing, if one of them is there; ConfigError for a name that cannot be one.
    """
    path = Path(path)
    _check_names(clients)
    for each in (path, *(client_file(path, name) for name in clients)):
        if each.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(each))
    server = _new_pair()
    return _write(SeedKeys(path, server.public, _new_pair(), server), clients)


def renew_clients(path: str | os.PathLike[str], clients: Sequence[str]) -> list[Path]:
    """Give clients new pairs, or their first, in a driver's file that is there; return the files that were written.

    Their old keys are refused from now on: a worker needs its new file. Raises ConfigError for a file that is no
    driver's.
    """
    keys = _load_drivers(path)
    _check_names(clients)
    return _write(keys, clients)


def remove_clients(path: str | os.PathLike[str], clients: Sequence[str]) -> None:
    """Take clients off a driver's file: their keys are refused from now on. Raises ConfigError for unknown names."""
    keys = _load_drivers(path)
    unknown = [name for name in clients if name not in keys.clients]
    if unknown:
        raise ConfigError(f"{path} has no client {', '.join(unknown)}; it has {', '.join(keys.clients) or 'none'}.")
    _write(replace(keys, clients={name: key for name, key in keys.clients.items() if name not in clients}), ())
    for name in clients:
        client_file(keys.path, name).unlink(missing_ok=True)


def client_file(path: str | os.PathLike[str], name: str) -> Path:
    """Return the name of the file of one client beside the driver's: keys.json, keys.worker.json."""
    path = Path(path)
    return path.with_name(f"{path.stem}.{name}{path.suffix}")


def load_seed_keys(path: str | os.PathLike[str]) -> SeedKeys:
    """Return the keys of a driver's or a worker's file.

    A link to the file is followed, as mounted secrets are links. Raises ConfigError for one that is no such file or
    that others than its owner can read.
    """
    try:
        text = read_key_file(path, max_bytes=_MAX_CURVE_FILE, made_by="ding keys --curve FILE")
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        held = json.loads(text)
        if "clients" not in held:
            return SeedKeys(Path(path), _key(held["server"]["public"]), _pair(held["client"]))
        clients = {str(name): _key(each) for name, each in held["clients"].items()}
        server = _pair(held["server"])
        return SeedKeys(Path(path), server.public, _pair(held[LOCAL]), server, clients)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str | os.PathLike[str], error: Exception) -> ConfigError:
    return ConfigError(
        f"{path} cannot be read as a file of CURVE keys: {error}. Make one with `ding keys --curve FILE`."
    )


def _load_drivers(path: str | os.PathLike[str]) -> SeedKeys:
    keys = load_seed_keys(path)
    if keys.server is None:
        raise ConfigError(f"{path} is the key file of a worker; expected the driver's, which lists the workers.")
    return keys


def _check_names(names: Sequence[str]) -> None:
    wrong = [name for name in names if not _NAME.fullmatch(name) or name == LOCAL]
    if wrong or len(set(names)) < len(names):
        raise ConfigError(
            f"{', '.join(map(repr, wrong or names))} cannot be names of clients; expected different names of letters, "
            f"digits, '-' and '_', and not '{LOCAL}'."
        )


def _new_pair() -> Pair:
    public, secret = load_curve().curve_keypair()
    return Pair(public.decode(), secret.decode())


def _write(keys: SeedKeys, renewed: Sequence[str]) -> list[Path]:
    """Write the driver's file with new pairs for some clients, and the files of these; return the driver's, then them.

    The driver's file is written last: each client that it lists has a file.
    """
    assert keys.server is not None
    pairs = {name: _new_pair() for name in renewed}
    clients = {**keys.clients, **{name: pair.public for name, pair in pairs.items()}}
    files: dict[Path, Json] = {
        client_file(keys.path, name): {"server": {"public": keys.server_public}, "client": pair._asdict()}
        for name, pair in pairs.items()
    }
    files[keys.path] = {"server": keys.server._asdict(), LOCAL: keys.own._asdict(), "clients": clients}
    for path, held in files.items():
        with atomic_write(path, durable=True) as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(json.dumps(held, indent=1).encode())
    return [keys.path, *list(files)[:-1]]


def _pair(held: Mapping[str, Json]) -> Pair:
    return Pair(_key(held["public"]), _key(held["secret"]))


def _key(held: Json) -> str:
    if not isinstance(held, str) or not _KEY.fullmatch(held):
        raise ValueError("a key is no text of 40 characters of Z85")
    return held
