"""Ranked demonstrations whose first observed number grows with the rank, and reward models of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ding_like.data.demonstrations import Demonstrations
from ding_like.reward_model import create_reward_model
from ding_like.reward_model.base import Sizes

OBS, ACTIONS = 3, 2
SIZES = Sizes(OBS, ACTIONS, True)
LENGTHS = [5, 9, 4, 12, 7, 3]
RANKS = [0, 2, 1, 2, 0, 1]


def demonstrations(lengths: list[int], ranks: list[int], *, column: str = "rank", seed: int = 0) -> Demonstrations:
    """Return episodes of these lengths and ranks."""
    rng = np.random.default_rng(seed)
    rows = sum(lengths)
    rank = np.repeat(ranks, lengths)
    obs = rng.normal(size=(rows + 1, OBS)).astype(np.float32)
    obs[:-1, 0] += rank
    step = np.concatenate([np.arange(length) for length in lengths])
    columns = {
        "obs": obs[:-1],
        "next_obs": obs[1:],
        "action": rng.integers(0, ACTIONS, rows),
        "reward": rng.normal(size=rows).astype(np.float32),
        "terminated": np.diff(step, append=0) < 0,
        "truncated": np.zeros(rows, bool),
        "lane": np.zeros(rows, np.int64),
        "episode_id": np.repeat(np.arange(len(lengths)), lengths),
        "step": step,
        column: rank,
    }
    return Demonstrations(columns)


def saved(folder: Path, name: str, found: Demonstrations, **changes: Any) -> str:
    """Return the file of demonstrations, some of their columns replaced, or left out where they are None."""
    columns = {key: value for key, value in {**found.columns, **changes}.items() if value is not None}
    path = str(folder / f"{name}.safetensors")
    Demonstrations(columns).save(path)
    return path


def make(
    path: Any, *, kind: str = "trex", seed: int = 0, mean: Any = None, sizes: Sizes = SIZES, **changes: Any
) -> Any:
    """Return a small reward model of these files."""
    cfg = dict(type=kind, data_path=path, hidden_size_list=[8], batch_size=16, pretrain_updates=20)
    cfg |= dict(min_snippet_length=2, max_snippet_length=6)
    return create_reward_model({**cfg, **changes}, sizes, seed=seed, rng=np.random.default_rng(seed), mean=mean)
