"""TD targets and losses against slow obvious versions."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ding_like.errors import ConfigError, SchemaError
from ding_like.rl_utils.td import double_q_value, nstep_td_target
from ding_like.rl_utils.value_family import RowLoss, ScalarValue, weighted_mean


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
def test_double_q_value_reads_the_target_network_at_the_online_choice(seed, num_rows, num_actions):
    online, target = torch.from_numpy(np.random.default_rng(seed).normal(size=(2, num_rows, num_actions)))

    result = double_q_value(online, target)

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
