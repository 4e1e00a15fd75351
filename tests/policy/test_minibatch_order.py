"""Minibatches mix the rows of a batch: their order of collection, in which neighbours are alike, is gone."""

import numpy as np
import pytest
import torch

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.policy.a2c import A2CPolicy
from ding_like.policy.ppo import PPOPolicy

ROWS = 64


def orders(cls, seed: int) -> list[list[int]]:
    """Return the rows of each epoch in the order in which they are learned from."""
    torch.manual_seed(0)
    model = dict(obs_shape=3, action_shape=3, encoder_hidden_size_list=[8])
    policy = cls(deep_merge(to_plain(cls.default_config()), dict(model=model, learn=dict(batch_size=16))))
    batch = TransitionBatch(
        {
            "obs": np.zeros((ROWS, 3), np.float32),
            "action": np.zeros(ROWS, np.int64),
            "log_prob": np.zeros(ROWS, np.float32),
            "value": np.zeros(ROWS, np.float32),
            "advantage": np.arange(ROWS, dtype=np.float32),  # tells the rows apart
            "return_": np.arange(ROWS, dtype=np.float32),
        }
    )
    rows = [
        int(number)
        for part in policy.minibatches(batch, np.random.default_rng(seed))
        for number in np.asarray(part["return_"])
    ]
    return [rows[start : start + ROWS] for start in range(0, len(rows), ROWS)]


@pytest.mark.parametrize("cls", [PPOPolicy, A2CPolicy], ids=["ppo", "a2c"])
def test_rows_of_an_epoch_are_shuffled_by_the_generator_given(cls):
    first, again, other = orders(cls, 0), orders(cls, 0), orders(cls, 1)

    assert all(sorted(epoch) == list(range(ROWS)) for epoch in first)
    neighbours = sum(abs(one - next_) == 1 for one, next_ in zip(first[0], first[0][1:], strict=False))
    assert neighbours < ROWS / 4, "about two are expected by chance, 63 in the order of collection"
    assert first == again and first != other


def test_every_epoch_has_an_order_of_its_own():
    epochs = orders(PPOPolicy, 0)

    assert len(epochs) == 10 and len({tuple(epoch) for epoch in epochs}) == 10
