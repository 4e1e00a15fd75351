"""Lay out what an env manager and its processes share: one row per lane, one per process."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from ding_like.data.obs import columns_to_obs, obs_to_columns
from ding_like.data.schema import Field, Schema
from ding_like.envs.spaces import ActionLayout, ObsLayout
from ding_like.types import Array, Obs

# What a process is doing with an env; each has a deadline of its own.
STEP, RESET, MAKE, ASK = range(4)
_NUM_KINDS = 4

# A cache line: rows of two processes in one line would slow both down.
_ALIGNMENT = 64


def anonymous_file() -> int:
    """Return the descriptor of memory without a name: the system frees it with the last process that holds it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("env lanes")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class LaneMemory:
    """Hold the shared columns; a process writes the rows of its own lanes, and only while it carries out a command."""

    def __init__(self, file: int, layout: ObsLayout, actions: ActionLayout, *, num_lanes: int, num_processes: int):
        obs = Schema.of(obs_to_columns("obs", layout.allocate(0)))
        lane = Schema(
            {
                **obs,
                **{f"first_{name}": field for name, field in obs.items()},
                "action": Field(actions.shape, actions.dtype),
                "reward": Field((), np.dtype(np.float32)),
                "next_seed": Field((), np.dtype(np.int64)),
                "reseed_after": Field((), np.dtype(np.int64)),
            }
        )
        process = Schema({"doing": Field((8,), np.dtype(np.float64))})
        columns = _map_columns(file, [(lane, num_lanes), (process, num_processes)])
        # What to act on next; right after a step that ended an episode, its true last observation.
        self.obs: Obs = columns_to_obs("obs", columns)
        # Where the last reset or replay of a lane left it.
        self.first_obs: Obs = columns_to_obs("first_obs", columns)
        self.action = columns["action"]
        self.reward = columns["reward"]
        # An episode that ends `reseed_after` or more steps after the last seeded reset is followed by this seed.
        self.next_seed = columns["next_seed"]
        self.reseed_after = columns["reseed_after"]
        self._doing = columns["doing"]

    def doing(self, process: int) -> Doing:
        """Return the note of what a process is doing."""
        return Doing(self._doing[process])


class Doing:
    """Hold what a process is doing with which lane since when, and how long it was busy in all."""

    def __init__(self, row: Array) -> None:
        # [begun at, 0 or 1 + 4 * lane + kind, busy seconds]; a memoryview takes half the time of an array here.
        self._row: Any = row.data  # Any: to the type checker, a memoryview holds ints

    def begin(self, lane: int, kind: int, now_s: float) -> None:
        """Note that work on a lane begins; what is noted first is read last, so that the two belong together."""
        self._row[0] = now_s
        self._row[1] = 1 + _NUM_KINDS * lane + kind

    def end(self, busy_s: float) -> None:
        """Note that a command was carried out."""
        self._row[1] = 0
        self._row[2] += busy_s

    @property
    def busy_s(self) -> float:
        return float(self._row[2])

    def read(self) -> tuple[float, int, int] | None:
        """Return (begun at, lane, kind), None if there is no work or it changes just now."""
        since, code = self._row[0], int(self._row[1])
        if not code or self._row[0] != since:
            return None
        return float(since), *divmod(code - 1, _NUM_KINDS)

    def forget(self) -> None:
        """Note that the process is gone."""
        self._row[1] = 0


def _map_columns(file: int, parts: list[tuple[Schema, int]]) -> dict[str, Array]:
    """Return the columns of every schema, [rows, ...], over a file that both sides map alike."""
    offsets: dict[str, int] = {}
    size = 0
    for schema, rows in parts:
        for name, field in schema.items():
            offsets[name] = size
            num_bytes = rows * int(np.prod(field.shape)) * field.dtype.itemsize
            size += -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
    os.ftruncate(file, size)
    memory = mmap.mmap(file, size)
    fields: Mapping[str, tuple[Field, int]] = {
        name: (field, rows) for schema, rows in parts for name, field in schema.items()
    }
    return {
        name: np.ndarray((rows, *field.shape), field.dtype, memory, offsets[name])
        for name, (field, rows) in fields.items()
    }
