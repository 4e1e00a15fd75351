"""The losses of PPO against a slow walk over rows."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ding_like.errors import SchemaError
from ding_like.rl_utils.policy_gradient import (
    RunningStd,
    normalise,
    ppo_policy_loss,
    ppo_policy_loss_by_hand,
    ppo_value_loss,
    ppo_value_loss_by_hand,
)

SEEDS = st.integers(0, 2**31)
ROWS = st.integers(1, 12)


def tensors(seed: int, rows: int, *, scale: float = 1.0, num: int = 3):
    return (torch.from_numpy(scale * x) for x in np.random.default_rng(seed).normal(size=(num, rows)))


@given(SEEDS, ROWS, st.floats(0.05, 0.5), st.one_of(st.none(), st.floats(1.1, 4.0)))
def test_policy_loss_equals_a_slow_walk_over_rows(seed, rows, clip, dual_clip):
    log_prob, old, advantage = tensors(seed, rows)

    result = ppo_policy_loss(log_prob, old, advantage, clip_ratio=clip, dual_clip=dual_clip)

    losses, kls, clipped = [], [], []
    for new_log, old_log, adv in zip(log_prob.tolist(), old.tolist(), advantage.tolist(), strict=True):
        ratio = math.exp(new_log - old_log)
        gain = min(ratio * adv, min(max(ratio, 1 - clip), 1 + clip) * adv)
        if dual_clip is not None and adv < 0:
            gain = max(gain, dual_clip * adv)
        losses.append(-gain)
        kls.append(ratio - 1 - (new_log - old_log))
        clipped.append(abs(ratio - 1) > clip)
    assert float(result.loss) == pytest.approx(np.mean(losses), abs=1e-6)
    assert float(result.approx_kl) == pytest.approx(np.mean(kls), abs=1e-6)
    assert float(result.clip_fraction) == pytest.approx(np.mean(clipped), abs=1e-6)


@given(SEEDS, ROWS, st.floats(0.05, 0.5), st.one_of(st.none(), st.floats(1.1, 4.0)))
def test_policy_loss_by_hand_equals_autograd(seed, rows, clip, dual_clip):
    log_prob, old, advantage = tensors(seed, rows)
    log_prob.requires_grad_()
    expected = ppo_policy_loss(log_prob, old, advantage, clip_ratio=clip, dual_clip=dual_clip)
    expected.loss.backward()

    arrays = log_prob.detach().numpy(), old.numpy(), advantage.numpy()
    policy, approx_kl, clip_fraction = ppo_policy_loss_by_hand(*arrays, clip_ratio=clip, dual_clip=dual_clip)

    assert policy.loss == pytest.approx(float(expected.loss.detach()), abs=1e-6)
    assert approx_kl == pytest.approx(float(expected.approx_kl), abs=1e-6)
    assert clip_fraction == pytest.approx(float(expected.clip_fraction), abs=1e-6)
    np.testing.assert_allclose(policy.grad, log_prob.grad, atol=1e-6)


@given(SEEDS, ROWS, st.one_of(st.none(), st.floats(0.05, 1.0)))
def test_value_loss_by_hand_equals_autograd(seed, rows, clip):
    value, return_, old = tensors(seed, rows)
    value.requires_grad_()
    expected = ppo_value_loss(value, return_, old_value=old, value_clip=clip)
    expected.backward()

    critic = ppo_value_loss_by_hand(value.detach().numpy(), return_.numpy(), old_value=old.numpy(), value_clip=clip)

    assert critic.loss == pytest.approx(float(expected.detach()), abs=1e-6)
    np.testing.assert_allclose(critic.grad, value.grad, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("ratio", "advantage", "dual_clip", "loss", "moves"),
    [
        (1.5, 2.0, None, -2.4, False),  # clipped at 1.2: no more gain from going on
        (1.5, -2.0, None, 3.0, True),  # it made it worse: nothing limits the way back
        (0.5, 2.0, None, -1.0, True),
        (0.5, -2.0, None, 1.6, False),  # clipped at 0.8
        (1.1, 2.0, None, -2.2, True),
        (9.0, -2.0, 3.0, 6.0, False),  # dual clip: 3 * 2, not 9 * 2
        (2.0, -2.0, 3.0, 4.0, True),
    ],
)
def test_worked_examples_with_clip_ratio_a_fifth(ratio, advantage, dual_clip, loss, moves):
    log_prob = torch.tensor([math.log(ratio)], requires_grad=True)

    result = ppo_policy_loss(log_prob, torch.zeros(1), torch.tensor([advantage]), clip_ratio=0.2, dual_clip=dual_clip)
    result.loss.backward()

    assert float(result.loss.detach()) == pytest.approx(loss, rel=1e-5)
    assert (float(log_prob.grad) != 0) == moves


@given(SEEDS, ROWS, st.one_of(st.none(), st.floats(0.05, 1.0)))
def test_value_loss_equals_a_slow_walk_over_rows(seed, rows, clip):
    value, return_, old = tensors(seed, rows)

    loss = ppo_value_loss(value, return_, old_value=old, value_clip=clip)

    errors = []
    for v, target, before in zip(value.tolist(), return_.tolist(), old.tolist(), strict=True):
        error = (v - target) ** 2
        if clip is not None:
            limited = before + min(max(v - before, -clip), clip)
            error = max(error, (limited - target) ** 2)
        errors.append(error)
    assert float(loss) == pytest.approx(np.mean(errors), abs=1e-6)


def test_a_clipped_value_takes_no_step_beyond_the_clip():
    # From 0 towards 2, already at 1 with a clip of 0.5: the clipped value 0.5 is worse (2.25 against 1) and constant.
    value = torch.tensor([1.0], requires_grad=True)

    loss = ppo_value_loss(value, torch.tensor([2.0]), old_value=torch.zeros(1), value_clip=0.5)
    loss.backward()

    assert float(loss.detach()) == pytest.approx(2.25)
    assert float(value.grad) == 0.0


@pytest.mark.parametrize("kind", [torch.tensor, np.array])
def test_normalised_numbers_have_mean_0_and_deviation_1(kind):
    # Mean 3 and squared deviations 4 1 0 9: deviation sqrt(14 / 4).
    x = normalise(kind([1.0, 2.0, 3.0, 6.0]))

    assert x.tolist() == pytest.approx([-1.0690, -0.5345, 0.0, 1.6036], abs=1e-4)
    assert normalise(kind([7.0])).tolist() == [0.0]


@given(SEEDS, st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_running_deviation_is_that_of_everything_seen(seed, sizes):
    rng, running = np.random.default_rng(seed), RunningStd()
    parts = [rng.normal(3.0, 2.0, size) for size in sizes]
    for part in parts:
        running.update(part)

    everything = np.concatenate(parts)
    again = RunningStd()
    again.load_state_dict(running.state_dict())
    assert again.std == running.std

    assert running.std == pytest.approx(everything.std() if len(everything) > 1 else 1.0)


def test_running_deviation_is_1_before_the_first_number_and_among_equal_ones():
    running = RunningStd()
    assert running.std == 1.0

    running.update(np.full(5, 3.0))

    assert running.std == 1.0


@pytest.mark.parametrize("name", ["old_log_prob", "advantage"])
def test_a_column_of_columns_is_refused(name):
    columns = dict(old_log_prob=torch.zeros(4), advantage=torch.zeros(4))
    columns[name] = torch.zeros(4, 1)

    with pytest.raises(SchemaError, match=rf"{name} has shape \(4, 1\)"):
        ppo_policy_loss(torch.zeros(4), **columns, clip_ratio=0.2)


def test_values_of_another_shape_are_refused():
    with pytest.raises(SchemaError, match=r"return_ has shape \(4,\) beside \(4, 1\)"):
        ppo_value_loss(torch.zeros(4, 1), torch.zeros(4), old_value=torch.zeros(4))
