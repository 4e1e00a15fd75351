"""Keep versions of weights in a block of shared memory that one process writes and any number read, without a lock.

A block has `num_buffers` buffers that are written in turn, and a counter of versions that is written last. Words of 8
bytes, in the machine's order:

    block:   magic, form, number of buffers, bytes of a body, checked?, versions so far
    buffer:  sequence, attempt, update, crc32, bytes of names; then the names of the readers it is for, and the body

    write number k, into buffer k % num_buffers:  sequence = 2k - 1;  body;  head;  sequence = 2k;  versions = k
    read:  k = versions;  sequence is 2k?;  copy the body;  sequence is still 2k?  Otherwise once more.

This is a sequence lock (Lameter 2005, "Effective synchronization on Linux/NUMA systems"; Boehm 2012, "Can seqlocks get
along with programming language memory models?"). A reader never holds anything that a writer waits for, so readers may
be killed or stopped; a writer that is killed in the middle of a write leaves the counter at the version before, whose
buffer it does not touch. A reader is overtaken only when `num_buffers` versions are begun while it copies one.

What makes the order hold:

* Python runs these statements in this order, and each store or load of a word is one aligned access of 8 bytes
  (numpy assigns through a pointer; `struct` in its standard sizes would go byte by byte).
* x86-64 shows the stores of one core to all others in their order and does not pass a load over another (Intel SDM 3A,
  8.2.2). Where the C library copies large bodies around the cache it ends with a store fence itself.
* ARM64 and POWER promise neither, and Python has no memory barrier to ask for. There the body and its head are checked
  by a crc32 that is stored with them ("checked"; a choice on x86-64): what does not match is read once more.
"""

from __future__ import annotations

import _posixshmem  # type: ignore[import-not-found]  # what `SharedMemory` stands on has no stub
import errno
import mmap
import os
import platform
import struct
import weakref
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from typing import NamedTuple

import numpy as np

from ding_like.comm.channels import Version
from ding_like.errors import CommError
from ding_like.types import Array

# Whether every core sees the stores of another in the order in which they were made.
IS_STRONGLY_ORDERED = platform.machine().lower() in ("x86_64", "amd64", "i686")

_MAGIC = int.from_bytes(b"DINGSHM\0", "little")
_FORM = 1
_LINE = 64  # bytes: heads stand in a cache line of their own, and bodies begin at one
_NAMES = 4096 - _LINE  # bytes: for the names of those that a version is for
_NOBODY = b"\n"  # in place of names: no reader is called so
_NUMBERS, _SEQUENCE = 5, 0  # places of words: of a block's head, of a buffer's
_HEAD = struct.Struct("<Qqq")
_CONFUSED_TRIES = 1000  # looks at one version whose buffer is of another: where loads pass each other that is soon over
_OVERTAKEN_TRIES = 8  # copies that a faster writer spoiled, before the caller is to wait for its next version


class Taken(NamedTuple):
    """Hold a version that was read, and its bytes, uint8 [N], the reader's own."""

    version: Version
    body: Array


class Look(NamedTuple):
    """Hold up to which number a reader has looked, and the newest version there that is for it, if any."""

    number: int
    taken: Taken | None


class _Trouble(Enum):
    CONFUSED = "the buffer holds another version than was announced"
    OVERTAKEN = "the buffer was written while it was copied"
    NOT_FOR_US = "the version is for other readers"


class BlockWriter:
    """Make a block with room for bodies of `nbytes`, and write versions into it; the only one who does.

    All of its memory is reserved here: a full /dev/shm is a CommError at once, and never a SIGBUS at a later write.
    The resource tracker of `multiprocessing` unlinks the block if this process is killed.
    """

    def __init__(self, name: str, nbytes: int, *, num_buffers: int, is_checked: bool) -> None:
        self._stride = _stride(nbytes)
        size = _LINE + num_buffers * self._stride
        try:
            self._memory = SharedMemory(name, create=True, size=size)
        except (OSError, ValueError) as error:
            raise CommError(f"the shared memory {name} of {size:,} bytes cannot be made: {error}.") from error
        self.name = name
        self.nbytes = nbytes
        self._num_buffers = num_buffers
        self._is_checked = is_checked
        self._number = 0
        try:
            _reserve(name, size, num_buffers)
        except BaseException:
            self._memory.close()
            self._memory.unlink()
            raise
        self._bytes: Array | None = np.ndarray(size, np.uint8, self._memory.buf)
        self._words: Array | None = self._bytes[:_LINE].view(np.int64)
        # The magic goes last, like every counter here: what has none is not finished.
        self._words[1:_NUMBERS] = (_FORM, num_buffers, nbytes, is_checked)
        self._words[0] = _MAGIC

    def write(self, version: Version, fill: Callable[[Array], None], *, to: Sequence[str] | None = None) -> None:
        """Write a version for the readers `to` (None: all); `fill` writes its body into uint8 [nbytes].

        If that raises, the version before stays. Raises CommError for more names than there is room for.
        """
        assert self._bytes is not None and self._words is not None, "the block is closed"
        said = _NOBODY if to is not None and not to else "\n".join(to or ()).encode()
        if len(said) > _NAMES:
            raise CommError(f"weights cannot be sent to {len(to or ())} readers by name; send them to all (to=None).")
        number = self._number + 1
        start = _LINE + number % self._num_buffers * self._stride
        head, names, body = _parts(self._bytes, start, self.nbytes)
        head[_SEQUENCE] = 2 * number - 1
        fill(body)
        names[: len(said)] = np.frombuffer(said, np.uint8)
        head[1:3] = version
        head[4] = len(said)
        head[3] = _crc32(number, version, said, body) if self._is_checked else 0
        head[_SEQUENCE] = 2 * number
        self._words[_NUMBERS] = self._number = number

    def close(self) -> None:
        """Unlink the block; readers keep what they have mapped. May be called again."""
        self._bytes = self._words = None  # a block with views of it cannot be closed
        self._memory.close()
        with suppress(FileNotFoundError):
            self._memory.unlink()

    def forget(self) -> None:
        """Release the mapping without unlinking the block: in a forked child, whose block it is not."""
        self._bytes = self._words = None
        with suppress(BufferError):  # another thread wrote when this process was forked, and never goes on here
            self._memory.close()


class BlockReader:
    """Read the versions of a block, by its name. Raises FileNotFoundError if it is gone, CommError if it is none."""

    def __init__(self, name: str, nbytes: int) -> None:
        self.name = name
        self._bytes = _attach(name)
        if self._bytes.size < _LINE:
            raise CommError(f"the shared memory {name} has {self._bytes.size} bytes: it holds no weights.")
        self._words = self._bytes[:_LINE].view(np.int64)
        magic, form, num_buffers, found, is_checked = self._words[:_NUMBERS].tolist()
        if magic != _MAGIC or form != _FORM:
            raise CommError(f"the shared memory {name} holds no weights, or those of another release: {magic:#x}.")
        self._stride = _stride(nbytes)
        if found != nbytes or num_buffers < 2 or self._bytes.size < _LINE + num_buffers * self._stride:
            raise CommError(
                f"the shared memory {name} of {self._bytes.size:,} bytes says that it has {num_buffers} buffers for "
                f"weights of {found:,} bytes; expected {nbytes:,}. It was written by something else: delete it."
            )
        self._nbytes = nbytes
        self._num_buffers = num_buffers
        self._is_checked = bool(is_checked)
        self._spare: list[Array] = []  # memory of a version that nobody holds any more

    def has_newer(self, number: int) -> bool:
        """Tell whether there is a version whose number is above `number`."""
        return int(self._words[_NUMBERS]) > number

    def read(self, *, after: int, reader: str) -> Look:
        """Return a copy of the newest version above number `after` that is for a reader, and up to where was looked.

        Without a version, the number tells why: it is that of the newest, or `after` if a faster writer has overtaken
        every try; then it announces its next version later than this. Raises CommError if the block is not as its
        writer leaves it.
        """
        confused = overtaken = 0
        while confused < _CONFUSED_TRIES and overtaken < _OVERTAKEN_TRIES:
            newest = int(self._words[_NUMBERS])
            found: Taken | _Trouble = _Trouble.NOT_FOR_US
            number = newest
            # The buffer of the oldest may be under way to be the next.
            while found is _Trouble.NOT_FOR_US and number > max(after, newest - self._num_buffers + 1):
                found = self._copy(number, reader)
                number -= 1
            if isinstance(found, Taken):
                return Look(newest, found)
            if found is _Trouble.NOT_FOR_US:
                return Look(max(newest, after), None)
            if found is _Trouble.OVERTAKEN or int(self._words[_NUMBERS]) != newest:
                overtaken, confused = overtaken + 1, 0
            else:
                confused += 1
        if confused < _CONFUSED_TRIES:
            return Look(after, None)
        raise CommError(
            f"the shared memory {self.name} is broken: version {newest} of it is announced, and its buffer holds "
            "another, or other bytes. Start the publisher again."
        )

    def _copy(self, number: int, reader: str) -> Taken | _Trouble:
        """Copy a version out of its buffer, if it is whole, and for this reader."""
        head, names, body = _parts(self._bytes, _LINE + number % self._num_buffers * self._stride, self._nbytes)
        if int(head[_SEQUENCE]) != 2 * number:
            return _Trouble.CONFUSED
        version, checksum = Version(int(head[1]), int(head[2])), int(head[3])
        said = names[: int(head[4])].tobytes()
        is_for_us = not said or reader.encode() in said.split(b"\n")
        if not is_for_us and not self._is_checked and int(head[_SEQUENCE]) == 2 * number:
            return _Trouble.NOT_FOR_US
        copied = _copied(body, self._spare)
        if int(head[_SEQUENCE]) != 2 * number:
            return _Trouble.OVERTAKEN
        if self._is_checked and _crc32(number, version, said, copied) != checksum:
            return _Trouble.CONFUSED
        return Taken(version, copied) if is_for_us else _Trouble.NOT_FOR_US


def unlink_blocks(prefix: str) -> None:
    """Unlink the blocks whose names begin so, of a process that was killed; where blocks cannot be listed, do nothing.

    Of what is not found here, the resource tracker of the process takes care: it outlives it.
    """
    for name in os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else ():
        if name.startswith(prefix):
            with suppress(FileNotFoundError, PermissionError):
                _posixshmem.shm_unlink(f"/{name}")
                # The tracker may be one that both processes share: it is to look for the block no more. What it does
                # not know it would not forget without a complaint either.
                resource_tracker.register(f"/{name}", "shared_memory")
                resource_tracker.unregister(f"/{name}", "shared_memory")


def _attach(name: str) -> Array:
    """Map a block for reading alone.

    `SharedMemory(name)` maps it for writing and, before Python 3.13 (`track=False`), tells the resource tracker of this
    process of it, which unlinks the block when the reader ends, though it is the publisher's (CPython issue 82300).
    """
    descriptor = _posixshmem.shm_open(f"/{name}", os.O_RDONLY, mode=0)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.getuid():
            raise CommError(f"the shared memory {name} is of user {status.st_uid}, not of this process's user.")
        if not status.st_size:
            return np.zeros(0, np.uint8)
        # The array holds the mapping, which ends with the last array of it.
        return np.frombuffer(mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ), np.uint8)
    finally:
        os.close(descriptor)


def _reserve(name: str, size: int, num_buffers: int) -> None:
    """Have the system set all memory of a block aside. Raises CommError if there is not as much."""
    if not hasattr(os, "posix_fallocate"):  # macOS: its shared memory does not live in a file system that fills up
        return
    descriptor = _posixshmem.shm_open(f"/{name}", os.O_RDWR, mode=0)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        free = os.fstatvfs(descriptor)
        if error.errno not in (errno.ENOSPC, errno.ENOMEM, errno.EFBIG):
            raise CommError(f"shared memory of {size:,} bytes cannot be reserved: {error}.") from error
        raise CommError(
            f"/dev/shm has {free.f_bavail * free.f_frsize:,} bytes free, and weights in {num_buffers} buffers take "
            f"{size:,}. Make it larger (docker run --shm-size, or mount -o remount,size=... /dev/shm), delete what is "
            "left there, or send weights another way."
        ) from error
    finally:
        os.close(descriptor)


def _stride(nbytes: int) -> int:
    """Return the bytes from the head of one buffer to that of the next."""
    return _LINE + _NAMES + -(-nbytes // _LINE) * _LINE


def _parts(block: Array, start: int, nbytes: int) -> tuple[Array, Array, Array]:
    """Return the head, int64 [8], the room for names and the body, both uint8, of the buffer that begins at `start`."""
    names, body = start + _LINE, start + _LINE + _NAMES
    return block[start:names].view(np.int64), block[names:body], block[body : body + nbytes]


def _copied(body: Array, spare: list[Array]) -> Array:
    """Return a copy, in memory that was used before where there is some: fresh memory takes twice as long.

    When the last array or tensor of the copy is gone, its memory becomes the spare one.
    """
    if not len(body):
        return np.empty(0, np.uint8)
    memory = spare.pop() if spare else np.empty(len(body), np.uint8)
    # Slices of `copied` hold it, and not what it is made from, as that is no array: so its end is the end of them all.
    copied = np.frombuffer(memory.data, np.uint8)
    weakref.finalize(copied, _keep, memory, spare).atexit = False
    np.copyto(copied, body)
    return copied


def _keep(memory: Array, spare: list[Array]) -> None:
    if not spare:
        spare.append(memory)


def _crc32(number: int, version: Version, names: bytes, body: Array) -> int:
    return zlib.crc32(body.data, zlib.crc32(names, zlib.crc32(_HEAD.pack(number, *version))))
