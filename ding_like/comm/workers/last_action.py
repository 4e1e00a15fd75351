"""Note the actions that a worker sends its envs where another process of the machine can read them after a kill -9.

The notes of a worker are one small file that is mapped into its memory: the kernel keeps what was written whatever
becomes of the process, and a note costs a few copies of some bytes.
"""

from __future__ import annotations

import json
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np

from ding_like.types import Array

_HEAD = 4  # int64: whether a note is being written, steps noted, bytes of the description, bytes of the note
_DESCRIPTION = 4096  # bytes: dtypes and shapes of a note, as JSON
_ROOM = 64 * 1024  # bytes of a note: lanes and actions
_SIZE = 8 * _HEAD + _DESCRIPTION + _ROOM
_SHOWN = 16  # envs whose actions are shown


class LastAction:
    """Note the newest actions of one worker in `folder`, which is there and is this user's alone.

    The file bears the worker's name; `close` removes it. Raises OSError if it cannot be made.
    """

    def __init__(self, folder: str | Path, worker: str) -> None:
        self._path = Path(folder, worker)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.ftruncate(descriptor, _SIZE)
            self._memory = mmap.mmap(descriptor, _SIZE)
        finally:
            os.close(descriptor)
        self._head: Array | None = np.frombuffer(self._memory, np.int64, _HEAD)
        self._kinds: tuple[Any, ...] = ()  # of dtypes and shapes
        self._into: tuple[Array, Array] | None = None  # views of the memory: lanes and actions

    @classmethod
    def open(cls, folder: str | Path | None, worker: str) -> LastAction | None:
        """Return the notes of a worker; None where the folder is not there, on another machine than its owner's."""
        return cls(folder, worker) if folder is not None and Path(folder).is_dir() else None

    def note(self, lanes: Array, actions: Array) -> None:
        """Note that `lanes` [R] are about to be stepped with `actions` [R, A...]."""
        head = self._head
        if head is None:
            return
        head[0] = 1
        if self._kinds != (lanes.dtype, lanes.shape, actions.dtype, actions.shape):
            self._describe(lanes, actions)
        if self._into is not None:
            own_lanes, own_actions = self._into
            own_lanes[...] = lanes
            own_actions[...] = actions
        head[1] += 1
        head[0] = 0

    def _describe(self, lanes: Array, actions: Array) -> None:
        assert self._head is not None, "the notes are open"
        self._kinds, self._into = (lanes.dtype, lanes.shape, actions.dtype, actions.shape), None
        kinds = [[each.dtype.str, list(each.shape)] for each in (lanes, actions)]
        text, start = json.dumps(kinds).encode(), 8 * _HEAD
        fits = len(text) <= _DESCRIPTION and lanes.nbytes + actions.nbytes <= _ROOM
        if not fits or actions.dtype.kind not in "biuf":
            self._head[2] = 0
            return
        self._memory[start : start + len(text)] = text
        self._head[2] = len(text)
        self._into = _views(self._memory, kinds)

    def close(self) -> None:
        """Remove the file; may be called again."""
        if self._head is None:
            return
        self._head = self._into = None
        self._memory.close()
        self._path.unlink(missing_ok=True)


def last_action(folder: str | Path, worker: str) -> str:
    """Return what a worker noted last, as a text for a log: envs and actions; '' where nothing was noted."""
    try:
        data = Path(folder, worker).read_bytes()
    except OSError:  # it never began, or runs on another machine
        return ""
    if len(data) != _SIZE:
        return ""
    is_torn, steps, described, _ = np.frombuffer(data, np.int64, _HEAD).tolist()
    if steps + is_torn < 1:
        return ""
    if not 0 < described <= _DESCRIPTION:
        return f"step {steps:,}"
    try:
        lanes, actions = _views(data, json.loads(data[8 * _HEAD :][:described]))
    except (ValueError, TypeError):  # killed while it was written for the first time
        return f"step {steps:,}"
    said = [f"env {lane}: {action}" for lane, action in zip(lanes.tolist(), actions.tolist(), strict=True)]
    more = f" and {len(said) - _SHOWN} more" if len(said) > _SHOWN else ""
    return f"step {steps:,}, actions {{{', '.join(said[:_SHOWN])}{more}}}"


def _views(memory: mmap.mmap | bytes, kinds: Any) -> tuple[Array, Array]:  # Any: of JSON
    """Return lanes and actions as views of the memory. Raises ValueError or TypeError for other kinds."""
    place, found = 8 * _HEAD + _DESCRIPTION, []
    for dtype, shape in kinds:
        size = int(np.prod(shape, dtype=np.int64))
        found.append(np.frombuffer(memory, np.dtype(dtype), size, offset=place).reshape(shape))
        place += found[-1].nbytes
    lanes, actions = found
    return lanes, actions
