"""The random numbers of a gradient in the frame of value-based policies: the same until the update is applied."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.config import deep_merge, to_plain
from ding_like.data.batch import TransitionBatch
from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.share import Share


class DrawingPolicy(DQNPolicy):
    """Scale each row's prediction by a number that is drawn for it."""

    _draws = True

    def _chosen(self, rows: TransitionBatch) -> Any:
        chosen, values = super()._chosen(rows)
        return chosen * self._uniform_rows(len(rows), 1).squeeze(1), values


def make_policy(cls: type[DQNPolicy] = DrawingPolicy) -> DQNPolicy:
    torch.manual_seed(0)
    cfg = to_plain(cls.default_config())
    model = dict(obs_shape=3, action_shape=4, encoder_hidden_size_list=[8, 8])
    return cls(deep_merge(cfg, dict(model=model)))


def make_batch(rows: int = 16) -> TransitionBatch:
    rng = np.random.default_rng(0)
    return TransitionBatch(
        {
            "obs": rng.normal(size=(rows, 3)).astype(np.float32),
            "next_obs": rng.normal(size=(rows, 3)).astype(np.float32),
            "action": rng.integers(0, 4, rows),
            "reward": rng.normal(size=rows).astype(np.float32),
            "terminated": rng.random(rows) < 0.3,
        }
    )


def gradient(policy: DQNPolicy, batch: TransitionBatch) -> torch.Tensor:
    policy.grad(batch)
    return policy.grad_vectors()[0].clone()


def test_numbers_are_drawn_again_only_after_the_update_was_applied():
    policy, batch = make_policy(), make_batch()

    first, again = gradient(policy, batch), gradient(policy, batch)
    numbers = policy._uniform_rows(4, 2)
    policy.apply()
    policy._noise.begin()

    assert torch.equal(first, again)
    assert numbers.shape == (4, 2) and 0 <= numbers.min() and numbers.max() < 1
    assert not torch.equal(policy._uniform_rows(16, 1), make_policy()._uniform_rows(16, 1))


def test_a_checkpoint_goes_on_with_the_same_numbers():
    policy, batch = make_policy(), make_batch()
    policy.grad(batch)
    policy.apply()
    other = make_policy()

    other.learn_mode.load_state_dict(copy.deepcopy(policy.learn_mode.state_dict()))

    assert torch.equal(gradient(policy, batch), gradient(other, batch))


def test_learners_draw_for_the_whole_batch_and_take_their_rows():
    alone, pair = make_policy(), [make_policy(), make_policy()]
    for rank, policy in enumerate(pair):
        policy.set_share(Share(rank, 2))

    whole = alone._uniform_rows(16, 3)

    assert torch.equal(torch.cat([policy._uniform_rows(8, 3) for policy in pair]), whole)


@pytest.mark.parametrize("where", ["state_dict", "grad_state"])
def test_a_policy_that_draws_nothing_saves_nothing_of_it(where):
    policy = make_policy(DQNPolicy)

    state = policy.learn_mode.state_dict() if where == "state_dict" else policy.grad_state()["parts"]["numbers"]

    wanted = {"state_dict": {"model", "target_model", "optimizer", "num_updates"}, "grad_state": {"learning_rates"}}
    assert set(state) == wanted[where]
