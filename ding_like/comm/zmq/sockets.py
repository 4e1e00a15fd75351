"""Sockets that send and receive frames, a poller, a wake-up call from another thread, and messages as frames.

One thread uses a `Socket`; other threads call `Wake.wake` for its attention. Nothing here waits without a deadline, and
what was not sent when a socket is closed is dropped.

A message is [head][array][array]...: the head is a JSON object with "kind" and "arrays", a list of [name, dtype,
shape]. Nothing can be executed from it. Shapes and dtypes are claims of the sender, and are compared with the bytes
that came before an array is made.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from math import ceil, prod
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from ding_like.comm.channels import Head, is_count, short
from ding_like.comm.keys import Admission, SeedKeys
from ding_like.comm.zmq import load_zmq, own_context
from ding_like.errors import CommError, ConfigError
from ding_like.types import Array, Json
from ding_like.utils.processes import is_loopback, make_own_folder

MAX_FRAME_NBYTES = 2**32  # a peer that claims a longer frame is cut off before memory is taken for it
# ZeroMQ's flags as plain numbers: pyzmq's own, enums, are joined by 3 us of Python in every frame. They are part of
# ZeroMQ's ABI.
_NOBLOCK, _NOBLOCK_MORE = 1, 1 | 2
_MAX_PATH = 107  # bytes of a socket's path: the kernel has room for no more
_OPTIONS = dict(
    linger=0,
    # The kernel finds a peer that is gone without a word (a cut cable, a host without power) in some 15 s. Not
    # ZeroMQ's own heartbeats: where a peer ends while its queue here is full, libzmq 4.3.5 aborts this process.
    tcp_keepalive=1, tcp_keepalive_idle=6, tcp_keepalive_intvl=3, tcp_keepalive_cnt=3, tcp_maxrt=15_000,
    reconnect_ivl=20, reconnect_ivl_max=1_000,
)  # fmt: skip


class Socket:
    """ZeroMQ socket that sends and receives messages as lists of frames; one thread at a time uses it.

    `endpoint` is where it is bound, with its real port, or connected; `raw` is the socket of pyzmq.
    """

    def __init__(self, raw: Any, endpoint: str) -> None:  # Any: zmq.Socket
        self.raw = raw
        self.endpoint = endpoint
        self.admission: Admission | None = None  # of the peers of a bound socket with keys
        self._zmq = load_zmq()

    def send(self, frames: Sequence[Frame]) -> bool:
        """Send a message, whose memory the caller may change afterwards; return whether it was taken.

        It is not taken where the receiver's queue is full, or where a router's first frame names a peer that is not
        connected. Raises CommError if the socket is closed.
        """
        zmq, send, last = self._zmq, self.raw.send, len(frames) - 1
        try:
            for place, frame in enumerate(frames):
                # Copied: what pyzmq sends without copying it keeps in a thread of its own, and 10 MB cost 2 ms.
                send(frame, _NOBLOCK if place == last else _NOBLOCK_MORE)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                return False
            raise CommError(f"nothing can be sent to or from {self.endpoint}: {error}") from error
        return True

    def receive(self) -> list[memoryview] | None:
        """Return the frames of the next message, None if there is none now. Raises CommError if it is closed."""
        found = self.receive_from()
        return None if found is None else found[0]

    def receive_from(self) -> tuple[list[memoryview], str] | None:
        """Return the frames of the next message and the public key of its sender, "" for a socket without keys."""
        zmq, receive = self._zmq, self.raw.recv
        try:
            frames = [receive(_NOBLOCK, copy=False)]
            while frames[-1].more:
                frames.append(receive(_NOBLOCK, copy=False))
        except zmq.Again:
            return None
        except zmq.ZMQError as error:
            raise CommError(f"nothing can be received at {self.endpoint}: {error}") from error
        return [frame.buffer for frame in frames], str(frames[-1].get("User-Id")) if self.admission else ""

    def close(self) -> None:
        """Close the socket and drop what was not sent; may be called again."""
        self.raw.close(0)
        if self.admission is not None:
            self.admission.close()

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Wake:
    """Wake-up call for the thread that polls it beside its sockets; any thread may call `wake`."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self.fileno = self._reader.fileno

    def wake(self) -> None:
        """End the current or the next wait of the polling thread. Does nothing once closed."""
        with suppress(OSError):  # closed, or full of earlier calls
            self._writer.send(b"\0")

    def clear(self) -> None:
        """Drop the calls that have come; the polling thread does so before it looks what there is to do."""
        with suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass

    def close(self) -> None:
        """Release the pair; may be called again."""
        self._reader.close()
        self._writer.close()


class Poller:
    """Wait for the first of some sockets and wakes that can be read."""

    def __init__(self, *sources: Socket | Wake) -> None:
        self._zmq = load_zmq()
        self._poller = self._zmq.Poller()
        self._sources: dict[Any, Socket | Wake] = {}  # Any: a zmq.Socket or a file descriptor
        for source in sources:
            key = source.raw if isinstance(source, Socket) else source.fileno()
            self._sources[key] = source
            self._poller.register(key, self._zmq.POLLIN)

    def wait(self, timeout_s: float) -> list[Socket | Wake]:
        """Return the sources that can be read, none if there are none within `timeout_s`; clears wakes among them.

        Raises CommError if a socket was closed.
        """
        try:
            found = [self._sources[key] for key, _ in self._poller.poll(max(0, ceil(timeout_s * 1000)))]
        except self._zmq.ZMQError as error:
            raise CommError(f"a socket was closed while it was waited for: {error}") from error
        for source in found:
            if isinstance(source, Wake):
                source.clear()
        return found


class EndpointFolder:
    """Private folder (mode 0700) of a run's ipc sockets; folders of killed processes are swept."""

    def __init__(self, *, where: str | os.PathLike[str] | None = None) -> None:
        self.path = make_own_folder("ding-zmq-", where=where)

    def endpoint(self, name: str) -> str:
        """Return an endpoint in the folder. Raises ConfigError where its path is too long for a socket."""
        path = self.path / name
        if len(os.fsencode(path)) > _MAX_PATH:
            raise ConfigError(
                f"the path of a socket would have {len(os.fsencode(path))} characters, at most {_MAX_PATH} work: "
                f"{path}. Set TMPDIR to a shorter folder."
            )
        return f"ipc://{path}"

    def __enter__(self) -> EndpointFolder:
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def tcp_endpoint(host: str, port: int = 0) -> str:
    """Return the endpoint of a host; bound to port 0 a socket gets a free one."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def port_of(endpoint: str) -> int:
    """Return the port of a tcp endpoint, 0 for ipc."""
    return int(endpoint.rpartition(":")[2]) if endpoint.startswith("tcp://") else 0


def reached_by(endpoint: str, other: str) -> str:
    """Return an endpoint for a peer that reaches `other` on the same machine: one bound to every address names none."""
    transport, _, address = endpoint.partition("://")
    host, _, port = address.rpartition(":")
    if transport != "tcp" or host not in ("0.0.0.0", "*", "[::]"):
        return endpoint
    return f"tcp://{other.removeprefix('tcp://').rpartition(':')[0]}:{port}"


def open_socket(
    kind: Literal["router", "dealer"],
    *,
    bind: str | None = None,
    connect: str | None = None,
    keys: SeedKeys | None = None,
    identity: str | bytes | None = None,
    hwm: int = 1_000,
    max_frame_nbytes: int = MAX_FRAME_NBYTES,
    is_mandatory: bool = True,
) -> Socket:
    """Return an open socket, bound to or connected to an endpoint ("ipc://PATH", "tcp://HOST:PORT").

    With `keys` a bound socket admits their clients only, and a connected one authenticates as a client of their server.
    A router names its receivers by `identity`, and a peer that connects again under its old one takes its place; unless
    it `is_mandatory`, messages to peers that are gone are dropped. At most `hwm` messages wait to be sent to, and
    received from, each peer.

    Raises ConfigError for tcp on another address than the loopback without keys, and where pyzmq is missing; CommError
    where the address cannot be used.
    """
    endpoint = bind or connect or ""
    _check_endpoint(endpoint, has_keys=keys is not None)
    zmq = load_zmq()
    raw = own_context().socket(getattr(zmq, kind.upper()))
    found = Socket(raw, endpoint)
    try:
        for name, value in _OPTIONS.items():
            setattr(raw, name, value)
        raw.sndhwm = raw.rcvhwm = hwm
        raw.maxmsgsize = max_frame_nbytes
        raw.ipv6 = "[" in endpoint
        if kind == "router":
            raw.router_handover = True
            raw.router_mandatory = is_mandatory  # a receiver that is gone is known at once
        if identity is not None:
            raw.identity = identity.encode() if isinstance(identity, str) else identity
        if keys is not None:
            found.admission = keys.secure(raw, is_server=bind is not None)
        if bind is None:
            raw.connect(endpoint)
        else:
            raw.bind(bind)
            found.endpoint = raw.last_endpoint.decode()
            if bind.startswith("ipc://"):
                os.chmod(bind.removeprefix("ipc://"), 0o600)
    except (zmq.ZMQError, OSError) as error:
        found.close()
        fix = " Give another --port (system.seed.port; 0 takes any that is free), or a --host of this machine."
        if bind is None or bind.startswith("ipc://"):
            fix = ""
        what = f"bound to {bind}" if bind else f"connected to {connect}"
        raise CommError(f"nothing can be {what}: {os.strerror(error.errno or 0)}.{fix}") from error
    except ConfigError:
        found.close()
        raise
    return found


def _check_endpoint(endpoint: str, *, has_keys: bool) -> None:
    transport, _, address = endpoint.partition("://")
    if transport == "ipc" and Path(address).is_absolute():
        return
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if transport != "tcp" or not host or not (port.isascii() and port.isdigit() and int(port) < 65_536):
        raise ConfigError(f"{endpoint!r} is no endpoint; expected ipc:///PATH or tcp://HOST:PORT.")
    if not has_keys and not is_loopback(host):
        raise ConfigError(
            f"{endpoint} can be reached from other machines, and there are no keys: anybody could train this policy. "
            "Make keys with `ding keys --curve FILE` and give the file (system.seed.key_file, --key-file), or use host "
            "127.0.0.1."
        )


# What a frame is sent from, and what a socket returns.
Frame: TypeAlias = "bytes | memoryview"

_MAX_DIMS = 32  # as the oldest numpy has
_MAX_EMPTY = 2**31  # numbers beside an axis of 0: a shape without bytes must not cost memory where it is used
MAX_HEAD_NBYTES = 2**24  # the layout of a model of 100,000 tensors has about half of it

# Names of the dtypes that are sent: numbers, as little-endian machines have them.
DTYPES = {
    name: np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64"),
    )
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}  # numpy makes `dtype.name` anew at each call
_JSON = json.JSONEncoder(separators=(",", ":"))
_parse = json.JSONDecoder().decode
_ARRAYS = ',"arrays":'
_MAX_KNOWN = 256  # descriptions of arrays that are kept
_MAX_KNOWN_NBYTES = 2_000  # of one


class Message(NamedTuple):
    """Head of a message, without "arrays", and its arrays by name, which are read-only."""

    head: dict[str, Json]
    arrays: dict[str, Array]

    @property
    def kind(self) -> str:
        """The kind of message."""
        kind: str = self.head["kind"]
        return kind


def encode(head: Head, arrays: Mapping[str, Array] | None = None) -> list[Frame]:
    """Return the frames of a message; those of arrays are views of them, for a socket to copy when it sends.

    `head` is plain JSON with "kind". Raises CommError for a head that is no JSON, and for arrays of objects, text or
    dates.
    """
    # Not ascontiguousarray, which makes a list of a lone number.
    own = {name: np.asarray(value, order="C") for name, value in (arrays or {}).items()}
    described = _describe(tuple((name, array.dtype, array.shape) for name, array in own.items()))
    frames = [array.reshape(-1).view(np.uint8).data if array.size else b"" for array in own.values()]
    try:
        return [f"{_JSON.encode(head)[:-1]}{_ARRAYS}{described}}}".encode(), *frames]
    except (TypeError, ValueError, RecursionError) as error:
        raise CommError(f"the head of a message '{head['kind']}' is no JSON: {error}") from error


@lru_cache(_MAX_KNOWN)  # a client's requests differ in their numbers, not in their arrays
def _describe(entries: tuple[tuple[str, np.dtype, tuple[int, ...]], ...]) -> str:
    for name, dtype, _ in entries:
        if dtype not in _NAMES:
            raise CommError(
                f"the array '{name}' has dtype {dtype}, which is not sent; expected one of {', '.join(DTYPES)}."
            )
    return _JSON.encode([[name, _NAMES[dtype], shape] for name, dtype, shape in entries])


def decode(frames: Sequence[Frame], *, max_nbytes: int) -> Message:
    """Return the message that frames hold; its arrays share their memory where they are aligned in it.

    Raises CommError for anything that `encode` does not make, and for arrays of more than `max_nbytes` together.
    """
    if not frames or len(frames[0]) > MAX_HEAD_NBYTES:
        raise CommError(f"a message has no head of up to {MAX_HEAD_NBYTES:,} bytes.")
    text = bytes(frames[0])
    try:
        head, entries = _read_head(text)
    except (ValueError, RecursionError) as error:
        raise CommError(f"{len(text):,} bytes are no head of a message: {str(error)[:200]}") from error
    if len(entries) != len(frames) - 1:
        shown = [[each.name, each.dtype.name, each.shape] for each in entries]
        raise CommError(f"a message describes arrays as {short(shown)}, and has {len(frames) - 1:,} frames of them.")
    nbytes = sum(map(len, frames[1:]))
    if nbytes > max_nbytes:
        raise CommError(f"the arrays of a message have {nbytes:,} bytes; expected at most {max_nbytes:,}.")
    return Message(head, {each.name: each.array(frame) for each, frame in zip(entries, frames[1:], strict=True)})


class _Entry(NamedTuple):
    """Array that a message has, as its head claims."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    nbytes: int

    def array(self, frame: Frame) -> Array:
        """Return the array that a frame holds, read-only."""
        name, dtype, shape, nbytes = self
        if nbytes != len(frame):
            raise CommError(
                f"the array {short(name)} came with {len(frame):,} bytes; {dtype.name}{short(list(shape))} has others."
            )
        if len(shape) > _MAX_DIMS or prod(each or 1 for each in shape) > max(nbytes, _MAX_EMPTY):
            raise CommError(f"the array {short(name)} has shape {short(list(shape))}, which is too long.")
        array: Array = np.ndarray(shape, dtype, frame)
        if not array.flags.aligned:  # messages stand one behind another in what was received
            array = array.copy()
        array.setflags(write=False)
        return array


def _read_head(text: bytes) -> tuple[dict[str, Json], Sequence[_Entry]]:
    """Return a head without "arrays", and what it describes. Raises CommError, ValueError or RecursionError."""
    # As `encode` writes it, "arrays" comes last: the same arrays as those of a message before are not read again.
    own, separator, described = text.rpartition(_ARRAYS.encode())
    if separator and len(described) <= _MAX_KNOWN_NBYTES and described.endswith(b"}"):
        with suppress(ValueError):
            return _object(_parse(str(own, "utf-8") + "}")), _known_entries(described[:-1])
    head = _object(_parse(str(text, "utf-8")))
    return head, _entries(head.pop("arrays", None))


def _object(head: Json) -> dict[str, Json]:
    if not isinstance(head, dict) or not isinstance(head.get("kind"), str):
        raise CommError(f"the head of a message is {short(head)}; expected a JSON object with a 'kind'.")
    return head


@lru_cache(_MAX_KNOWN)
def _known_entries(described: bytes) -> Sequence[_Entry]:
    return _entries(_parse(str(described, "utf-8")))


def _entries(described: Json) -> Sequence[_Entry]:
    if not isinstance(described, list):
        raise CommError(f"a message describes arrays as {short(described)}; expected a list.")
    return tuple(map(_entry, described))


def _entry(entry: Json) -> _Entry:
    match entry:
        case [str(name), str(dtype), list(shape)] if dtype in DTYPES and all(map(is_count, shape)):
            return _Entry(name, DTYPES[dtype], tuple(shape), prod(shape) * DTYPES[dtype].itemsize)
        case _:
            raise CommError(
                f"a message describes an array as {short(entry)}; expected [name, dtype, shape] of numbers only."
            )
