"""Find the publisher and the readers of weights in shared memory by a name: a rendezvous in a folder.

The folder is this user's `{temporary folder}/ding-weights-{user}/{name}`:

    publisher.lock             held by the living publisher; the system releases it however the process ends
    blocks.json                which block holds the weights of which policy; replaced as a whole
    {reader}.{random}.sock     where a living reader listens; the publisher connects and announces new versions

The last process to leave deletes the folder. What killed processes leave is deleted by the next publisher, of this name
or another.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import socket
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ding_like.comm.weights.encode import Layout
from ding_like.comm.weights.shared_block import unlink_blocks
from ding_like.errors import CommError
from ding_like.utils.files import atomic_write, retry

_FORM = 1
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_LONGEST_ADDRESS = 103  # bytes of a socket's path, on macOS; Linux has room for 107
_LOCK, _BLOCKS, _SOCKET = "publisher.lock", "blocks.json", ".sock"
_BACKLOG = 8  # publishers waiting to be accepted: one, and those that take over from it
_CLAIM_S = 0.5  # a sweep holds a lock for as long as it deletes files
_TRIES = 5  # to use a folder that another process is deleting as it leaves


class Block(NamedTuple):
    """Describe the block of a policy's weights."""

    name: str
    layout: Layout


class Blocks(NamedTuple):
    """Hold the content of blocks.json, and the open file: while it is open, no other file gets its inode number."""

    file: BinaryIO
    by_policy: Mapping[str, Block]


class Rendezvous:
    """Use the folder of a name, as one process. Raises CommError if that cannot be done."""

    def __init__(self, name: str, folder: str | os.PathLike[str] | None) -> None:
        self.name = check_name("name of the weights", name)
        self._base = Path(folder or tempfile.gettempdir()) / f"ding-weights-{os.getuid()}"
        self._folder = self._base / name

    # --- a publisher's side

    def claim(self) -> int:
        """Become the one publisher of the name; return the descriptor that holds the lock until `leave`.

        Raises CommError if another publisher is alive.
        """
        try:
            return retry(lambda: self._claim(self._folder), BlockingIOError, timeout_s=_CLAIM_S)
        except BlockingIOError as error:
            raise CommError(
                f"another process publishes weights as {self.name!r}: close it first, or choose another name."
            ) from error
        except CommError:
            raise
        except OSError as error:
            raise CommError(f"weights cannot be published in {self._folder}: {error}.") from error

    def block_name(self) -> str:
        """Return a new, unique name for a block, of at most 31 characters, the limit of macOS."""
        return f"{_prefix(self._folder)}{os.getpid()}_{secrets.token_hex(4)}"

    def clear(self) -> None:
        """Delete what earlier publishers left, of this name and of other names without a living process."""
        _clear(self._folder)
        for other in self._base.iterdir():
            if other != self._folder and not _has_reader(other):
                with suppress(OSError):  # its publisher is alive, or another process deletes it
                    lock = self._claim(other)
                    _clear(other)
                    _leave(other, lock)

    def announce(self, blocks: Mapping[str, Block]) -> None:
        """Replace the announcement: which policy's weights are in which block."""
        described = {policy_id: [block.name, block.layout.describe()] for policy_id, block in blocks.items()}
        with atomic_write(self._folder / _BLOCKS) as file:
            file.write(json.dumps({"form": _FORM, "blocks": described}).encode())

    def readers(self) -> dict[str, str]:
        """Return the names of readers, living or killed, by the address of their sockets."""
        with suppress(FileNotFoundError):
            found = [entry for entry in os.listdir(self._folder) if entry.endswith(_SOCKET)]
            return {str(self._folder / entry): entry[: -len(_SOCKET)].rpartition(".")[0] for entry in sorted(found)}
        return {}

    def leave(self, lock: int) -> None:
        """Delete the publisher's files, and the folder if it has no readers, and release the lock."""
        _clear(self._folder)
        _leave(self._folder, lock)

    # --- a reader's side

    def listen(self, reader: str) -> tuple[socket.socket, str]:
        """Return a socket that listens for publishers under a reader's name, and its address.

        Raises CommError if a living reader has the name.
        """
        check_name("name of a reader", reader)
        for address, name in self.readers().items():
            if name == reader:
                if is_alive(address):
                    raise CommError(
                        f"another process reads the weights {self.name!r} as {reader!r}; choose another name."
                    )
                _unlink(address)
        address = str(self._folder / f"{reader}.{secrets.token_hex(4)}{_SOCKET}")
        if len(os.fsencode(address)) > _LONGEST_ADDRESS:
            raise CommError(
                f"the path {address} is too long for a socket, at most {_LONGEST_ADDRESS} bytes: choose shorter names, "
                "or a shorter `folder` at both ends."
            )
        for left in reversed(range(_TRIES)):
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                self._listen(listener, address)
            except FileNotFoundError as error:
                listener.close()
                if not left:
                    raise CommError(f"weights cannot be read in {self._folder}: {error}.") from error
            except CommError:
                listener.close()
                raise
            except OSError as error:
                listener.close()
                raise CommError(f"weights cannot be read in {self._folder}: {error}.") from error
            else:
                return listener, address
        raise AssertionError("the last try returns or raises")

    def stop_listening(self, address: str) -> None:
        """Delete a reader's socket, and the folder if it was the last."""
        _unlink(address)
        _remove(self._folder)

    def blocks(self, known: Blocks | None) -> Blocks | None:
        """Return the announced blocks: `known` if they have not changed, None without an announcement.

        Raises CommError for a file that `announce` does not write.
        """
        path = self._folder / _BLOCKS
        with suppress(FileNotFoundError):
            if known is not None and os.path.samestat(os.stat(path), os.fstat(known.file.fileno())):
                return known
            file = open(path, "rb")
            try:
                return Blocks(file, _parse(file.read(), path))
            except BaseException:
                file.close()
                raise
        return None

    def _listen(self, listener: socket.socket, address: str) -> None:
        _make(self._folder)
        # To a publisher a socket without a listener is that of a dead reader, so it gets its name once it listens.
        hidden = address[: -len(_SOCKET)]
        listener.bind(hidden)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        os.rename(hidden, address)

    @staticmethod
    def _claim(folder: Path) -> int:
        for _ in range(_TRIES):
            try:
                _make(folder)
                descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The previous holder may have deleted the file: then locking it excludes nobody.
                if os.path.samestat(os.stat(folder / _LOCK), os.fstat(descriptor)):
                    return descriptor
            except FileNotFoundError:
                pass
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
        raise BlockingIOError(f"{folder} was deleted {_TRIES} times by other processes")


def check_name(what: str, name: str) -> str:
    """Return a name that may be part of a path. Raises CommError for another."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise CommError(f"the {what} is {name!r}; expected letters, digits, '.', '_' and '-', such as 'run-1'.")
    return name


def is_alive(address: str) -> bool:
    """Tell whether a process listens at an address."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(address)
        except BlockingIOError:  # it is alive, and its backlog is full
            return True
        except OSError:
            return False
    return True


def _has_reader(folder: Path) -> bool:
    return any(is_alive(str(path)) for path in folder.glob(f"*{_SOCKET}"))


def _clear(folder: Path) -> None:
    """Delete the blocks of a folder's publisher, and the sockets of readers that were killed."""
    _unlink(folder / _BLOCKS)  # first, so that no reader looks for blocks that are being deleted
    unlink_blocks(_prefix(folder))
    for path in folder.iterdir():
        if path.name.endswith(".tmp") or (path.is_socket() and not is_alive(str(path))):
            _unlink(path)


def _prefix(folder: Path) -> str:
    """Return the prefix of the names of a folder's blocks.

    Containers may share /dev/shm but not this folder: its inode number tells their blocks apart.
    """
    status = os.stat(folder)
    told = f"{folder.resolve()} {status.st_dev} {status.st_ino}"
    return f"dw_{hashlib.sha256(told.encode()).hexdigest()[:8]}_"


def _make(folder: Path) -> None:
    for each in (folder.parent, folder):
        with suppress(FileExistsError):
            each.mkdir(mode=0o700)
        status = each.lstat()
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise CommError(
                f"{each} has to be a folder that this user alone may use (mode 0700): delete it, or change its mode."
            )


def _leave(folder: Path, lock: int) -> None:
    _unlink(folder / _LOCK)  # while it is held: a process that has opened it sees that, and makes another
    os.close(lock)
    _remove(folder)


def _remove(folder: Path) -> None:
    for each in (folder, folder.parent):
        with suppress(OSError):  # it is in use
            each.rmdir()


def _unlink(path: str | os.PathLike[str]) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _parse(said: bytes, path: Path) -> dict[str, Block]:
    try:
        described: Any = json.loads(said)  # Any: of JSON
        if described["form"] != _FORM:
            raise ValueError(f"form {described['form']}")
        return {
            str(policy_id): Block(check_name("name of a block", name), Layout.parse(layout))
            for policy_id, (name, layout) in described["blocks"].items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CommError(
            f"{path} is no announcement of blocks of shared memory: {said[:80]!r}. Start the publisher again."
        ) from error
