"""Small reward models of exploration bonuses, and batches for them: what their tests share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ding_like.data.batch import TransitionBatch
from ding_like.reward_model import create_reward_model
from ding_like.reward_model.base import Sizes

OBS, ACTIONS, ROWS = 3, 4, 12
DISCRETE = Sizes(OBS, ACTIONS, True)
BOX = Sizes(OBS, 2, False)
SEVERAL = Sizes(OBS, [3, 2], True)


def make(kind: str, sizes: Sizes = DISCRETE, *, seed: int = 0, mean: Any = None, **changes: Any) -> Any:
    """Return a small reward model."""
    cfg: dict[str, Any] = {**dict(type=kind, hidden_size_list=[8, 5], batch_size=16, update_per_collect=2), **changes}
    return create_reward_model(cfg, sizes, seed=seed, rng=np.random.default_rng(seed), mean=mean)


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


class Seen:
    """Running moments of numbers, kept as the numbers themselves."""

    def __init__(self) -> None:
        self.seen: list[np.ndarray] = []

    def add(self, values: np.ndarray) -> None:
        self.seen.append(np.asarray(values, np.float64))

    @property
    def mean(self) -> Any:
        return np.concatenate(self.seen).mean(axis=0)

    @property
    def std(self) -> Any:
        return np.concatenate(self.seen).std(axis=0)


def two_learners(kind: str, batches: Sequence[TransitionBatch], **changes: Any) -> list[Any]:
    """Return the models of two learners that have each learned from a batch of its own, as threads do."""
    barrier, sent = threading.Barrier(2, timeout=30), [torch.zeros(0), torch.zeros(0)]

    def mean_of(rank: int) -> Callable[[Tensor], Tensor]:
        def mean(values: Tensor) -> Tensor:
            sent[rank] = values.clone()
            barrier.wait()
            found = (sent[0] + sent[1]) / 2
            barrier.wait()
            return found

        return mean

    models = [make(kind, mean=mean_of(rank), **changes) for rank in range(2)]
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(step, models, batches))
    return models


def assert_learners_stay_equal(kind: str, batch: Callable[[int], TransitionBatch]) -> None:
    """Hold the models of two learners to be equal, bit for bit, but not those of learners without a message."""
    one, other = (model.state_dict()["model"] for model in two_learners(kind, [batch(0), batch(1)]))
    alone = make(kind)
    step(alone, batch(0))
    for name, value in one.items():
        assert torch.equal(value, other[name]), name
    assert not all(torch.equal(value, one[name]) for name, value in alone.state_dict()["model"].items())


def assert_round_trip(kind: str, batch: Callable[[int], TransitionBatch], **changes: Any) -> None:
    """Train a model, load its state into another one, train both on: all rewards are the same, bit for bit."""
    one, other = make(kind, **changes), make(kind, seed=5, **changes)
    for number in range(3):
        step(one, batch(number))
    other.load_state_dict(one.state_dict())
    for number in range(3, 6):
        found, expected = step(other, batch(number)), step(one, batch(number))
        np.testing.assert_array_equal(found["reward"], expected["reward"])
    for name, value in one.state_dict()["model"].items():
        assert torch.equal(value, other.state_dict()["model"][name]), name


def step(model: Any, batch: TransitionBatch) -> TransitionBatch:
    """Do what a learner does with each batch."""
    model.collect(batch)
    model.train()
    found: TransitionBatch = model.estimate(batch)
    return found
