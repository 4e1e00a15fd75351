"""Stable-Baselines3's `ReplayBuffer`: one call stores a step of all lanes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.contenders import buffer_work  # isort: skip  (pins the threads first)

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

from benchmarks.contenders.buffer_data import NUM_LANES, Columns, cut


class Buffer:
    """Store 8 rows a call; a push of 256 is 32 calls."""

    def __init__(self, rows: int) -> None:
        self._buffer = ReplayBuffer(
            rows,
            spaces.Box(-np.inf, np.inf, (4,), np.float32),
            spaces.Discrete(2),
            device="cpu",
            n_envs=NUM_LANES,
            handle_timeout_termination=False,  # else it looks through a list of infos at each call
        )

    def prepare(self, columns: Columns) -> list[tuple[Any, ...]]:
        names = ("obs", "next_obs", "action", "reward", "done")
        steps = cut(columns, NUM_LANES)
        return [(*(step[name] for name in names), [{}] * NUM_LANES) for step in steps]

    def push(self, load: list[tuple[Any, ...]]) -> None:
        for step in load:
            self._buffer.add(*step)

    def sample(self, size: int) -> Mapping[str, Any]:
        drawn = self._buffer.sample(size)
        return {
            "obs": drawn.observations,
            "next_obs": drawn.next_observations,
            "action": drawn.actions,
            "reward": drawn.rewards,
            "done": drawn.dones,
        }


if __name__ == "__main__":
    buffer_work.main({"uniform": Buffer}, ("stable_baselines3", "torch", "numpy"))
