"""Keep the CURVE keys of a run in files that only their owner can read, and admit those alone who have a listed key.

The driver's file holds the pair of the server, a pair for the driver's own processes, and the public keys of others by
name. Each of the others has a file with its own pair and the server's public key. A public key that is taken off the
driver's file is refused at the next handshake: a client that is connected stays until its connection ends. Source: RFC
26 (CurveZMQ) and RFC 27 (ZAP) of ZeroMQ, which pyzmq's `ThreadAuthenticator` implements.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import re
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ding_like.comm.key_file import read_key_file
from ding_like.comm.zmq.library import load_authenticator, load_curve
from ding_like.comm.zmq.sockets import own_context
from ding_like.errors import ConfigError

logger = logging.getLogger(__name__)

LOCAL = "local"  # the client that processes of the driver are
_MAX_FILE = 1_048_576
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_KEY = re.compile(r"[0-9a-zA-Z.:+=^!/*?&<>()\[\]{}@%$#-]{40}")
_MIN_DISTINCT = 12  # of the characters of a key; 40 random ones have about 32


@dataclass(frozen=True)
class Pair:
    """Hold a pair of keys, 40 characters each: 32 bytes as Z85 (RFC 32 of ZeroMQ)."""

    public: str
    secret: str = field(repr=False)


@dataclass(frozen=True)
class SeedKeys:
    """Hold what one file of keys holds: who this process is, and where it is the driver's, who may connect."""

    path: Path
    server_public: str
    own: Pair  # as which this process connects
    server: Pair | None = None  # None: a worker's file
    clients: Mapping[str, str] = field(default_factory=dict)  # public keys by name, `LOCAL` apart

    def secure(self, raw: Any, *, is_server: bool) -> Callable[[], None]:  # Any: zmq.Socket
        """Have a socket that is about to be bound (`is_server`) or connected use these keys; return what ends that.

        Raises ConfigError where a worker's keys would have to admit others, and where pyzmq has no CURVE.
        """
        load_curve()
        if not is_server:
            raw.curve_serverkey = self.server_public.encode()
            raw.curve_publickey, raw.curve_secretkey = self.own.public.encode(), self.own.secret.encode()
            return lambda: None
        if self.server is None:
            raise ConfigError(
                f"{self.path} is the key file of a worker, and cannot admit others: give the driver the file that "
                "`ding keys --curve` wrote first."
            )
        raw.curve_server = True
        raw.curve_publickey, raw.curve_secretkey = self.server.public.encode(), self.server.secret.encode()
        raw.zap_domain = self.domain.encode()
        return _authenticate(self.domain, self)

    @property
    def domain(self) -> str:
        """Return the name under which a process asks who may connect: runs with other files have others."""
        return hashlib.sha256(f"{self.path.absolute()} {self.server_public}".encode()).hexdigest()[:32]

    def is_admitted(self, public: str) -> bool:
        """Tell whether a client with a public key may connect, as the file is now: keys taken off it are refused.

        A file that cannot be read any more admits nobody but the driver's own processes.
        """
        if public == self.own.public:
            return True
        try:
            now = load_seed_keys(self.path)
        except ConfigError:
            return False
        return now.server == self.server and public in now.clients.values()

    def callback(self, domain: str, key: bytes) -> bool:
        """Answer pyzmq's authenticator: whether a client with a public key may connect; name strangers in the log."""
        public = key.decode()
        if self.is_admitted(public):
            return True
        if public not in _strangers and len(_strangers) < _MAX_STRANGERS:  # one that is refused tries again and again
            _strangers.add(public)
            logger.warning("a client was refused: its public key %s is not listed in this run's key file", public)
        return False


_MAX_STRANGERS = 100  # that are named in the log, each once
_strangers: set[str] = set()
_lock = threading.Lock()  # guards the next two
_authenticator: Any = None  # Any: pyzmq's, which answers while sockets of this process admit clients
_domains: Counter[str] = Counter()


def _authenticate(domain: str, keys: SeedKeys) -> Callable[[], None]:
    """Have pyzmq's authenticator ask `keys` who may connect to sockets of a domain; return what ends that."""
    global _authenticator
    with _lock:
        if _authenticator is None:
            _authenticator = load_authenticator()(own_context())
            _authenticator.start()
        _authenticator.configure_curve_callback(domain, keys)
        _domains[domain] += 1
    is_released = threading.Event()

    def release() -> None:
        global _authenticator
        with _lock:
            if is_released.is_set():
                return
            is_released.set()
            _domains[domain] -= 1
            if not any(_domains.values()):
                # Unbound first: closing frees the name some time later, and the next authenticator may come at once.
                _authenticator.pipe.send(b"TERMINATE")
                _authenticator.thread.join()
                _authenticator.zap_socket.unbind("inproc://zeromq.zap.01")
                _authenticator.pipe.close()
                _authenticator.pipe = None
                _authenticator.stop()
                _authenticator = None

    return release


def make_seed_keys(path: str | os.PathLike[str], clients: Sequence[str]) -> list[Path]:
    """Write a driver's file with new keys, and beside it a file for each client; return the files, the driver's first.

    Raises FileExistsError, and writes nothing, if one of them is there; ConfigError for a name that cannot be one.
    """
    path = Path(path)
    _check_names(clients)
    files = [path, *(client_file(path, name) for name in clients)]
    there = next((each for each in files if each.exists()), None)
    if there is not None:
        raise _is_there(there)
    server, own = _new_pair(), _new_pair()
    _write(SeedKeys(path, server.public, own, server), {name: _new_pair() for name in clients}, is_new=True)
    return files


def renew_clients(path: str | os.PathLike[str], clients: Sequence[str]) -> list[Path]:
    """Give clients new pairs, or their first, in a driver's file that is there; return the files that were written.

    Their old keys are refused from now on: a worker needs its new file. Raises ConfigError for a file that is no
    driver's.
    """
    keys = _load_drivers(path)
    _check_names(clients)
    _write(keys, {name: _new_pair() for name in clients})
    return [keys.path, *(client_file(keys.path, name) for name in clients)]


def remove_clients(path: str | os.PathLike[str], clients: Sequence[str]) -> None:
    """Take clients off a driver's file: their keys are refused from now on. Raises ConfigError for unknown names."""
    keys = _load_drivers(path)
    unknown = [name for name in clients if name not in keys.clients]
    if unknown:
        raise ConfigError(f"{path} has no client {', '.join(unknown)}; it has {', '.join(keys.clients) or 'none'}.")
    left = {name: public for name, public in keys.clients.items() if name not in clients}
    _write(SeedKeys(keys.path, keys.server_public, keys.own, keys.server, left), {})
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
        held = json.loads(read_key_file(path, max_bytes=_MAX_FILE, made_by="ding keys --curve FILE"))
        if set(held) == {"server", "client"} and set(held["server"]) == {"public"}:
            found = SeedKeys(Path(path), _key(held["server"]["public"]), _pair(held["client"]))
        elif set(held) == {"server", LOCAL, "clients"}:
            server, clients = _pair(held["server"]), {str(n): _key(each) for n, each in held["clients"].items()}
            found = SeedKeys(Path(path), server.public, _pair(held[LOCAL]), server, clients)
        else:
            raise ValueError(f"it has the keys {sorted(map(str, held))[:8]}")
    except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"{path} cannot be read as a file of CURVE keys: {error}. Make one with `ding keys --curve FILE`."
        ) from error
    _check_pairs(found)
    return found


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


def _check_pairs(keys: SeedKeys) -> None:
    """Raise ConfigError for pairs whose public key is not that of the secret, and for one pair with two uses."""
    zmq = load_curve()
    for pair in (keys.own, keys.server):
        if pair is not None and len(set(pair.secret)) < _MIN_DISTINCT:
            raise ConfigError(f"{keys.path}: a key can be guessed: it has the same characters again and again.")
        if pair is not None and zmq.curve_public(pair.secret.encode()) != pair.public.encode():
            raise ConfigError(f"{keys.path}: a public key does not belong to its secret one. Make new keys.")
    publics = [keys.server_public, keys.own.public, *keys.clients.values()]
    if len(set(publics)) < len(publics):
        raise ConfigError(f"{keys.path} has one key for several: one could pose as the other. Make new keys.")


def _new_pair() -> Pair:
    public, secret = load_curve().curve_keypair()
    return Pair(public.decode(), secret.decode())


def _write(keys: SeedKeys, renewed: Mapping[str, Pair], *, is_new: bool = False) -> None:
    """Write the driver's file with clients that have new pairs, and the files of these."""
    assert keys.server is not None
    clients = {**keys.clients, **{name: pair.public for name, pair in renewed.items()}}
    held = {"server": _described(keys.server), LOCAL: _described(keys.own), "clients": clients}
    files = {client_file(keys.path, name): pair for name, pair in renewed.items()}
    texts = {
        each: {"server": {"public": keys.server_public}, "client": _described(pair)} for each, pair in files.items()
    }
    # The driver's file is the last: what it lists has a file. A stop in between leaves the old keys valid.
    made: list[Path] = []
    try:
        for each, text in (*texts.items(), (keys.path, held)):
            _write_private(each, json.dumps(text, indent=1), is_new=is_new)
            made.append(each)
    except OSError:
        for each in made if is_new else ():
            each.unlink(missing_ok=True)
        raise


def _write_private(path: Path, text: str, *, is_new: bool) -> None:
    """Write a file of mode 0600 as a whole, over what is there unless it `is_new`."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            try:
                os.link(name, path)  # unlike a rename it overwrites nothing
            except FileExistsError:
                raise _is_there(path) from None  # the error names the temporary file
        else:
            os.replace(name, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)


def _is_there(path: Path) -> FileExistsError:
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))


def _described(pair: Pair) -> dict[str, str]:
    return {"public": pair.public, "secret": pair.secret}


def _pair(held: Any) -> Pair:  # Any: of JSON
    if set(held) != {"public", "secret"}:
        raise ValueError("a pair of keys has other parts than public and secret")
    return Pair(_key(held["public"]), _key(held["secret"]))


def _key(held: Any) -> str:  # Any: of JSON
    if not isinstance(held, str) or not _KEY.fullmatch(held):
        raise ValueError("a key is no text of 40 characters of Z85")
    return held
