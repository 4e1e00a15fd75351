"""Rows of an expert join a policy's batches in a fixed share, drawn by a generator that is saved."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from ding_like.data.batch import TransitionBatch
from ding_like.data.expert_rows import ExpertRows
from ding_like.errors import ConfigError


def rows_of(numbers: Any, **columns: Any) -> TransitionBatch:
    """Return rows whose observations are numbers, by which they are distinguished."""
    obs = np.asarray(numbers, np.float32)
    made = {"obs": obs[:, None], "reward": np.full(len(obs), 5.0, np.float32), "terminated": np.zeros(len(obs), bool)}
    return TransitionBatch({**made, **columns})


def experts(share: float = 0.5, *, seed: int = 0, **settings: Any) -> ExpertRows:
    return ExpertRows(rows_of(range(100, 120)), share, np.random.default_rng(seed), **settings)


@pytest.mark.parametrize(("own", "share", "number"), [(8, 0.5, 8), (9, 0.25, 3), (64, 1 / 256, 1), (2, 0.9, 18)])
def test_a_batch_has_the_experts_share_behind_its_own_rows(own: int, share: float, number: int) -> None:
    rows = experts(share)

    joined = rows.join(rows_of(range(own)))

    assert len(joined) == own + number and rows.num_joined == number
    assert joined["is_expert"].tolist() == [False] * own + [True] * number
    assert joined["obs"][:own, 0].tolist() == list(range(own)) and (joined["obs"][own:] >= 100).all()


def test_rows_are_drawn_evenly_from_all_of_the_experts() -> None:
    rows = experts()

    drawn = np.concatenate([rows.join(rows_of(range(20)))["obs"][20:, 0] for _ in range(500)])

    counts = np.bincount(drawn.astype(int) - 100, minlength=20)
    assert len(counts) == 20 and counts.min() > 420 and counts.max() < 580


def test_columns_of_a_buffer_and_an_actor_are_zero_and_weights_are_one() -> None:
    own = rows_of(range(4), weight=np.full(4, 0.5, np.float32), noise=np.ones((4, 3)), replay_buffer_idx=np.arange(4))

    joined = experts().join(own)

    assert joined["weight"].tolist() == [0.5] * 4 + [1.0] * 4
    assert joined["noise"].sum() == 12 and joined["replay_buffer_idx"].tolist() == [0, 1, 2, 3, 0, 0, 0, 0]


def test_the_agents_rewards_may_be_replaced_and_its_batch_stays_as_it_was() -> None:
    own = rows_of(range(4))

    joined = experts(own_reward=0.0).join(own)

    assert joined["reward"].tolist() == [0.0] * 4 + [5.0] * 4 and own["reward"].tolist() == [5.0] * 4


def test_a_batch_of_the_experts_rows_alone_is_not_joined_again() -> None:
    rows = experts()

    alone = rows.alone(6)

    assert alone["is_expert"].all() and (alone["obs"] >= 100).all() and alone["weight"].tolist() == [1.0] * 6
    assert rows.join(alone) is alone and rows.num_joined == 6


def test_a_saved_generator_draws_the_same_rows_again() -> None:
    rows, other = experts(), experts(seed=1)
    rows.join(rows_of(range(4)))
    other.load_state_dict(copy.deepcopy(rows.state_dict()))

    assert (rows.join(rows_of(range(8)))["obs"] == other.join(rows_of(range(8)))["obs"]).all()


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, float("nan")])
def test_a_share_that_leaves_no_rows_of_one_side_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match="above 0 and below 1"):
        experts(share)


def test_rows_of_another_env_are_refused_by_their_column() -> None:
    own = rows_of(range(4), obs=np.zeros((4, 3), np.float32))

    with pytest.raises(ConfigError, match=r"column 'obs' of shape \[1\], the policy's own \[3\].*another env"):
        experts().join(own)
