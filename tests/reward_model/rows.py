"""Batches for reward models, one step of a learner, and two learners: what the tests of all of them share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ding_like.data.batch import TransitionBatch
from ding_like.reward_model.base import MeanOfLearners, Sizes

OBS, ACTIONS, ROWS = 3, 4, 12
DISCRETE = Sizes(OBS, ACTIONS, True)
BOX = Sizes(OBS, 2, False)
SEVERAL = Sizes(OBS, [3, 2], True)


def actions_of(sizes: Sizes, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return random actions of a shape."""
    if not sizes.is_discrete:
        return rng.normal(size=(*shape, sizes.action_size)).astype(np.float32)
    each = [rng.integers(0, choices, shape) for choices in sizes.choices]
    return each[0] if len(each) == 1 else np.stack(each, axis=-1)


def rows_of(seed: int = 0, sizes: Sizes = DISCRETE, rows: int = ROWS) -> TransitionBatch:
    """Return rows that are single transitions."""
    rng = np.random.default_rng(seed)
    return TransitionBatch(
        {
            "obs": rng.normal(2.0, 3.0, (rows, OBS)).astype(np.float32),
            "next_obs": rng.normal(2.0, 3.0, (rows, OBS)).astype(np.float32),
            "action": actions_of(sizes, (rows,), rng),
            "reward": rng.normal(size=rows).astype(np.float32),
            "terminated": rng.random(rows) < 0.2,
        }
    )


def sequences_of(
    seed: int = 0, sizes: Sizes = DISCRETE, *, rows: int = 4, steps: int = 6, burn_in: int = 1
) -> TransitionBatch:
    """Return rows that are sequences, some of which go beyond their episode and some of which begin it."""
    rng = np.random.default_rng(seed)
    num_steps = np.where(np.arange(rows) % 2 == 0, steps, steps - 2)
    valid = np.arange(steps) < num_steps[:, None]
    mask = valid.copy()
    mask[1:, :burn_in] = False
    obs = rng.integers(0, 3, (rows, steps + 1, OBS)).astype(np.float32)  # some of them again and again
    obs[np.arange(steps + 1) > num_steps[:, None]] = 0
    reward = rng.normal(size=(rows, steps)).astype(np.float32)
    return TransitionBatch(
        {
            "obs": obs,
            "action": actions_of(sizes, (rows, steps), rng),
            "reward": np.where(valid, reward, np.float32(0)),
            "terminated": np.zeros((rows, steps), bool),
            "mask": mask,
            "num_steps": num_steps,
        }
    )


def one_hot(action: Any, sizes: Sizes) -> Tensor:
    """Return an action as networks take it, written out."""
    if not sizes.is_discrete:
        return torch.tensor(action)
    parts = []
    for choice, number in zip(np.atleast_1d(action), sizes.choices, strict=True):
        part = [0.0] * number
        part[int(choice)] = 1.0
        parts += part
    return torch.tensor(parts)


def step(model: Any, batch: TransitionBatch) -> TransitionBatch:
    """Do what a learner does with each batch."""
    model.collect(batch)
    model.train()
    found: TransitionBatch = model.estimate(batch)
    return found


def means_of_two() -> list[MeanOfLearners]:
    """Return what gives each of two learners, which are threads, the mean of their vectors."""
    barrier, sent = threading.Barrier(2, timeout=30), [torch.zeros(0), torch.zeros(0)]

    def mean_of(rank: int) -> MeanOfLearners:
        def mean(values: Tensor) -> Tensor:
            sent[rank] = values.clone()
            barrier.wait()
            found = (sent[0] + sent[1]) / 2
            barrier.wait()
            return found

        return mean

    return [mean_of(0), mean_of(1)]


def run_two(learn: Callable[[int], object]) -> None:
    """Call `learn` with the rank of each of two learners, at once."""
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(learn, range(2)))
