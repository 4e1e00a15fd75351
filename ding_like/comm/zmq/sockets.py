"""Open sockets that send and receive frames, wait for several of them, and be woken by another thread.

One thread uses a `Socket`; others call `Wake.wake` to have its attention. Nothing here waits without a deadline, and
whatever was not sent when a socket is closed is dropped.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ding_like.comm.zmq.frames import MAX_ARRAYS, Frame
from ding_like.comm.zmq.library import load_zmq
from ding_like.errors import CommError, ConfigError
from ding_like.utils.addresses import is_loopback
from ding_like.utils.own_folder import make_own_folder

if TYPE_CHECKING:
    from ding_like.comm.zmq.keys import SeedKeys

Kind: TypeAlias = Literal["router", "dealer"]

MAX_FRAME_NBYTES = 2**32  # a peer that claims a longer frame is cut off before memory is taken for it
_MAX_PATH = 107  # bytes of a socket's path: the kernel has room for no more
# The kernel finds a peer that is gone without a word (a cut cable, a host without power) in some 15 s. Not ZeroMQ's own
# heartbeats: where a peer ends while its queue here is full, libzmq 4.3.5 aborts this process at the next one.
_KEEPALIVE = dict(tcp_keepalive=1, tcp_keepalive_idle=6, tcp_keepalive_intvl=3, tcp_keepalive_cnt=3)
_UNACKNOWLEDGED_MS = 15_000
_RECONNECT_MS, _MAX_RECONNECT_MS = 20, 1_000

_lock = threading.Lock()
_context: Any = None  # Any: zmq.Context, which need not be installed
_context_pid = 0


class Socket:
    """Send and receive messages as lists of frames; `endpoint` is where it is bound, with its real port, or connected.

    Only one thread may use it at a time. `raw` is the socket of pyzmq, for loops in which a call more counts.
    """

    def __init__(self, raw: Any, endpoint: str, zmq: Any, on_close: Callable[[], None]) -> None:
        # Any: zmq.Socket and the module zmq
        self.raw = raw
        self.endpoint = endpoint
        self._zmq = zmq
        self._on_close = on_close

    def send(self, frames: Sequence[Frame], *, wait_s: float = 0.0) -> bool:
        """Send a message, whose memory the caller may change afterwards; tell whether it was taken.

        It is not taken where the receiver's queue is full for `wait_s`, or where a router's first frame names nobody
        who is connected. Raises CommError if the socket is closed.
        """
        zmq = self._zmq
        try:
            if wait_s > 0 and not self.raw.poll(ceil(wait_s * 1000), zmq.POLLOUT):
                return False
            # Copied: what pyzmq sends without copying it keeps in a thread of its own, and 10 MB cost 2 ms.
            self.raw.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return False
            raise CommError(f"nothing can be sent to or from {self.endpoint}: {error}") from error
        return True

    def receive(self) -> list[memoryview] | None:
        """Return the frames of the next message, None if there is none now; wait with a `Poller`.

        Frames that no message has room for are dropped: `decode` refuses what is left. Raises CommError if the socket
        is closed.
        """
        frames, _ = self._receive()
        return frames

    def receive_from(self) -> tuple[list[memoryview], str] | None:
        """Return the frames of the next message, and the public key of who sent it; see `receive`.

        The key is that of a peer which was admitted by it, and empty where a socket has no keys.
        """
        frames, last = self._receive()
        if frames is None:
            return None
        try:
            return frames, str(last.get("User-Id"))
        except self._zmq.ZMQError:
            return frames, ""

    def _receive(self) -> tuple[list[memoryview] | None, Any]:  # Any: zmq.Frame, the last one
        zmq = self._zmq
        try:
            frame = self.raw.recv(zmq.NOBLOCK, copy=False)
            frames = [frame.buffer]
            while frame.more:  # a message comes as a whole
                frame = self.raw.recv(zmq.NOBLOCK, copy=False)
                if len(frames) <= MAX_ARRAYS + 8:  # 8: identities of those that it came by
                    frames.append(frame.buffer)
        except zmq.Again:
            return None, None
        except zmq.ZMQError as error:
            raise CommError(f"nothing can be received at {self.endpoint}: {error}") from error
        return frames, frame

    @property
    def closed(self) -> bool:
        """Tell whether the socket was closed."""
        closed: bool = self.raw.closed
        return closed

    def close(self) -> None:
        """Close the socket and drop what was not sent; may be called again."""
        self.raw.close(0)
        self._on_close()

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Wake:
    """Wake the thread that waits for it beside its sockets; any thread may call `wake`."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._closing = threading.Lock()
        self._closed = False

    def fileno(self) -> int:
        """Return what to poll."""
        return self._reader

    def wake(self) -> None:
        """Have the waiting thread look up, at once or at its next wait. Does nothing once closed."""
        with self._closing:
            if not self._closed:
                try:
                    os.write(self._writer, b"\0")
                except BlockingIOError:  # it is full of calls to wake already
                    pass

    def clear(self) -> None:
        """Forget the calls that have come; the waiting thread does before it looks what there is to do."""
        try:
            while len(os.read(self._reader, 4096)) == 4096:
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Release the pipe; may be called again."""
        with self._closing:
            if not self._closed:
                self._closed = True
                os.close(self._reader)
                os.close(self._writer)

    def __enter__(self) -> Wake:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Poller:
    """Wait for the first of some sockets and wakes that has something."""

    def __init__(self, *sources: Socket | Wake) -> None:
        zmq = load_zmq()
        self._poller = zmq.Poller()
        self._sources: dict[Any, Socket | Wake] = {}  # Any: a zmq.Socket or a file descriptor
        self._errors = zmq
        for source in sources:
            key = source.raw if isinstance(source, Socket) else source.fileno()
            self._sources[key] = source
            self._poller.register(key, zmq.POLLIN)

    def wait(self, timeout_s: float) -> list[Socket | Wake]:
        """Return the sources that can be read, none if there are none within `timeout_s`; clears wakes among them.

        Raises CommError if one was closed.
        """
        try:
            ready = self._poller.poll(max(0, ceil(timeout_s * 1000)))
        except self._errors.ZMQError as error:
            raise CommError(f"a socket was closed while it was waited for: {error}") from error
        found = [self._sources[key] for key, _ in ready]
        for source in found:
            if isinstance(source, Wake):
                source.clear()
        return found


class EndpointFolder:
    """Hold a private folder (mode 0700) for the ipc sockets of a run; folders of killed processes are swept."""

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

    def close(self) -> None:
        """Delete the folder; may be called again."""
        shutil.rmtree(self.path, ignore_errors=True)

    def __enter__(self) -> EndpointFolder:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def tcp_endpoint(host: str, port: int = 0) -> str:
    """Return the endpoint of a host; bound to port 0 a socket gets a free one."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def port_of(endpoint: str) -> int:
    """Return the port of a tcp endpoint, 0 for ipc."""
    return int(endpoint.rpartition(":")[2]) if endpoint.startswith("tcp://") else 0


def reached_by(endpoint: str, other: str) -> str:
    """Return an endpoint for those who reach `other` on the same machine: bound to every address, it names none."""
    transport, _, address = endpoint.partition("://")
    host, _, port = address.rpartition(":")
    if transport != "tcp" or host not in ("0.0.0.0", "*", "[::]"):
        return endpoint
    return f"tcp://{other.removeprefix('tcp://').rpartition(':')[0]}:{port}"


def open_socket(
    kind: Kind,
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

    With `keys` a bound socket admits their clients only, and a connected one speaks as a client of their server. A
    router names its receivers by `identity`, and a peer that connects again under its old one takes its place; unless
    it `is_mandatory`, messages to peers that are gone are dropped. At most `hwm` messages wait to be sent to, and
    received from, each peer.

    Raises ConfigError for tcp on another address than the loopback without keys, and where pyzmq is missing; CommError
    where the address cannot be used.
    """
    endpoint = bind or connect
    if endpoint is None or (bind and connect):
        raise ValueError("give one of bind and connect")
    _check_endpoint(endpoint, has_keys=keys is not None)
    zmq = load_zmq()
    raw = own_context().socket(getattr(zmq, kind.upper()))
    on_close: Callable[[], None] = _nothing
    try:
        _set_options(raw, hwm=hwm, max_frame_nbytes=max_frame_nbytes, is_ipv6="[" in endpoint)
        if kind == "router":
            raw.router_handover = True
            raw.router_mandatory = is_mandatory  # a receiver that is gone is known at once
        if identity is not None:
            raw.identity = identity.encode() if isinstance(identity, str) else identity
        if keys is not None:
            on_close = keys.secure(raw, is_server=bind is not None)
        if bind is not None:
            raw.bind(bind)
            endpoint = raw.last_endpoint.decode()
            if bind.startswith("ipc://"):
                os.chmod(bind.removeprefix("ipc://"), 0o600)
        else:
            raw.connect(endpoint)
    except BaseException as error:  # closed after any error; it is raised again, or as CommError
        raw.close(0)
        on_close()
        if not isinstance(error, (zmq.ZMQError, OSError)) or isinstance(error, CommError):
            raise
        if bind is not None and bind.startswith("tcp://"):
            fix = "Give another --port (system.seed.port; 0 takes any that is free), or a --host of this machine."
            raise CommError(f"nothing can be bound to {bind}: {os.strerror(error.errno or 0)}. {fix}") from error
        raise CommError(f"a socket cannot be {'bound' if bind else 'connected'} to {endpoint}: {error}") from error
    return Socket(raw, endpoint, zmq, on_close)


def _nothing() -> None:
    """Do nothing when a socket without keys is closed."""


def _set_options(raw: Any, *, hwm: int, max_frame_nbytes: int, is_ipv6: bool) -> None:  # Any: zmq.Socket
    raw.linger = 0
    raw.sndhwm = raw.rcvhwm = hwm
    raw.maxmsgsize = max_frame_nbytes
    raw.ipv6 = is_ipv6
    for name, value in _KEEPALIVE.items():
        setattr(raw, name, value)
    raw.tcp_maxrt = _UNACKNOWLEDGED_MS
    raw.reconnect_ivl, raw.reconnect_ivl_max = _RECONNECT_MS, _MAX_RECONNECT_MS


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


def own_context() -> Any:  # Any: zmq.Context
    """Return this process's context; a child after a fork has one of its own.

    It ends with the process, not before: ending it waits for its sockets, and closing those that a daemon thread still
    polls aborts the process. What it holds are threads and memory, which no other process sees.
    """
    global _context, _context_pid
    with _lock:
        if _context is None or _context_pid != os.getpid():
            # A thread for the proxy's messages beside the one for rows, which may be large.
            _context, _context_pid = load_zmq().Context(io_threads=2), os.getpid()
            _context.max_sockets = 4_096
        return _context
