"""Keep versions of weights in a block of shared memory that one process writes and any number read, without a lock.

A block has `num_buffers` buffers that are written in turn, and a counter of versions that is written last. Words of 8
bytes, in the machine's order:

    block:   magic, form, number of buffers, bytes of a body, checked?, versions so far
    buffer:  sequence, attempt, update, crc32; then the body

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
import zlib
from collections.abc import Callable
from contextlib import suppress
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
_NUMBERS, _SEQUENCE = 5, 0  # places of words: of a block's head, of a buffer's
_HEAD = struct.Struct("<Qqq")
_CONFUSED_TRIES = 1000  # looks at one version whose buffer is of another: where loads pass each other that is soon over
_OVERTAKEN_TRIES = 8  # copies that a faster writer spoiled, before the caller is to wait for its next version


class Taken(NamedTuple):
    """Hold a version that was read: its number in the block, its name, and its bytes, uint8 [N], the reader's own."""

    number: int
    version: Version
    body: Array


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

    def write(self, version: Version, fill: Callable[[Array], None]) -> None:
        """Write a version; `fill` writes its body into uint8 [nbytes]. If that raises, the version before stays."""
        assert self._bytes is not None and self._words is not None, "the block is closed"
        number = self._number + 1
        start = _LINE + number % self._num_buffers * self._stride
        head = self._bytes[start : start + _LINE].view(np.int64)
        body = self._bytes[start + _LINE : start + _LINE + self.nbytes]
        head[_SEQUENCE] = 2 * number - 1
        fill(body)
        head[1:3] = version
        head[3] = _crc32(number, version, body) if self._is_checked else 0
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

    def has_newer(self, number: int) -> bool:
        """Tell whether there is a version whose number is above `number`."""
        return int(self._words[_NUMBERS]) > number

    def read(self, *, after: int) -> Taken | None:
        """Return a copy of the newest version if its number is above `after`, None if it is not.

        None too if a faster writer has overtaken every try; it announces its next version later than this. Raises
        CommError if the block is not as its writer leaves it.
        """
        confused = overtaken = 0
        while confused < _CONFUSED_TRIES and overtaken < _OVERTAKEN_TRIES:
            number = int(self._words[_NUMBERS])
            if number <= after:
                return None
            start = _LINE + number % self._num_buffers * self._stride
            head = self._bytes[start : start + _LINE].view(np.int64)
            if int(head[_SEQUENCE]) != 2 * number:
                confused = confused + 1 if int(self._words[_NUMBERS]) == number else 0
                continue
            copied = _copied(self._bytes[start + _LINE : start + _LINE + self._nbytes])
            version, checksum = Version(int(head[1]), int(head[2])), int(head[3])
            if int(head[_SEQUENCE]) != 2 * number:
                overtaken += 1
                continue
            if self._is_checked and _crc32(number, version, copied) != checksum:
                confused += _CONFUSED_TRIES // 10  # a copy takes long enough for any store to arrive
                continue
            return Taken(number, version, copied)
        if confused < _CONFUSED_TRIES:
            return None
        raise CommError(
            f"the shared memory {self.name} is broken: version {number} of it is announced, and its buffer holds "
            "another, or other bytes. Start the publisher again."
        )


def unlink_blocks(prefix: str) -> None:
    """Unlink the blocks whose names begin so, of a process that was killed; where blocks cannot be listed, do nothing.

    Of what is not found here, the resource tracker of the process takes care: it outlives it.
    """
    for name in os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else ():
        if name.startswith(prefix):
            with suppress(FileNotFoundError, PermissionError):
                _posixshmem.shm_unlink(f"/{name}")


def _attach(name: str) -> Array:
    """Map a block for reading alone.

    `SharedMemory(name)` maps it for writing and, before Python 3.13 (`track=False`), tells the resource
    tracker of this process of it, which unlinks the block when the reader ends, though it is the publisher's (CPython
    issue 82300).
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
    return _LINE + -(-nbytes // _LINE) * _LINE


def _copied(body: Array) -> Array:
    return body.copy()


def _crc32(number: int, version: Version, body: Array) -> int:
    return zlib.crc32(body.data, zlib.crc32(_HEAD.pack(number, *version)))
