"""Small reward models of exploration bonuses: what their tests share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ding_like.data.batch import TransitionBatch
from ding_like.reward_model import create_reward_model
from ding_like.reward_model.base import Sizes
from tests.reward_model.rows import DISCRETE, means_of_two, run_two, step


def make(kind: str, sizes: Sizes = DISCRETE, *, seed: int = 0, mean: Any = None, **changes: Any) -> Any:
    """Return a small reward model."""
    cfg: dict[str, Any] = {**dict(type=kind, hidden_size_list=[8, 5], batch_size=16, update_per_collect=2), **changes}
    return create_reward_model(cfg, sizes, seed=seed, rng=np.random.default_rng(seed), mean=mean)


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
    models = [make(kind, mean=mean, **changes) for mean in means_of_two()]
    run_two(lambda rank: step(models[rank], batches[rank]))
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
