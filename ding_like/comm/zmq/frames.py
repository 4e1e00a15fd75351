"""Encode a message as a JSON head and a frame for each array, from which nothing can be executed, and read it back.

A message is [head][array][array]...: the head is a JSON object with "kind" and "arrays", a list of [name, dtype,
shape]. Shapes and dtypes are claims of the sender, and are compared with the bytes that came before anything is made
of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ding_like.comm.json_fields import is_count, short
from ding_like.errors import CommError
from ding_like.types import Array

# What a frame is sent from, and what a socket returns.
Frame: TypeAlias = "bytes | memoryview"

MAX_HEAD_NBYTES = 2**24  # the layout of a model of 100,000 tensors has about half of it
MAX_ARRAYS = 4096
_MAX_NAME = 1024  # characters
_MAX_DIMS = 32  # as the oldest numpy has
_MAX_EMPTY = 2**31  # numbers beside an axis of 0: a shape without bytes must not cost memory where it is used

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
    """Hold a message: its head without "arrays", and its arrays by name, which cannot be written to."""

    head: dict[str, Any]  # Any: of JSON
    arrays: dict[str, Array]

    @property
    def kind(self) -> str:
        """Return what kind of message it is."""
        kind: str = self.head["kind"]
        return kind


def encode(head: Mapping[str, Any], arrays: Mapping[str, Array] | None = None) -> list[Frame]:  # Any: of JSON
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
    if "arrays" in head or not isinstance(head.get("kind"), str):
        raise CommError(f"a message has the keys {sorted(map(str, head))}; expected 'kind', and 'arrays' not.")
    try:
        text = _JSON.encode({**head, "arrays": described}).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise CommError(f"the head of a message '{head['kind']}' is no JSON: {error}") from error
    if len(text) > MAX_HEAD_NBYTES or len(frames) > MAX_ARRAYS:
        raise CommError(
            f"a message '{head['kind']}' has a head of {len(text):,} bytes and {len(frames):,} arrays; expected at "
            f"most {MAX_HEAD_NBYTES:,} bytes and {MAX_ARRAYS:,} arrays."
        )
    return [text, *frames]


def decode(frames: Sequence[Frame], *, max_nbytes: int) -> Message:
    """Return the message that frames hold; its arrays share their memory where they are aligned in it.

    Raises CommError for anything that `encode` does not make, and for arrays of more than `max_nbytes` together.
    """
    if not 1 <= len(frames) <= MAX_ARRAYS + 1:
        raise CommError(f"a message has {len(frames):,} frames; expected a head and at most {MAX_ARRAYS:,} arrays.")
    head = _parse_head(frames[0])
    described = head.pop("arrays", None)
    if not isinstance(described, list) or len(described) != len(frames) - 1:
        claimed = f"{len(described):,} arrays" if isinstance(described, list) else short(described)
        raise CommError(f"a message says that it has {claimed}, and came with {len(frames) - 1:,} frames of arrays.")
    nbytes = sum(map(len, frames[1:]))
    if nbytes > max_nbytes:
        raise CommError(f"the arrays of a message have {nbytes:,} bytes; expected at most {max_nbytes:,}.")
    arrays: dict[str, Array] = {}
    for entry, frame in zip(described, frames[1:], strict=True):
        name, dtype, shape = _parse_entry(entry)
        if name in arrays:
            raise CommError(f"a message has the array {short(name)} twice.")
        arrays[name] = _array(name, dtype, shape, frame)
    return Message(head, arrays)


def _parse_head(frame: Frame) -> dict[str, Any]:  # Any: of JSON
    if len(frame) > MAX_HEAD_NBYTES:
        raise CommError(f"a message has a head of {len(frame):,} bytes; expected at most {MAX_HEAD_NBYTES:,}.")
    try:
        head = json.loads(bytes(frame))
    except (ValueError, RecursionError) as error:
        raise CommError(f"{len(frame):,} bytes are no head of a message: {str(error)[:200]}") from error
    if not isinstance(head, dict) or not isinstance(head.get("kind"), str):
        raise CommError(f"the head of a message is {short(head)}; expected a JSON object with a 'kind'.")
    return head


def _parse_entry(entry: Any) -> tuple[str, np.dtype[Any], tuple[int, ...]]:  # Any: of JSON, and a dtype's kind
    if not isinstance(entry, list) or len(entry) != 3:
        raise CommError(f"a message describes an array as {short(entry)}; expected [name, dtype, shape].")
    name, dtype, shape = entry
    if not isinstance(name, str) or len(name) > _MAX_NAME:
        raise CommError(f"a message has an array {short(name)}; expected a name of up to {_MAX_NAME:,} characters.")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise CommError(
            f"the array {short(name)} has dtype {short(dtype)}; expected one of {', '.join(DTYPES)}: numbers only."
        )
    if not isinstance(shape, list) or len(shape) > _MAX_DIMS or not all(is_count(each) for each in shape):
        raise CommError(f"the array {short(name)} has shape {short(shape)}; expected up to {_MAX_DIMS} counts.")
    return name, DTYPES[dtype], tuple(shape)


def _array(name: str, dtype: np.dtype[Any], shape: tuple[int, ...], frame: Frame) -> Array:  # Any: a dtype's kind
    if prod(shape) * dtype.itemsize != len(frame):
        raise CommError(
            f"the array {short(name)} came with {len(frame):,} bytes; {dtype.name} of shape {short(list(shape))} has "
            "others."
        )
    if not len(frame) and prod(each or 1 for each in shape) > _MAX_EMPTY:
        raise CommError(f"the array {short(name)} has shape {short(list(shape))}, which is empty and too long.")
    array = np.frombuffer(frame, np.uint8)
    if dtype == np.bool_ and array.size and int(array.max()) > 1:
        raise CommError(f"the array {short(name)} is of bools, and has bytes that are neither 0 nor 1.")
    array = array.view(dtype).reshape(shape)
    if not array.flags.aligned:  # messages stand one behind another in what was received
        array = array.copy()
    array.flags.writeable = False
    return array
