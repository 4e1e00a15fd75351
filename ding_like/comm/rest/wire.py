"""Turn messages into JSON and back, strictly: a message is a frozen dataclass, and its annotations are the schema.

Unknown or missing keys, wrong types (a bool is not a number), NaN, numbers and texts out of bounds are refused. Arrays
are base64 of little-endian bytes. Nothing that arrives names a type or a path.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import functools
import json
import math
import re
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import numpy as np

from ding_like.errors import CommError
from ding_like.types import Array, Json

M = TypeVar("M")

# Code -> HTTP status.
STATUS = {
    "malformed": 400,
    "bad_key": 401,
    "bad_clock": 401,
    "wrong_role": 403,
    "unknown": 404,
    "no_file": 404,
    "wrong_method": 405,
    "stale_attempt": 409,
    "stale_epoch": 409,
    "version_not_newer": 409,
    "old_message": 409,
    "name_taken": 409,
    "finished": 410,
    "too_large": 413,
    "wrong_content_type": 415,
    "schema": 422,
    "wrong_protocol": 426,
    "quota": 429,
    "internal": 500,
    "not_ready": 503,
    "storage_full": 503,
}
RETRYABLE = {"quota", "not_ready", "storage_full"}

# Ids and names of tasks, workers, buffers, policies and segments: never a path, whatever a client sends.
ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
MAX_DEPTH = 32
MAX_ITEMS = 4096  # of a list
MAX_TEXT = 65_536  # characters
MAX_INT = 2**62
MAX_COUNT = 2**48


# How fields are annotated: a text that must look like an id, an array int64 [B], one float32 [B] of finite numbers.
Id = Annotated[str, "id"]
Ints = Annotated[Array, "int64"]
Floats = Annotated[Array, "float32"]
_KINDS: dict[type, Any] = {list: list[Any], dict: dict[str, Json]}  # of values whose annotation is Any


class RefusedError(CommError):
    """Refusal of a request by the coordinator; `code` is one of STATUS."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status = STATUS[code]
        self.message = message
        self.retryable = code in RETRYABLE


class UnreachableError(CommError):
    """Failure to reach the coordinator for `retry_s`."""


def encode(message: object) -> bytes:
    """Return the JSON of a message. Raises ValueError for a number that is not finite."""
    return json.dumps(_plain(message), allow_nan=False, separators=(",", ":")).encode()


def decode(cls: type[M], body: bytes) -> M:
    """Return the message of class `cls` that `encode` made. Raises RefusedError 400 for anything else."""
    try:
        data = json.loads(body.decode("utf-8"), object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise RefusedError("malformed", f"the body is no JSON: {_short(error)}") from error
    message: M = _read(cls, data, cls.__name__, 0)
    return message


def check_id(value: str, what: str) -> str:
    """Return `value` if it looks like an id. Raises RefusedError 400."""
    if not ID_PATTERN.fullmatch(value):
        raise RefusedError(
            "malformed", f"{what} is {_short(repr(value))}; expected letters, digits, '.', '_', '-', up to 128"
        )
    return value


def check_count(value: int, what: str) -> None:
    """Raise RefusedError 400 for a number that counts nothing: below 0, or beyond what can be counted to."""
    if not 0 <= value < MAX_COUNT:
        raise RefusedError("malformed", f"{what} is {value}; expected 0 to {MAX_COUNT - 1}")


def printable(text: str, limit: int = 2000) -> str:
    """Return a text of unknown origin for a log or a terminal: on one line, without control characters, not long."""
    clean = "".join(letter if letter.isprintable() else " " for letter in text[:limit])
    return clean if len(text) <= limit else f"{clean}..."


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        kind = "<f4" if value.dtype.kind == "f" else "<i8"
        return base64.b64encode(np.ascontiguousarray(value, kind).tobytes()).decode()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (np.bool_, np.integer, np.floating)):
        return value.item()
    return value


def _read(kind: Any, value: Any, where: str, depth: int) -> Any:
    """Return a value of an annotation's kind from plain data, checked."""
    if depth > MAX_DEPTH:
        raise RefusedError("malformed", f"{_short(where)} is nested deeper than {MAX_DEPTH}")
    if kind is Any:
        kind = _KINDS.get(type(value), type(value))
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        (some,) = [each for each in inner if each is not types.NoneType]
        return None if value is None else _read(some, value, where, depth)
    if dataclasses.is_dataclass(kind):
        return _read_message(kind, value, where, depth)
    if kind in (Ints, Floats):
        return _read_array(kind, value, where)
    if kind is Id:
        return check_id(_typed(str, value, where), where)
    if origin in (list, tuple):
        items = _typed(list, value, where)
        if len(items) > MAX_ITEMS and inner[0] is not Any:
            raise RefusedError("too_large", f"{where} has {len(items)} items; at most {MAX_ITEMS}")
        return origin(_read(inner[0], item, f"{where}[{index}]", depth + 1) for index, item in enumerate(items))
    if origin is dict:
        items = _typed(dict, value, where)
        return {_text(key, where): _read(inner[1], item, f"{where}.{key}", depth + 1) for key, item in items.items()}
    if kind is str:
        return _text(value, where)
    if kind in (int, float):
        return _number(kind, value, where)
    return _typed(kind, value, where)  # true, false, null


def _number(kind: Any, value: Any, where: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, kind)):
        raise RefusedError("malformed", f"{_short(where)} is {_short(repr(value))}; expected {kind.__name__}")
    if isinstance(value, int) and abs(value) > MAX_INT:
        raise RefusedError("malformed", f"{where} is too large a number")
    if not math.isfinite(value):
        raise RefusedError("malformed", f"{where} is not finite")
    return kind(value)


def _read_message(cls: Any, value: Any, where: str, depth: int) -> Any:
    data = _typed(dict, value, where)
    kinds, required = _fields(cls)
    unknown, missing = sorted(set(data) - set(kinds)), sorted(required - set(data))
    if unknown or missing:
        said = [f"unknown {_short(', '.join(unknown))}"] if unknown else []
        said += [f"missing {', '.join(missing)}"] if missing else []
        raise RefusedError("malformed", f"{where}: {'; '.join(said)}")
    return cls(**{name: _read(kinds[name], item, f"{where}.{name}", depth + 1) for name, item in data.items()})


@functools.cache
def _fields(cls: Any) -> tuple[dict[str, Json], set[str]]:
    """Return (annotation by name, names without a default)."""
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = dataclasses.fields(cls)
    required = {
        field.name
        for field in fields
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    return {field.name: hints[field.name] for field in fields}, required


def _read_array(kind: Any, value: Any, where: str) -> Array:
    try:
        data = base64.b64decode(_typed(str, value, where).encode("ascii"), validate=True)
        array: Array = np.frombuffer(data, "<i8" if kind is Ints else "<f4")
    except (UnicodeEncodeError, binascii.Error, ValueError) as error:
        raise RefusedError("malformed", f"{where} is not an array: {_short(error)}") from error
    if kind is Floats and not np.isfinite(array).all():
        raise RefusedError("malformed", f"{where} has numbers that are not finite")
    return array.astype(np.int64 if kind is Ints else np.float32)


def _typed(kind: type, value: Any, where: str) -> Any:
    if not isinstance(value, kind):
        raise RefusedError("malformed", f"{_short(where)} is {_short(repr(value))}; expected {kind.__name__}")
    return value


def _text(value: Any, where: str) -> str:
    text: str = _typed(str, value, where)
    if len(text) > MAX_TEXT:
        raise RefusedError("too_large", f"{_short(where)} has {len(text)} characters; at most {MAX_TEXT}")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise RefusedError("malformed", f"{_short(where)} is not a valid text")
    return text


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."
