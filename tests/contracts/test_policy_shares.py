"""Two learners that share the rows of every minibatch learn what one learner with all of them learns."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.data.batch import TransitionBatch
from ding_like.policy import Policy
from ding_like.policy.sharing import Share
from tests.contracts.grad_cases import GRAD_CASES, GRAD_PARAMS, batches_of, rng_of
from tests.contracts.policy_cases import make, tensors_of

UPDATES = 5


def reduce(policies: list[Policy]) -> None:
    """Do what the learners of a group do between grad and apply."""
    for vectors in zip(*(policy.grad_vectors() for policy in policies), strict=True):
        mean = sum(policy.grad_weight() * vector for policy, vector in zip(policies, vectors, strict=True))
        for vector in vectors:
            vector.copy_(mean)


def learn(policies: list[Policy], batch: TransitionBatch, number: int) -> Iterator[list[Any]]:
    """Train as one and yield what each learner reports of every update; one learner is a group too."""
    shares = [batch] * len(policies)
    if not policies[0].takes_whole_batches:
        rows = len(batch) // len(policies)
        shares = [batch[rank * rows : (rank + 1) * rows] for rank in range(len(policies))]
    minibatches = [p.minibatches(share, rng_of(number)) for p, share in zip(policies, shares, strict=True)]
    for parts in zip(*minibatches, strict=True):
        reports = [policy.grad(part) for policy, part in zip(policies, parts, strict=True)]
        reduce(policies)
        for policy in policies:
            policy.apply()
        yield reports


def even(batch: TransitionBatch) -> TransitionBatch:
    return batch[: len(batch) // 2 * 2]


@pytest.mark.parametrize("name", GRAD_PARAMS)
def test_two_learners_with_half_of_the_rows_learn_what_one_does(name: str) -> None:
    case = GRAD_CASES[name]
    source, alone, pair = make(case), make(case), [make(case), make(case)]
    for rank, policy in enumerate(pair):
        policy.set_share(Share(rank, 2))
    before = copy.deepcopy(alone.learn_mode.state_dict()["model"])

    updates = 0
    for number, batch in enumerate(islice(batches_of(case, source), UPDATES)):
        # Rows that cannot be halved are for policies that share minibatches.
        rows = batch if alone.takes_whole_batches else even(batch)
        one = learn([alone], rows, number)
        for (wanted,), ours in zip(one, learn(pair, rows, number), strict=True):
            if wanted[1] is not None:
                priority = np.concatenate([report[1] for report in ours])
                np.testing.assert_allclose(priority, wanted[1], atol=1e-5)
            updates += 1
        if updates >= UPDATES:
            break

    wanted_state = tensors_of(alone.learn_mode.state_dict())
    states = [tensors_of(policy.learn_mode.state_dict()) for policy in pair]
    for path, value in wanted_state.items():
        first, second = (state[path] for state in states)
        if not isinstance(value, torch.Tensor):
            assert first == second == value, path
            continue
        assert torch.equal(first, second), f"{path}: the learners differ"
        # Sums of the same terms in another order: how far apart they are goes by the largest. Weights are below 1.
        atol = 1e-6 * max(1.0, float(value.abs().max()) if value.numel() else 0.0)
        torch.testing.assert_close(first, value, rtol=1e-6, atol=atol, msg=lambda text, path=path: f"{path}: {text}")
    after = alone.learn_mode.state_dict()["model"]
    assert max(float((after[name] - before[name]).abs().max()) for name in before) > 1e-4, "it learned"


@pytest.mark.parametrize(("rows", "num_learners"), [(7, 2), (8, 3), (2, 3), (1, 2)])
def test_shares_have_every_row_and_weights_of_one(rows: int, num_learners: int) -> None:
    shares = [Share(rank, num_learners) for rank in range(num_learners)]
    values = np.arange(rows) ** 2.0

    mean = sum(share.weight(rows) * values[share.of(rows)].mean() for share in shares)

    assert mean == pytest.approx(values.mean())
    assert sum(share.weight(rows) for share in shares) == pytest.approx(1)
