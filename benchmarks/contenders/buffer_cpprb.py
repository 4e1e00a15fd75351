"""cpprb: buffers and sum tree in C++."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.contenders import buffer_work  # isort: skip  (pins the threads first)

import cpprb
import numpy as np
import torch

from benchmarks.contenders.buffer_data import FRAME_STACK, Columns

_REST = {"action": {"dtype": np.int64}, "reward": {}, "done": {"dtype": bool}}
_OBS = {"shape": 4, "dtype": np.float32}


class Buffer:
    """Storage with obs and next_obs in columns of their own."""

    def __init__(self, rows: int) -> None:
        self._buffer = cpprb.ReplayBuffer(rows, {"obs": _OBS, "next_obs": _OBS, **_REST})

    def prepare(self, columns: Columns) -> Any:
        return columns

    def push(self, load: Any) -> None:
        self._buffer.add(**load)

    def sample(self, size: int) -> Mapping[str, Any]:
        return {name: torch.from_numpy(column) for name, column in self._buffer.sample(size).items()}


class PrioritisedBuffer(Buffer):
    """Draw by priority."""

    def __init__(self, rows: int) -> None:
        self._buffer = cpprb.PrioritizedReplayBuffer(rows, {"obs": _OBS, "next_obs": _OBS, **_REST}, alpha=0.6)

    def sample(self, size: int) -> Mapping[str, Any]:
        drawn = self._buffer.sample(size, beta=0.4)
        self._indexes = drawn.pop("indexes")
        return {name: torch.from_numpy(column) for name, column in drawn.items()}

    def update(self, priority: np.ndarray[Any, Any]) -> None:
        self._buffer.update_priorities(self._indexes, priority)


class FrameBuffer(Buffer):
    """Storage of each frame once; stacks have their frames on the last axis, and the caller marks ends of episodes."""

    def __init__(self, rows: int) -> None:
        stack = {"shape": (84, 84, FRAME_STACK), "dtype": np.uint8}
        self._buffer = cpprb.ReplayBuffer(rows, {"obs": stack, **_REST}, next_of="obs", stack_compress="obs")

    def prepare(self, columns: Columns) -> list[Any]:
        frames_last = {name: np.ascontiguousarray(np.moveaxis(columns[name], 1, -1)) for name in ("obs", "next_obs")}
        columns = {**columns, **frames_last}
        ends = [*(np.flatnonzero(columns["done"]) + 1), len(columns["done"])]
        starts = [0, *ends[:-1]]
        parts = [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]
        return [{name: column[start:end] for name, column in columns.items()} for start, end in parts]

    def push(self, load: list[Any]) -> None:
        for part in load:
            self._buffer.add(**part)
            if part["done"][-1]:
                self._buffer.on_episode_end()


if __name__ == "__main__":
    makers = {"uniform": Buffer, "prioritised": PrioritisedBuffer, "atari": FrameBuffer}
    buffer_work.main(makers, ("cpprb", "torch", "numpy"))
