"""Temporal-difference targets and soft values."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Categorical

from ding_like.rl_utils.td import entropy_of, legal_value, log_softmax, nstep_td_target, soft_value


def test_target_bootstraps_unless_terminated():
    # 1 + 0.5 * 4 = 3; the terminated row keeps its reward, whatever its next value is.
    reward, next_value = torch.tensor([1.0, 1.0]), torch.tensor([4.0, float("nan")])

    target = nstep_td_target(
        reward, next_value, discount=torch.tensor([0.5, 0.5]), terminated=torch.tensor([False, True])
    )

    assert target.tolist() == [3.0, 1.0]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 9), st.integers(1, 5))
def test_double_q_learning_reads_the_target_network_at_the_online_choice(seed, num_rows, num_actions):
    online, target = torch.from_numpy(np.random.default_rng(seed).normal(size=(2, num_rows, num_actions)))

    result = legal_value(online, target, None)

    expected = [target[i][online[i].tolist().index(max(online[i].tolist()))].item() for i in range(num_rows)]
    assert result.tolist() == expected


ALPHA = 0.3


def draw(rows: int = 6, actions: int = 4) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return logits, values and masks [B, A]; every row allows at least one action."""
    generator = torch.Generator().manual_seed(0)
    logit, q = (torch.randn(rows, actions, generator=generator, dtype=torch.float64) for _ in range(2))
    mask = torch.rand(rows, actions, generator=generator) < 0.5
    mask[:, 1] = True
    return logit, q, mask


def test_the_worked_example():
    log_pi = torch.tensor([[0.5, 0.5]]).log()

    assert float(soft_value(log_pi, torch.tensor([[1.0, 3.0]]), alpha=0.1)) == pytest.approx(2 + 0.1 * math.log(2))


@pytest.mark.parametrize("is_masked", [False, True])
def test_values_and_entropies_equal_a_slow_walk_over_rows_and_legal_actions(is_masked):
    logit, q, mask = draw()
    log_pi = log_softmax(logit, mask if is_masked else None)

    values, entropies = soft_value(log_pi, q, alpha=ALPHA), entropy_of(log_pi)

    for row in range(len(logit)):
        legal = [a for a in range(4) if mask[row, a] or not is_masked]
        pi = Categorical(logits=logit[row, legal])
        expected = sum(
            float(pi.probs[i]) * (float(q[row, a]) - ALPHA * math.log(float(pi.probs[i]))) for i, a in enumerate(legal)
        )
        assert float(values[row]) == pytest.approx(expected, abs=1e-9)
        assert float(entropies[row]) == pytest.approx(float(pi.entropy()), abs=1e-9)


def test_gradients_equal_finite_differences():
    logit, q, mask = draw()
    logit.requires_grad_()

    assert torch.autograd.gradcheck(lambda x: soft_value(log_softmax(x, None), q, alpha=ALPHA), logit)
    assert torch.autograd.gradcheck(lambda x: soft_value(log_softmax(x, mask), q, alpha=ALPHA), logit)
    assert torch.autograd.gradcheck(lambda x: entropy_of(log_softmax(x, mask)), logit)


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_what_is_forbidden_changes_nothing_whatever_its_value(bad):
    logit, q, mask = draw()
    logit.requires_grad_()
    other = q.masked_fill(~mask, bad)

    value = soft_value(log_softmax(logit, mask), other, alpha=ALPHA)
    (gradient,) = torch.autograd.grad(value.sum(), logit)

    assert torch.equal(value, soft_value(log_softmax(logit, mask), q, alpha=ALPHA))
    assert gradient.isfinite().all() and not gradient[~mask].any() and gradient[mask].any()


def test_a_mask_may_be_of_numbers_and_in_another_shape():
    logit, _, mask = draw()

    assert torch.equal(log_softmax(logit, mask.to(torch.int8).reshape(6, 2, 2)), log_softmax(logit, mask))


def test_a_policy_that_is_certain_has_a_finite_value():
    value = soft_value(log_softmax(torch.tensor([[1000.0, -1000.0]]), None), torch.tensor([[2.0, 5.0]]), alpha=1.0)

    assert value.item() == 2.0
