"""Losses of PPO and A2C and the targets of V-trace, against slow versions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ding_like.errors import SchemaError
from ding_like.rl_utils.policy_gradient import (
    RunningStd,
    a2c_loss,
    normalise,
    ppo_policy_loss,
    ppo_policy_loss_by_hand,
    ppo_value_loss,
    ppo_value_loss_by_hand,
    vtrace,
)

SEEDS = st.integers(0, 2**31)
ROWS = st.integers(1, 12)


def tensors(seed: int, rows: int, *, scale: float = 1.0, num: int = 3):
    return (torch.from_numpy(scale * x) for x in np.random.default_rng(seed).normal(size=(num, rows)))


@given(SEEDS, ROWS, st.floats(0.05, 0.5), st.one_of(st.none(), st.floats(1.1, 4.0)), st.sampled_from([0.0, 0.7]))
def test_policy_loss_equals_a_slow_walk_over_rows_and_by_hand_autograd(seed, rows, clip, dual_clip, kl_beta):
    log_prob, old, advantage = tensors(seed, rows)
    arrays = log_prob.numpy(), old.numpy(), advantage.numpy()

    settings = dict(clip_ratio=clip, dual_clip=dual_clip, kl_beta=kl_beta)
    result = ppo_policy_loss(log_prob.requires_grad_(), old, advantage, **settings)
    result.loss.backward()
    by_hand, *more = ppo_policy_loss_by_hand(*arrays, **settings)

    losses, kls, clipped = [], [], []
    for new_log, old_log, adv in zip(log_prob.tolist(), old.tolist(), advantage.tolist(), strict=True):
        ratio = math.exp(new_log - old_log)
        gain = min(ratio * adv, min(max(ratio, 1 - clip), 1 + clip) * adv)
        if dual_clip is not None and adv < 0:
            gain = max(gain, dual_clip * adv)
        kls.append(ratio - 1 - (new_log - old_log))
        losses.append(-gain + kl_beta * kls[-1])
        clipped.append(abs(ratio - 1) > clip)
    expected = pytest.approx([np.mean(losses), np.mean(kls), np.mean(clipped)], abs=1e-6)
    assert [float(each.detach()) for each in result] == expected
    assert [by_hand.loss, *more] == expected
    np.testing.assert_allclose(by_hand.grad, log_prob.grad, atol=1e-6)


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


def test_the_penalty_and_its_gradient_are_the_kl_divergence_in_the_mean_under_the_old_policy():
    old = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    logit = torch.tensor([0.4, -0.2, 0.1], dtype=torch.float64, requires_grad=True)
    exact = (old * (old.log() - logit.log_softmax(0))).sum()
    (slope,) = torch.autograd.grad(exact, logit)

    # Every action as often as the old policy takes it: 10 rows.
    action = torch.tensor([0] * 5 + [1] * 3 + [2] * 2)
    log_prob = logit.log_softmax(0)[action]
    nothing = torch.zeros(10, dtype=torch.float64)
    penalty = ppo_policy_loss(log_prob, old.log()[action], nothing, clip_ratio=0.2, kl_beta=1.0).loss

    assert float(penalty.detach()) == pytest.approx(float(exact.detach()))
    torch.testing.assert_close(torch.autograd.grad(penalty, logit)[0], slope)


@given(SEEDS, ROWS, st.one_of(st.none(), st.floats(0.05, 1.0)))
def test_value_loss_equals_a_slow_walk_over_rows_and_by_hand_autograd(seed, rows, clip):
    value, return_, old = tensors(seed, rows)
    critic = ppo_value_loss_by_hand(value.numpy(), return_.numpy(), old_value=old.numpy(), value_clip=clip)

    loss = ppo_value_loss(value.requires_grad_(), return_, old_value=old, value_clip=clip)
    loss.backward()

    errors = []
    for v, target, before in zip(value.tolist(), return_.tolist(), old.tolist(), strict=True):
        error = (v - target) ** 2
        if clip is not None:
            limited = before + min(max(v - before, -clip), clip)
            error = max(error, (limited - target) ** 2)
        errors.append(error)
    assert float(loss.detach()) == pytest.approx(np.mean(errors), abs=1e-6)
    assert critic.loss == pytest.approx(np.mean(errors), abs=1e-6)
    np.testing.assert_allclose(critic.grad, value.grad, rtol=1e-6, atol=1e-6)


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
    assert RunningStd.from_state(running.state_dict()).std == running.std

    assert running.std == pytest.approx(everything.std() if len(everything) > 1 else 1.0)


def test_running_deviation_is_1_before_the_first_number_and_among_equal_ones():
    running = RunningStd()
    assert running.std == 1.0

    running.update(np.full(5, 3.0))

    assert running.std == 1.0


@given(st.integers(0, 2**31), st.integers(1, 12))
def test_losses_equal_a_slow_walk_over_rows(seed, rows):
    log_prob, value, advantage, return_ = torch.from_numpy(np.random.default_rng(seed).normal(size=(4, rows)))

    losses = a2c_loss(log_prob, value, advantage=advantage, return_=return_)

    walk = zip(log_prob.tolist(), value.tolist(), advantage.tolist(), return_.tolist(), strict=True)
    policy, error = np.mean([(-lp * adv, (v - target) ** 2) for lp, v, adv, target in walk], axis=0)
    assert float(losses.policy) == pytest.approx(policy, abs=1e-6)
    assert float(losses.value) == pytest.approx(error, abs=1e-6)


def test_gradients_of_the_worked_example():
    # Two rows: -(lp1 * 2 + lp2 * -1) / 2, so the gradient is -1 and 0.5; values 1 and 0 of targets 3 and 0:
    # 2 (1 - 3) / 2 = -2 and 0.
    log_prob, value = torch.zeros(2, requires_grad=True), torch.tensor([1.0, 0.0], requires_grad=True)

    losses = a2c_loss(log_prob, value, advantage=torch.tensor([2.0, -1.0]), return_=torch.tensor([3.0, 0.0]))
    (losses.policy + losses.value).backward()

    assert log_prob.grad.tolist() == [-1.0, 0.5]
    assert value.grad.tolist() == [-2.0, 0.0]


ROWS, STEPS = 40, 9


def sequences(seed: int, dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    """Return sequences of the policy's and another's actions; about half end early, some where nothing goes on."""
    rng = np.random.default_rng(seed)
    length = np.where(rng.random(ROWS) < 0.5, STEPS, rng.integers(1, STEPS + 1, ROWS))
    ends = (np.arange(STEPS) == length[:, None] - 1) & (length < STEPS)[:, None]
    terminated = ends & (rng.random((ROWS, 1)) < 0.5)
    numbers = {
        name: torch.tensor(rng.normal(size=(ROWS, STEPS)) * scale, dtype=dtype)
        for name, scale in (("log_ratio", 0.7), ("reward", 1.0), ("value", 3.0), ("next_value", 3.0))
    }
    flags = {
        "terminated": torch.tensor(terminated),
        "done": torch.tensor(ends),
        "valid": torch.tensor(np.arange(STEPS) < length[:, None]),
    }
    # Within a sequence the next value is that of the next step.
    inner = (flags["valid"] & ~flags["done"])[:, :-1] & flags["valid"][:, 1:]
    numbers["next_value"][:, :-1] = torch.where(inner, numbers["value"][:, 1:], numbers["next_value"][:, :-1])
    return {**numbers, **flags}


def slow_target(row: dict[str, Any], s: int, *, gamma: float, lambda_: float, rho_clip: float, c_clip: float) -> float:
    """Return v_s by equation 1: a sum over the steps from s on, each with the product of the c before it."""
    total, t = row["value"][s], s
    while True:
        trace = math.prod(lambda_ * min(c_clip, math.exp(row["log_ratio"][i])) for i in range(s, t))
        rho = min(rho_clip, math.exp(row["log_ratio"][t]))
        future = 0.0 if row["terminated"][t] else row["next_value"][t]
        total += gamma ** (t - s) * trace * rho * (row["reward"][t] + gamma * future - row["value"][t])
        t += 1
        if row["done"][t - 1] or t == STEPS or not row["valid"][t]:
            return float(total)


@pytest.mark.parametrize(
    ("lambda_", "rho_clip", "c_clip", "rho_pg_clip"), [(1.0, 1.0, 1.0, 1.0), (0.9, 2.0, 1.0, 0.5), (1.0, 9.0, 1.5, 9.0)]
)
def test_targets_and_advantages_equal_the_papers_sum(
    lambda_: float, rho_clip: float, c_clip: float, rho_pg_clip: float
) -> None:
    given = sequences(0)
    setting = dict(gamma=0.9, lambda_=lambda_, rho_clip=rho_clip, c_clip=c_clip)

    found = vtrace(**given, **setting, rho_pg_clip=rho_pg_clip)

    compared = 0
    for b in range(ROWS):
        row = {name: column[b].numpy() for name, column in given.items()}
        for s in range(int(row["valid"].sum())):
            assert found.target[b, s].item() == pytest.approx(slow_target(row, s, **setting), abs=1e-6)
            goes_on = not row["done"][s] and s + 1 < STEPS and row["valid"][s + 1]
            after = slow_target(row, s + 1, **setting) if goes_on else row["next_value"][s] * (not row["terminated"][s])
            rho = min(rho_pg_clip, math.exp(row["log_ratio"][s]))
            advantage = rho * (row["reward"][s] + 0.9 * after - row["value"][s])
            assert found.advantage[b, s].item() == pytest.approx(advantage, abs=1e-6)
            compared += 1
    assert compared > 200


def test_worked_example() -> None:
    # rho = c = 1/2. Last step: 2 + 0.5 (1 + 0.5 * 4 - 2) = 2.5. First: 1 + 0.5 (1 + 0.5 * 2 - 1) + 0.25 (2.5 - 2).
    one = {
        "log_ratio": torch.full((1, 2), math.log(0.5)),
        "reward": torch.ones(1, 2),
        "value": torch.tensor([[1.0, 2.0]]),
        "next_value": torch.tensor([[2.0, 4.0]]),
        "terminated": torch.zeros(1, 2, dtype=torch.bool),
        "done": torch.zeros(1, 2, dtype=torch.bool),
    }

    found = vtrace(**one, gamma=0.5)

    assert found.target.tolist() == [pytest.approx([1.625, 2.5])]
    assert found.advantage.tolist() == [pytest.approx([0.5 * (1 + 0.5 * 2.5 - 1), 0.5 * (1 + 0.5 * 4 - 2)])]


def test_what_stands_beyond_the_end_changes_nothing() -> None:
    given, other = sequences(5), sequences(5)
    for name in ("log_ratio", "reward", "value", "next_value"):
        other[name][~given["valid"]] = float("nan")

    found, same = vtrace(**given, gamma=0.9), vtrace(**other, gamma=0.9)

    for one, two in zip(found, same, strict=True):
        assert torch.equal(one[given["valid"]], two[given["valid"]])


COLUMN = torch.zeros(4, 1)
FOUR = torch.zeros(4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ppo_policy_loss(FOUR, COLUMN, FOUR, clip_ratio=0.2), r"old_log_prob has shape \(4, 1\)"),
        (lambda: ppo_policy_loss(FOUR, FOUR, COLUMN, clip_ratio=0.2), r"advantage has shape \(4, 1\)"),
        (lambda: ppo_value_loss(COLUMN, FOUR, old_value=FOUR), r"return_ has shape \(4,\) beside \(4, 1\)"),
        (lambda: a2c_loss(FOUR, COLUMN, advantage=FOUR, return_=FOUR), r"value has shape \(4, 1\)"),
        (
            lambda: vtrace(**{**sequences(0), "value": sequences(0)["value"][:, :1]}, gamma=0.9),
            r"value has shape \(40, 1\).*expected \[B, T\]",
        ),
    ],
)
def test_columns_that_would_broadcast_are_refused(call, message) -> None:
    with pytest.raises(SchemaError, match=message):
        call()
