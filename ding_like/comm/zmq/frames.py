"""Messages as a JSON head and a frame for each array, from which nothing can be executed.

A message is [head][array][array]...: the head is a JSON object with "kind" and "arrays", a list of [name, dtype,
shape]. Shapes and dtypes are claims of the sender, and are compared with the bytes that came before an array is made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np

from ding_like.comm.channels import Head, is_count, short
from ding_like.errors import CommError
from ding_like.types import Array, Json

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
    described, frames = [], []
    for name, value in (arrays or {}).items():
        array = np.asarray(value, order="C")  # not ascontiguousarray, which makes a list of a lone number
        dtype = _NAMES.get(array.dtype)
        if dtype is None:
            raise CommError(
                f"the array '{name}' has dtype {array.dtype}, which is not sent; expected one of {', '.join(DTYPES)}."
            )
        described.append([name, dtype, list(array.shape)])
        frames.append(array.reshape(-1).view(np.uint8).data if array.size else b"")
    try:
        return [_JSON.encode({**head, "arrays": described}).encode(), *frames]
    except (TypeError, ValueError, RecursionError) as error:
        raise CommError(f"the head of a message '{head['kind']}' is no JSON: {error}") from error


def decode(frames: Sequence[Frame], *, max_nbytes: int) -> Message:
    """Return the message that frames hold; its arrays share their memory where they are aligned in it.

    Raises CommError for anything that `encode` does not make, and for arrays of more than `max_nbytes` together.
    """
    if not frames or len(frames[0]) > MAX_HEAD_NBYTES:
        raise CommError(f"a message has no head of up to {MAX_HEAD_NBYTES:,} bytes.")
    try:
        head = json.loads(bytes(frames[0]))
    except (ValueError, RecursionError) as error:
        raise CommError(f"{len(frames[0]):,} bytes are no head of a message: {str(error)[:200]}") from error
    if not isinstance(head, dict) or not isinstance(head.get("kind"), str):
        raise CommError(f"the head of a message is {short(head)}; expected a JSON object with a 'kind'.")
    described = head.pop("arrays", None)
    if not isinstance(described, list) or len(described) != len(frames) - 1:
        raise CommError(
            f"a message describes arrays as {short(described)}, and has {len(frames) - 1:,} frames of them."
        )
    nbytes = sum(map(len, frames[1:]))
    if nbytes > max_nbytes:
        raise CommError(f"the arrays of a message have {nbytes:,} bytes; expected at most {max_nbytes:,}.")
    return Message(head, dict(map(_array, described, frames[1:])))


def _array(entry: Json, frame: Frame) -> tuple[str, Array]:
    match entry:
        case [str(name), str(dtype), list(shape)] if dtype in DTYPES and all(map(is_count, shape)):
            kind = DTYPES[dtype]
        case _:
            raise CommError(
                f"a message describes an array as {short(entry)}; expected [name, dtype, shape] of numbers only."
            )
    if prod(shape) * kind.itemsize != len(frame):
        raise CommError(f"the array {short(name)} came with {len(frame):,} bytes; {dtype}{short(shape)} has others.")
    if len(shape) > _MAX_DIMS or prod(each or 1 for each in shape) > max(len(frame), _MAX_EMPTY):
        raise CommError(f"the array {short(name)} has shape {short(shape)}, which is too long.")
    array = np.frombuffer(frame, np.uint8).view(kind).reshape(shape)
    if not array.flags.aligned:  # messages stand one behind another in what was received
        array = array.copy()
    array.flags.writeable = False
    return name, array
