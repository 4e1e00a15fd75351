"""Temporal-difference targets, soft values and the rescaling of values."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Categorical

from ding_like.errors import ConfigError, SchemaError
from ding_like.rl_utils.td import entropy_of, legal_value, log_softmax, nstep_td_target, soft_value
from ding_like.rl_utils.value_family import (
    RescaledValue,
    RowLoss,
    ScalarValue,
    value_rescale,
    value_unscale,
    weighted_mean,
)


def q_td_error(q, action, target, *, weight=None, loss="huber", delta=1.0):
    """Return (mean loss, priorities [B]) as a TD update computes them."""
    family = ScalarValue(loss, delta=delta)
    each = family.loss(family.of_action(q, action), target)
    return RowLoss(weighted_mean(each.loss, weight), each.priority)


def slow_loss(error, loss, delta):
    if loss == "mse":
        return error**2
    return error**2 / 2 if abs(error) <= delta else delta * (abs(error) - delta / 2)


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 2**31),
    st.integers(1, 9),
    st.integers(1, 5),
    st.sampled_from(["huber", "mse"]),
    st.booleans(),
    st.sampled_from([0.5, 1.0]),
)
def test_q_td_error_equals_the_mean_over_rows(seed, num_rows, num_actions, loss, weighted, delta):
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(num_rows, num_actions)).astype(np.float32)
    action = rng.integers(0, num_actions, size=num_rows)
    target, weight = rng.normal(size=(2, num_rows)).astype(np.float32)

    result = q_td_error(
        torch.from_numpy(q),
        torch.from_numpy(action),
        torch.from_numpy(target),
        weight=torch.from_numpy(weight) if weighted else None,
        loss=loss,
        delta=delta,
    )

    errors = [float(q[i, action[i]]) - float(target[i]) for i in range(num_rows)]
    factors = weight.tolist() if weighted else [1.0] * num_rows
    expected = sum(f * slow_loss(e, loss, delta) for f, e in zip(factors, errors, strict=True)) / num_rows
    assert result.loss.item() == pytest.approx(expected, rel=1e-5, abs=1e-6)
    np.testing.assert_allclose(result.priority.numpy(), np.abs(errors), rtol=1e-5, atol=1e-6)


def test_q_td_error_of_the_worked_example():
    # Errors 0.5 and 3: huber with delta 1 gives 0.125 and 3 - 0.5, mean 1.3125.
    q = torch.tensor([[0.5, 9.0], [9.0, 3.0]])

    result = q_td_error(q, torch.tensor([0, 1]), torch.zeros(2))

    assert result.loss.item() == 1.3125
    assert result.priority.tolist() == [0.5, 3.0]


def test_gradient_reaches_chosen_actions_only_and_never_the_target():
    q = torch.tensor([[0.5, 9.0], [9.0, 0.25]], requires_grad=True)
    target = torch.zeros(2, requires_grad=True)

    result = q_td_error(q, torch.tensor([0, 1]), target)
    result.loss.backward()

    assert q.grad.tolist() == [[0.25, 0.0], [0.0, 0.125]]
    assert target.grad is None
    assert not result.priority.requires_grad


@pytest.mark.parametrize("name", ["action", "target", "weight"])
def test_q_td_error_refuses_a_trailing_axis(name):
    rows = {"action": torch.zeros(3, dtype=torch.int64), "target": torch.zeros(3), "weight": torch.ones(3)}
    rows[name] = rows[name].unsqueeze(1)

    with pytest.raises(SchemaError, match=rf"{name} has shape \(3, 1\), expected \(3,\)"):
        q_td_error(torch.zeros(3, 2), rows["action"], rows["target"], weight=rows["weight"])


def test_q_td_error_names_the_losses_it_knows():
    with pytest.raises(ConfigError, match="'l3'; expected 'huber' or 'mse'"):
        q_td_error(torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64), torch.zeros(1), loss="l3")


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


@pytest.mark.parametrize(
    ("loss", "is_weighted", "delta"),
    [("huber", True, 1.0), ("huber", False, 0.3), ("mse", True, 1.0), ("mse", False, 1.0)],
)
def test_the_loss_by_hand_equals_autograds(loss, is_weighted, delta):
    rng = np.random.default_rng(0)
    q = rng.normal(size=(6, 3)).astype(np.float32)
    action = rng.integers(3, size=6)
    # Errors on both sides of both deltas.
    target = q[np.arange(6), action] + np.array([-2.0, -0.5, -0.1, 0.1, 0.5, 2.0], np.float32)
    weight = rng.uniform(0.1, 1.0, 6).astype(np.float32) if is_weighted else None
    leaf = torch.from_numpy(q.copy()).requires_grad_()
    expected = q_td_error(
        leaf,
        torch.from_numpy(action),
        torch.from_numpy(target),
        weight=None if weight is None else torch.from_numpy(weight),
        loss=loss,
        delta=delta,
    )
    expected.loss.backward()

    value, grad, errors = ScalarValue(loss, delta=delta).loss_by_hand(q, action, target, weight=weight)

    np.testing.assert_allclose(value, expected.loss.item(), rtol=1e-6)
    np.testing.assert_allclose(grad, leaf.grad.numpy(), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(errors, expected.priority.numpy(), rtol=1e-6)


def test_weights_multiply_the_slope_of_their_rows():
    # Two rows, mse: slopes 2, 4 times weights 0.5, 0.25 over 2 rows are 0.5, 0.5; loss (0.5 * 1 + 0.25 * 4) / 2.
    q = np.array([[1.0, 0.0], [0.0, 2.0]], np.float32)

    value, grad, errors = ScalarValue("mse").loss_by_hand(
        q, np.array([0, 1]), np.zeros(2, np.float32), weight=np.array([0.5, 0.25], np.float32)
    )

    assert (value, errors.tolist()) == (0.75, [1.0, 2.0])
    assert grad.tolist() == [[0.5, 0.0], [0.0, 0.5]]


def test_a_team_of_actions_is_read_agent_by_agent():
    values = torch.arange(12.0).view(2, 3, 2)

    chosen = ScalarValue("mse").of_action(values, torch.tensor([[0, 1, 0], [1, 1, 0]]))

    assert chosen.tolist() == [[0.0, 3.0, 4.0], [7.0, 9.0, 10.0]]


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


def test_rescaled_values_are_those_of_the_paper() -> None:
    x = torch.tensor([-8.0, -0.5, 0.0, 3.0, 100.0], dtype=torch.float64)

    expected = [math.copysign(math.sqrt(abs(v) + 1) - 1, v) + 1e-2 * v for v in x.tolist()]

    torch.testing.assert_close(value_rescale(x, 1e-2), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("eps", [1e-3, 1e-2])
def test_unscaling_is_the_inverse_over_many_orders_of_magnitude(eps: float) -> None:
    size = torch.logspace(-6, 6, 200, dtype=torch.float64)
    x = torch.cat([-size, torch.zeros(1, dtype=torch.float64), size])

    torch.testing.assert_close(value_unscale(value_rescale(x, eps), eps), x, rtol=1e-9, atol=1e-12)


def test_unscaling_keeps_its_digits_in_float32() -> None:
    x = torch.linspace(-3, 3, 301)

    torch.testing.assert_close(value_unscale(value_rescale(x)), x, rtol=1e-6, atol=1e-6)


def test_a_target_is_backed_up_on_the_scale_of_returns() -> None:
    reward, next_value = torch.tensor([1.0, 1.0]), value_rescale(torch.tensor([10.0, 10.0]))

    target = RescaledValue().backup(reward, next_value, discount=0.5, terminated=torch.tensor([False, True]))

    torch.testing.assert_close(target, value_rescale(torch.tensor([6.0, 1.0])))
