"""Store versions of weights in a block of shared memory, which one process writes and others read without a lock.

A block has `num_buffers` buffers that are written in turn, and a counter of versions that is written last. Words of 8
bytes, in the machine's order:

    block:   magic, format, number of buffers, bytes of a body, has checksums, number of the newest version
    buffer:  sequence, attempt, update, crc32, bytes of names; then the names of the readers it is for, and the body

    write number k, into buffer k % num_buffers:  sequence = 2k - 1;  body;  head;  sequence = 2k;  versions = k
    read:  k = versions;  check sequence == 2k;  copy the body;  check sequence == 2k again;  retry if either fails

This is a sequence lock (Lameter 2005, "Effective synchronization on Linux/NUMA systems"; Boehm 2012, "Can seqlocks get
along with programming language memory models?"). A reader never holds anything that a writer waits for, so readers may
be killed or stopped. A writer that is killed during a write leaves the counter at the previous version, whose buffer it
does not touch. A reader is overtaken only if `num_buffers` versions are begun while it copies one.

Why the order of stores and loads holds:

* Python runs these statements in this order, and each store or load of a word is one aligned access of 8 bytes
  (numpy assigns through a pointer; `struct` in its standard sizes would go byte by byte).
* x86-64 makes the stores of a core visible to others in program order and does not reorder loads (Intel SDM 3A, 8.2.2).
  Where the C library copies large bodies past the cache, it ends with a store fence.
* ARM64 and POWER guarantee neither, and Python has no memory barrier. There a crc32 of head and body is stored with
  them (optional on x86-64), and a version that does not match it is read again.
"""

from __future__ import annotations

import _posixshmem  # type: ignore[import-not-found]  # the module below `SharedMemory` has no stub
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
_LINE = 64  # bytes: each head has a cache line of its own, and bodies begin at one
_NAMES = 4096 - _LINE  # bytes: for the names of the readers that a version is for
_NOBODY = b"\n"  # in place of names, for a version without readers: no name contains it
_NUMBERS, _SEQUENCE = 5, 0  # places of words: of a block's head, of a buffer's
_HEAD = struct.Struct("<Qqq")
_MISMATCH_TRIES = 1000  # of a version whose buffer shows another: where loads are reordered that soon ends
_OVERTAKEN_TRIES = 8  # copies that a faster writer overwrote, before the caller waits for its next version


class VersionBytes(NamedTuple):
    """Hold a version that was read, and its bytes, uint8 [N], the reader's own."""

    version: Version
    body: Array


class ReadResult(NamedTuple):
    """Hold up to which number versions were examined, and the newest that is for the reader, if any."""

    number: int
    taken: VersionBytes | None


class _NotCopied(Enum):
    """Give the reason why a version was not copied."""

    MISMATCH = "the buffer holds another version than was announced"
    OVERTAKEN = "the buffer was written while it was copied"
    NOT_FOR_US = "the version is for other readers"


class BlockWriter:
    """Create a block for bodies of `nbytes` bytes and write versions into it, as its only writer.

    All memory is reserved at once, so a full /dev/shm raises CommError here and never causes a SIGBUS in a later write.
    The resource tracker of `multiprocessing` unlinks the block if this process is killed.
    """

    def __init__(self, name: str, nbytes: int, *, num_buffers: int, is_checked: bool) -> None:
        self._stride = _stride(nbytes)
        size = _LINE + num_buffers * self._stride
        try:
            self._memory = SharedMemory(name, create=True, size=size)
        except (OSError, ValueError) as error:
            raise CommError(
                f"the shared memory {name} of {size:,} bytes cannot be made: {error}. Look at `df /dev/shm`."
            ) from error
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
        # The magic is written last: a block without it is not complete.
        self._words[1:_NUMBERS] = (_FORM, num_buffers, nbytes, is_checked)
        self._words[0] = _MAGIC

    def write(self, version: Version, fill: Callable[[Array], None], *, to: Sequence[str] | None = None) -> None:
        """Write a version for the readers `to` (None: all); `fill` writes its body into uint8 [nbytes].

        If that raises, the previous version stays the newest. Raises CommError for more names than there is room for.
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
        """Release the mapping without unlinking the block, for a forked child: the block belongs to its parent."""
        self._bytes = self._words = None
        with suppress(BufferError):  # another thread was writing when the process was forked, and does not exist here
            self._memory.close()


class BlockReader:
    """Read versions from a block. Raises FileNotFoundError without such a block, CommError for other content."""

    def __init__(self, name: str, nbytes: int) -> None:
        self.name = name
        self._bytes = _attach(name)
        if self._bytes.size < _LINE:
            raise CommError(
                f"the shared memory {name} has {self._bytes.size} bytes: it holds no weights. Restart the publisher."
            )
        self._words = self._bytes[:_LINE].view(np.int64)
        magic, form, num_buffers, found, is_checked = self._words[:_NUMBERS].tolist()
        if magic != _MAGIC or form != _FORM:
            raise CommError(
                f"the shared memory {name} holds no weights, or those of another release ({magic:#x}). "
                "Use the same release at both ends."
            )
        self._stride = _stride(nbytes)
        if found != nbytes or num_buffers < 2 or self._bytes.size < _LINE + num_buffers * self._stride:
            raise CommError(
                f"the shared memory {name} of {self._bytes.size:,} bytes says that it has {num_buffers} buffers for "
                f"weights of {found:,} bytes; expected {nbytes:,}. It was written by something else: delete it."
            )
        self._nbytes = nbytes
        self._num_buffers = num_buffers
        self._is_checked = bool(is_checked)
        self._spare: list[Array] = []  # memory of an earlier copy that is no longer in use

    def has_newer(self, number: int) -> bool:
        """Tell whether there is a version whose number is above `number`."""
        return int(self._words[_NUMBERS]) > number

    def read(self, *, after: int, reader: str) -> ReadResult:
        """Return a copy of the newest version with a number above `after` that is for `reader`.

        Without such a version, the number of the result is that of the newest version examined. It is `after` if a
        faster writer has overtaken every try: a newer version is then about to be announced. Raises CommError if the
        content is not what a writer leaves.
        """
        mismatches = overtaken = 0
        while mismatches < _MISMATCH_TRIES and overtaken < _OVERTAKEN_TRIES:
            newest = int(self._words[_NUMBERS])
            found: VersionBytes | _NotCopied = _NotCopied.NOT_FOR_US
            number = newest
            # The oldest is not tried: its buffer may be in use for the next version.
            while found is _NotCopied.NOT_FOR_US and number > max(after, newest - self._num_buffers + 1):
                found = self._copy(number, reader)
                number -= 1
            if isinstance(found, VersionBytes):
                return ReadResult(newest, found)
            if found is _NotCopied.NOT_FOR_US:
                return ReadResult(max(newest, after), None)
            if found is _NotCopied.OVERTAKEN or int(self._words[_NUMBERS]) != newest:
                overtaken, mismatches = overtaken + 1, 0
            else:
                mismatches += 1
        if mismatches < _MISMATCH_TRIES:
            return ReadResult(after, None)
        raise CommError(
            f"the shared memory {self.name} is broken: version {newest} is announced, and its buffer holds another "
            "one, or bytes with another checksum. Start the publisher again."
        )

    def _copy(self, number: int, reader: str) -> VersionBytes | _NotCopied:
        """Copy a version out of its buffer, if it is complete and for this reader; else say why not."""
        head, names, body = _parts(self._bytes, _LINE + number % self._num_buffers * self._stride, self._nbytes)
        if int(head[_SEQUENCE]) != 2 * number:
            return _NotCopied.MISMATCH
        version, checksum = Version(int(head[1]), int(head[2])), int(head[3])
        said = names[: int(head[4])].tobytes()
        is_for_us = not said or reader.encode() in said.split(b"\n")
        if not is_for_us and not self._is_checked and int(head[_SEQUENCE]) == 2 * number:
            return _NotCopied.NOT_FOR_US
        copied = _copied(body, self._spare)
        if int(head[_SEQUENCE]) != 2 * number:
            return _NotCopied.OVERTAKEN
        if self._is_checked and _crc32(number, version, said, copied) != checksum:
            return _NotCopied.MISMATCH
        return VersionBytes(version, copied) if is_for_us else _NotCopied.NOT_FOR_US


def unlink_blocks(prefix: str) -> None:
    """Unlink the blocks of a killed process, whose names begin with `prefix`; without a /dev/shm to list, do nothing.

    Blocks that are not found here are unlinked by the resource tracker of their process, which outlives it.
    """
    for name in os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else ():
        if name.startswith(prefix):
            with suppress(FileNotFoundError, PermissionError):
                _posixshmem.shm_unlink(f"/{name}")
                # Both processes may share one tracker, which must forget the block too. It complains about a name that
                # it does not know, so the name is registered first.
                resource_tracker.register(f"/{name}", "shared_memory")
                resource_tracker.unregister(f"/{name}", "shared_memory")


def _attach(name: str) -> Array:
    """Map a block read-only.

    `SharedMemory(name)` maps it for writing and, before Python 3.13 (`track=False`), registers it with the resource
    tracker of this process, which unlinks the publisher's block when the reader ends (CPython issue 82300).
    """
    descriptor = _posixshmem.shm_open(f"/{name}", os.O_RDONLY, mode=0)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.getuid():
            raise CommError(
                f"the shared memory {name} belongs to user {status.st_uid}, this process to {os.getuid()}; use one."
            )
        if not status.st_size:
            return np.zeros(0, np.uint8)
        # The mapping lives as long as the last array of it.
        return np.frombuffer(mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ), np.uint8)
    finally:
        os.close(descriptor)


def _reserve(name: str, size: int, num_buffers: int) -> None:
    """Reserve all memory of a block. Raises CommError if /dev/shm has not enough."""
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
    """Return a copy, in spare memory if there is some: copying into fresh memory takes twice as long.

    When the last array or tensor of the copy is deleted, its memory becomes the spare one.
    """
    if not len(body):
        return np.empty(0, np.uint8)
    memory = spare.pop() if spare else np.empty(len(body), np.uint8)
    # Slices refer to `copied` itself, as its base is no array: it is finalized after the last of them.
    copied = np.frombuffer(memory.data, np.uint8)
    weakref.finalize(copied, _keep, memory, spare).atexit = False
    np.copyto(copied, body)
    return copied


def _keep(memory: Array, spare: list[Array]) -> None:
    if not spare:
        spare.append(memory)


def _crc32(number: int, version: Version, names: bytes, body: Array) -> int:
    return zlib.crc32(body.data, zlib.crc32(names, zlib.crc32(_HEAD.pack(number, *version))))
