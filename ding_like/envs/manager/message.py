"""Messages between an env manager and its worker processes: JSON that knows arrays, and failures as texts.

Nothing that a worker process sends is unpickled: what an env puts in `info` beyond plain Python and numpy arrives as
its `repr`.
"""

from __future__ import annotations

import base64
import builtins
import json
import os
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from ding_like import errors
from ding_like.errors import EnvError
from ding_like.utils.imports import raised_at

# Messages are trees of many types: hence Any throughout this file.

_LENGTH_BYTES = 4
_CHUNK_BYTES = 65536  # what a pipe holds: most messages are read at once
_KIND = "__kind__"  # marks a dict that stands for a value that JSON has no type for
_PLAIN = frozenset((str, int, float, bool, type(None)))


class Channel:
    """Pair of pipes that carries one message at a time; None is the cheapest message, four bytes without JSON."""

    def __init__(self, read_end: int, write_end: int, *, foreign: Callable[[Any], Any] = repr) -> None:
        self.read_end = read_end
        self._write_end = write_end
        self._foreign = foreign  # converts a value that is neither plain Python nor numpy

    def send(self, message: Any = None) -> None:
        """Send a message. Raises BrokenPipeError if the reader has ended."""
        body = b"" if message is None else json.dumps(_plain(message, self._foreign)).encode()
        data = len(body).to_bytes(_LENGTH_BYTES, "little") + body
        sent = os.write(self._write_end, data)
        while sent < len(data):
            sent += os.write(self._write_end, data[sent : sent + _CHUNK_BYTES])

    def receive(self) -> Any:
        """Wait for a message and return it. Raises EOFError if the other side has ended."""
        data, size = b"", _LENGTH_BYTES
        while len(data) < size:
            more = os.read(self.read_end, _CHUNK_BYTES)
            if not more:
                raise EOFError("the other side closed the pipe")
            data += more
            size = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
        return json.loads(data[_LENGTH_BYTES:], object_hook=_from_plain) if size > _LENGTH_BYTES else None

    def close_write_end(self) -> None:
        """Let the other side read the end of the pipe; a second call does nothing."""
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1

    def close(self) -> None:
        """Close both ends."""
        self.close_write_end()
        os.close(self.read_end)


def _plain(value: Any, foreign: Callable[[Any], Any]) -> Any:
    """Return `value` as JSON holds it; `_from_plain` restores its types."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, dict):
        if all(type(key) is str for key in value) and _KIND not in value:
            return {key: _plain(inner, foreign) for key, inner in value.items()}
        items = [[_plain(key, foreign), _plain(inner, foreign)] for key, inner in value.items()]
        return {_KIND: "dict", "items": items}
    if isinstance(value, (list, tuple)):
        items = [_plain(inner, foreign) for inner in value]
        return items if isinstance(value, list) else {_KIND: "tuple", "items": items}
    if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject and value.dtype.names is None:
        kind = "array" if isinstance(value, np.ndarray) else "scalar"
        data = base64.b64encode(value.tobytes()).decode()
        return {_KIND: kind, "dtype": value.dtype.str, "shape": value.shape, "data": data}
    if isinstance(value, bytes):
        return {_KIND: "bytes", "data": base64.b64encode(value).decode()}
    return foreign(value)


def _from_plain(value: dict[str, Any]) -> Any:
    kind = value.get(_KIND)
    if kind is None:
        return value
    if kind in ("dict", "tuple"):
        return dict(value["items"]) if kind == "dict" else tuple(value["items"])
    data = base64.b64decode(value["data"])
    if kind == "bytes":
        return data
    array = np.frombuffer(data, value["dtype"]).reshape(value["shape"])
    return array.copy() if kind == "array" else array[()]


def refuse_foreign(value: Any) -> Any:
    """Raise EnvError for a value that would not arrive as it is."""
    raise EnvError(
        f"the state_dict of a wrapper, or reset options hold {value!r}, a {type(value).__name__}; between the manager "
        "and an env in a process of its own go plain Python and numpy only. Build such objects inside the env, or use "
        "manager type 'base'."
    )


def check_arrives(value: Any) -> None:
    """Raise EnvError if a part of `value` would arrive as its `repr`."""
    _plain(value, refuse_foreign)


def describe_failure(error: BaseException) -> dict[str, str]:
    """Return an exception as texts, from which `failure_of` makes an equal one without importing its class."""
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    kind = {"module": type(error).__module__, "name": type(error).__name__}
    return {**kind, "text": str(error), "trace": trace, "at": raised_at(error)}


class RemoteError(Exception):
    """Traceback of the env's own process: the cause of the exception that is raised in this one."""

    def __str__(self) -> str:
        return f"in the env's process:\n{self.args[0]}"


def failure_of(described: dict[str, str]) -> Exception:
    """Return an exception of the described class, or of one with its name if it is neither builtin nor ours."""
    home = {"builtins": builtins, "ding_like.errors": errors}.get(described["module"])
    kind = getattr(home, described["name"], None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        kind = type(described["name"], (Exception,), {})
    try:
        error: Exception = kind(described["text"])
    except TypeError:  # UnicodeDecodeError and a few others take more than a text
        error = RuntimeError(f"{described['name']}: {described['text']}")
    error.__cause__ = RemoteError(described["trace"])
    vars(error)["raised_at"] = described["at"]  # read by `utils/imports.py`
    return error
