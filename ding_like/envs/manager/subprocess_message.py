"""Carry messages between the env manager and its processes: JSON that knows arrays, and failures as text.

Nothing that comes back from a process is unpickled; what an env says in `info` beyond plain Python and numpy arrives as
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
from gymnasium import spaces

from ding_like import errors
from ding_like.data.hybrid_space import HybridSpace
from ding_like.envs.spaces import Space
from ding_like.errors import EnvError
from ding_like.utils.user_code import raised_at

# Messages are trees of many types: hence Any throughout this file.

_LENGTH_BYTES = 4
_EMPTY = bytes(_LENGTH_BYTES)
# A pipe holds 64 KiB: most messages come with the first read.
_CHUNK_BYTES = 65536
# A dict with this key stands for something that JSON does not know.
_KIND = "__kind__"
_PLAIN = frozenset((str, int, float, bool, type(None)))


class Channel:
    """Send and receive messages over two pipes, one in flight at a time.

    None is the cheapest message, four bytes without JSON; what it means is agreed upon by both sides.
    """

    def __init__(self, read_end: int, write_end: int, *, foreign: Callable[[Any], Any] = repr) -> None:
        self.read_end = read_end
        self._write_end = write_end
        self._is_write_end_closed = False
        self._foreign = foreign  # what becomes of a value that is neither plain Python nor numpy

    def send(self, message: Any = None) -> None:
        """Send a message; raises BrokenPipeError if the reader has gone."""
        data = _EMPTY
        if message is not None:
            body = json.dumps(_plain(message, self._foreign)).encode()
            data = len(body).to_bytes(_LENGTH_BYTES, "little") + body
        sent = os.write(self._write_end, data)
        while sent < len(data):
            sent += os.write(self._write_end, data[sent:])

    def receive(self) -> Any:
        """Wait for a message and return it; raises EOFError if the other side is gone."""
        data = os.read(self.read_end, _CHUNK_BYTES)
        if data == _EMPTY:
            return None
        while len(data) < _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little") or not data:
            more = os.read(self.read_end, _CHUNK_BYTES)
            if not more:
                raise EOFError("the other side closed the pipe")
            data += more
        return json.loads(data[_LENGTH_BYTES:], object_hook=_from_plain)

    def close_write_end(self) -> None:
        """Let the other side read the end of the pipe; a second call does nothing."""
        if not self._is_write_end_closed:
            self._is_write_end_closed = True
            os.close(self._write_end)

    def close(self) -> None:
        """Close both ends."""
        self.close_write_end()
        os.close(self.read_end)


def _plain(value: Any, foreign: Callable[[Any], Any]) -> Any:
    """Return `value` as what JSON holds; `_from_plain` gives it back with its types."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, dict):
        if all(type(key) is str for key in value) and _KIND not in value:
            return {key: _plain(inner, foreign) for key, inner in value.items()}
        items = [[_plain(key, foreign), _plain(inner, foreign)] for key, inner in value.items()]
        return {_KIND: "dict", "items": items}
    if isinstance(value, list):
        return [_plain(inner, foreign) for inner in value]
    if isinstance(value, tuple):
        return {_KIND: "tuple", "items": [_plain(inner, foreign) for inner in value]}
    if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject and value.dtype.names is None:
        return {
            _KIND: "array" if isinstance(value, np.ndarray) else "scalar",
            "dtype": value.dtype.str,
            "shape": value.shape,
            "data": base64.b64encode(value.tobytes()).decode(),
        }
    if isinstance(value, bytes):
        return {_KIND: "bytes", "data": base64.b64encode(value).decode()}
    return foreign(value)


def _from_plain(value: dict[str, Any]) -> Any:
    kind = value.get(_KIND)
    if kind is None:
        return value
    if kind == "dict":
        return dict(value["items"])
    if kind == "tuple":
        return tuple(value["items"])
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
    """Return what `failure_of` makes an equal exception from, in a process that need not know its class."""
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    kind = {"module": type(error).__module__, "name": type(error).__name__}
    return {**kind, "text": str(error), "trace": trace, "at": raised_at(error)}


class RemoteError(Exception):
    """Show where in its own process an env broke: the cause of the exception that stands for it here."""

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
    vars(error)["raised_at"] = described["at"]  # what `utils/user_code.py` reads
    return error


def describe_space(space: Space) -> dict[str, Any]:
    """Return what `space_of` makes an equal space from; `space` is one that fits in arrays."""
    if isinstance(space, spaces.Dict):
        return {"type": "Dict", "entries": [[key, describe_space(inner)] for key, inner in space.spaces.items()]}
    if isinstance(space, HybridSpace):
        own = {"low": space.parameter_low, "high": space.parameter_high, "parameter_mask": space.parameter_mask}
        return {"type": "HybridSpace", "num_choices": space.num_choices, **own}
    if isinstance(space, spaces.Box):
        return {"type": "Box", "low": space.low, "high": space.high, "dtype": np.dtype(space.dtype).str}
    if isinstance(space, spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"type": "MultiDiscrete", "nvec": space.nvec, "start": space.start, "dtype": np.dtype(space.dtype).str}
    assert isinstance(space, spaces.MultiBinary), "ObsLayout and ActionLayout refuse all other spaces"
    return {"type": "MultiBinary", "n": space.n}


def space_of(described: dict[str, Any]) -> Space:
    """Return the space that was described."""
    fields = dict(described)
    kind = fields.pop("type")
    if kind == "Dict":
        return spaces.Dict({key: space_of(inner) for key, inner in fields["entries"]})
    if kind == "HybridSpace":
        return HybridSpace(**fields)
    if "dtype" in fields:
        fields["dtype"] = np.dtype(fields["dtype"]).type
    space: Space = getattr(spaces, kind)(**fields)
    return space
