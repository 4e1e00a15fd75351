"""Gradients with importance weights: by hand and by autograd, both equal to a slow walk over rows in float64."""

import copy
from itertools import product

import numpy as np
import pytest
import torch

from tests.contracts.policy_cases import CASES, make, rows_of
from tests.policy.test_dqn import make_batch, make_policy, masked

ROWS = 16


def weighted(seed: int = 0):
    """Return n-step rows with discounts and weights that differ from row to row, one of them 0."""
    batch = make_batch(ROWS, seed=seed)
    rng = np.random.default_rng(100 + seed)
    return batch.with_columns(
        weight=np.linspace(0.0, 2.0, ROWS).astype(np.float32)[rng.permutation(ROWS)],
        discount=rng.choice([0.97, 0.97**2, 0.97**3], ROWS).astype(np.float32),
        reward=(3.0 * rng.normal(size=ROWS)).astype(np.float32),  # on both sides of Huber's corner
    )


def make_dqn(*, backend, double, loss, dueling=True):
    policy = make_policy(
        priority=True,
        priority_IS_weight=True,
        nstep=3,
        double=double,
        learn=dict(loss=loss, backend=backend),
        model=dict(dueling=dueling),
    )
    assert (policy._by_hand is not None) == (backend == "auto")
    generator = torch.Generator().manual_seed(3)
    target = policy._target_params.data_vector
    target.add_(0.3 * torch.randn(target.shape, generator=generator))
    return policy


def slow_gradient(policy, batch, *, double, loss):
    """Return the gradient of the weighted loss and the TD errors, row by row in float64, without policy code."""
    model, target = copy.deepcopy(policy._model).double(), copy.deepcopy(policy._target_model).double()
    for parameter in model.parameters():
        parameter.grad = None
    total, errors = 0.0, []
    for row in batch:
        obs, next_obs = (torch.tensor(row[name], dtype=torch.float64)[None] for name in ("obs", "next_obs"))
        with torch.no_grad():
            judge = (model if double else target).q(next_obs)[0]
            value = float(target.q(next_obs)[0, int(judge.argmax())])
        y = float(row["reward"]) + (0.0 if row["terminated"] else float(row["discount"]) * value)
        error = model.q(obs)[0, int(row["action"])] - y
        size = error.abs()
        each = error**2 if loss == "mse" else 0.5 * error**2 if float(size.detach()) <= 1.0 else size - 0.5
        total = total + float(row["weight"]) * each / len(batch)
        errors.append(float(size.detach()))
    total.backward()
    return torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()]), float(total.detach()), errors


@pytest.mark.parametrize(
    ("backend", "double", "loss", "dueling"),
    list(product(["auto", "autograd"], [True, False], ["huber", "mse"], [True, False])),
)
def test_dqn_equals_a_slow_walk(backend, double, loss, dueling):
    policy = make_dqn(backend=backend, double=double, loss=loss, dueling=dueling)
    batch = weighted()

    info, priority = policy.grad(batch)

    gradient, total, errors = slow_gradient(policy, batch, double=double, loss=loss)
    torch.testing.assert_close(policy._params.grad_vector.double(), gradient, rtol=1e-4, atol=1e-6)
    assert float(info["total_loss"]) == pytest.approx(total, rel=1e-5)
    # Priorities are errors, not weighted ones.
    np.testing.assert_allclose(priority, errors, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("double", "loss"), list(product([True, False], ["huber", "mse"])))
@pytest.mark.parametrize("with_mask", [False, True])
def test_both_backends_of_dqn_have_one_gradient(double, loss, with_mask):
    policies = [make_dqn(backend=backend, double=double, loss=loss) for backend in ("auto", "autograd")]
    for seed in range(5):
        batch = masked(weighted(seed), seed=seed) if with_mask else weighted(seed)
        for policy in policies:
            policy.grad(batch)
        vectors = [policy.grad_vectors()[0] for policy in policies]
        torch.testing.assert_close(vectors[0], vectors[1], rtol=1e-4, atol=1e-6)
        assert vectors[0].any()


def test_the_weights_and_double_matter_to_the_gradient():
    batch, vectors = weighted(), []
    for double, weight in product([True, False], [batch["weight"], np.ones(ROWS, np.float32)]):
        policy = make_dqn(backend="auto", double=double, loss="mse")
        policy.grad(batch.with_columns(weight=weight))
        vectors.append(policy.grad_vectors()[0].clone())

    for first in range(4):
        for second in range(first):
            assert (vectors[first] - vectors[second]).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["ppo", "ppo several", "ppo box"])
@pytest.mark.parametrize("value_norm", [False, True])
def test_both_backends_of_ppo_have_one_gradient(name, value_norm):
    learn = dict(value_norm=value_norm, entropy_weight=0.1, dual_clip=1.5, value_clip=0.1)
    policies = [make(CASES[name], learn=dict(learn, backend=backend)) for backend in ("auto", "autograd")]
    assert [policy._learns_by_hand for policy in policies] == [True, False]
    batch = rows_of(CASES[name], policies[0], masked=name != "ppo box")
    rng = np.random.default_rng(0)
    # Old rows: ratios on both sides of the clip.
    batch = batch.with_columns(log_prob=batch["log_prob"] + rng.normal(scale=0.3, size=len(batch)).astype(np.float32))

    for policy in policies:
        policy.grad(next(iter(policy.minibatches(batch, np.random.default_rng(0)))))

    vectors = [policy.grad_vectors()[0] for policy in policies]
    torch.testing.assert_close(vectors[0], vectors[1], rtol=1e-3, atol=1e-5)
    assert vectors[0].any()
