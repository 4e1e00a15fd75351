"""Tianshou's replay buffers: one call stores a step of all lanes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.contenders import buffer_work  # isort: skip  (pins the threads first)

import numpy as np
import torch
from tianshou.data import Batch, PrioritizedVectorReplayBuffer, VectorReplayBuffer

from benchmarks.contenders.buffer_data import FRAME_STACK, NUM_LANES, SEQUENCE_STEPS, Columns, cut


class Buffer:
    """Store a step of `num_lanes` lanes a call."""

    num_lanes = NUM_LANES

    def __init__(self, rows: int) -> None:
        self._buffer: Any = VectorReplayBuffer(rows, self.num_lanes)

    def prepare(self, columns: Columns) -> list[Batch]:
        return [
            Batch(
                obs=step["obs"],
                act=step["action"],
                rew=step["reward"],
                terminated=step["done"],
                truncated=np.zeros(self.num_lanes, bool),
                obs_next=step["next_obs"],
                info=Batch(),
            )
            for step in cut(columns, self.num_lanes)
        ]

    def push(self, load: list[Batch]) -> None:
        for step in load:
            self._buffer.add(step, buffer_ids=np.arange(self.num_lanes))

    def sample(self, size: int) -> Mapping[str, Any]:
        drawn, self._indexes = self._buffer.sample(size)
        columns = {
            "obs": drawn.obs,
            "next_obs": drawn.obs_next,
            "action": drawn.act,
            "reward": drawn.rew,
            "done": drawn.terminated,
        }
        if "weight" in drawn:
            columns["weight"] = drawn.weight
        return {name: torch.as_tensor(column) for name, column in columns.items()}


class PrioritisedBuffer(Buffer):
    """Draw by priority."""

    def __init__(self, rows: int) -> None:
        self._buffer = PrioritizedVectorReplayBuffer(rows, self.num_lanes, alpha=0.6, beta=0.4)

    def update(self, priority: np.ndarray[Any, Any]) -> None:
        self._buffer.update_weight(self._indexes, priority)


class FrameBuffer(Buffer):
    """Store a frame once; one lane, for neighbours are consecutive steps."""

    num_lanes = 1

    def __init__(self, rows: int) -> None:
        self._buffer = VectorReplayBuffer(rows, 1, stack_num=FRAME_STACK, ignore_obs_next=True, save_only_last_obs=True)


class SequenceBuffer(Buffer):
    """Draw rows with what came before them; only obs and next_obs come as windows."""

    num_lanes = 1

    def __init__(self, rows: int) -> None:
        self._buffer = VectorReplayBuffer(rows, 1, stack_num=SEQUENCE_STEPS)


if __name__ == "__main__":
    makers = {"uniform": Buffer, "prioritised": PrioritisedBuffer, "atari": FrameBuffer, "sequence": SequenceBuffer}
    buffer_work.main(makers, ("tianshou", "torch", "numpy"))
