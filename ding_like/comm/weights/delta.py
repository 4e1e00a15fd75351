"""Encode new bytes as their difference to older ones that the receiver has: the blocks of 4 KiB that changed.

It pays where a large part of the weights stays as it is from version to version: a frozen encoder, say, or the rows of
an embedding that were not looked up. An optimizer step that moves every parameter changes every block, and then there
is no delta.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

from ding_like.errors import CommError
from ding_like.types import Array

BLOCK = 4096  # bytes: a page; its number costs a thousandth of it
# First bytes of a delta. As the length of a safetensors head they would be beyond all limits, so none begins so.
MAGIC = b"ding-\xce\x94\xff"
# Behind it: bytes before and after, crc32 of those after, number of blocks that changed; then their numbers, and they.
_HEAD = struct.Struct("<8sQQII")
_MAX_NBYTES = 2**40


def delta(old: Array, new: Array) -> Array | None:
    """Return the delta from `old` to `new` (both uint8 [N], lengths may differ); None if it is not shorter than `new`.

    `apply_delta` restores `new`, byte for byte.
    """
    both = min(old.size, new.size) // BLOCK
    differs = np.ones(_num_blocks(new.size), np.bool_)
    words = (each[: both * BLOCK].view(np.uint64).reshape(both, BLOCK // 8) for each in (old, new))
    differs[:both] = np.not_equal(*words).any(axis=1)
    if differs.size > both and np.array_equal(old[both * BLOCK :], new[both * BLOCK :]):
        differs[both:] = False  # the last block, which is shorter
    changed = np.flatnonzero(differs).astype(np.uint32)
    last = new.size - (differs.size - 1) * BLOCK if differs.size and differs[-1] else BLOCK
    if _HEAD.size + changed.size * (4 + BLOCK) - (BLOCK - last) >= new.size:
        return None
    head = _HEAD.pack(MAGIC, old.size, new.size, zlib.crc32(new.data), changed.size)
    blocks = [new[start : start + BLOCK] for start in (changed.astype(np.int64) * BLOCK).tolist()]
    return np.concatenate([np.frombuffer(head, np.uint8), changed.view(np.uint8), *blocks])


def is_delta(data: Array) -> bool:
    """Return whether bytes are a delta, and not a whole file of weights."""
    return bool(data.size >= _HEAD.size and data[: len(MAGIC)].tobytes() == MAGIC)


def apply_delta(old: Array, changes: Array) -> Array:
    """Return the new bytes (uint8 [N], writable, in memory of their own) that `delta` was given.

    Raises CommError for bytes that are no delta, one that was made from other bytes than `old`, or a wrong checksum.
    """
    if not is_delta(changes):
        raise CommError(f"{changes.size:,} bytes are no delta of weights: they do not begin as one.")
    _, before, after, crc, num_changed = _HEAD.unpack(changes[: _HEAD.size].tobytes())
    body = _HEAD.size + 4 * num_changed
    if before != old.size or after > _MAX_NBYTES or body > changes.size:
        raise CommError(f"a delta of weights is from {before:,} bytes in place of {old.size:,}, or is cut off.")
    numbers = changes[_HEAD.size : body].view(np.uint32).astype(np.int64)
    if numbers.size and (numbers[-1] >= _num_blocks(after) or (np.diff(numbers) <= 0).any()):
        raise CommError("a delta of weights names blocks beyond its result, or not in order.")
    ends = np.minimum((numbers + 1) * BLOCK, after)
    if int((ends - numbers * BLOCK).sum()) != changes.size - body:
        raise CommError("a delta of weights has fewer or more bytes than its blocks.")
    if after - old.size > num_changed * BLOCK:
        raise CommError(f"a delta of weights makes {after:,} bytes of {old.size:,}, and does not bring the rest.")
    new = np.zeros(after, np.uint8)
    kept = min(old.size, after)
    new[:kept] = old[:kept]
    at = body
    for start, end in zip((numbers * BLOCK).tolist(), ends.tolist(), strict=True):
        new[start:end] = changes[at : at + end - start]
        at += end - start
    if zlib.crc32(new.data) != crc:
        raise CommError("a delta of weights was made from other bytes than these: the result has another checksum.")
    return new


def _num_blocks(nbytes: int) -> int:
    return -(-nbytes // BLOCK)
