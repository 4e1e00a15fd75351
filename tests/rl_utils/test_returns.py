"""n-step returns and GAE against slow obvious versions."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ding_like.errors import ConfigError, EnvError, SchemaError
from ding_like.rl_utils import constant, epsilon_greedy, gae, get_epsilon_greedy_fn, linear_schedule, nstep_return
from ding_like.rl_utils.exploration import ActionRange, gaussian_noise


def random_rollout(seed, num_rows, num_lanes):
    """Return reward, done, and a prefix mask with a random number of valid rows in each lane."""
    rng = np.random.default_rng(seed)
    reward = rng.normal(size=(num_rows, num_lanes)).astype(np.float32)
    done = rng.random((num_rows, num_lanes)) < 0.2
    valid = np.arange(num_rows)[:, None] < rng.integers(0, num_rows + 1, size=num_lanes)
    return rng, reward, done, valid


def slow_nstep(rewards, dones, gamma, n):
    """Walk from every row of one lane until n rewards are summed, the episode ends or the rows do."""
    rows = []
    for start in range(len(rewards)):
        total, steps, complete = 0.0, 0, False
        while not complete and start + steps < len(rewards):
            total += gamma**steps * float(rewards[start + steps])
            complete = bool(dones[start + steps]) or steps + 1 == n
            steps += 1
        rows.append((total, steps, gamma**steps, start + steps - 1, complete))
    return rows


def slow_gae(rewards, values, next_values, terminated, dones, gamma, lam):
    """Sum (gamma * lam)^k * delta[t + k] up to the end of the episode or of the rows, as eq. 16 is written."""
    result = []
    for start in range(len(rewards)):
        total, factor = 0.0, 1.0
        for t in range(start, len(rewards)):
            future = 0.0 if terminated[t] else float(next_values[t])
            total += factor * (float(rewards[t]) + gamma * future - float(values[t]))
            factor *= gamma * lam
            if dones[t]:
                break
        result.append(total)
    return result


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**31), st.integers(1, 12), st.integers(1, 4), st.integers(1, 6), st.sampled_from([0.0, 0.9, 1.0])
)
def test_nstep_return_equals_walking_every_window(seed, num_rows, num_lanes, n, gamma):
    _, reward, done, valid = random_rollout(seed, num_rows, num_lanes)

    result = nstep_return(reward, done, gamma=gamma, n=n, valid=valid)

    for lane in range(num_lanes):
        length = int(valid[:, lane].sum())
        expected = slow_nstep(reward[:length, lane], done[:length, lane], gamma, n)
        for t, row in enumerate(expected):
            assert [column[t, lane] for column in result] == pytest.approx(row, rel=1e-6, abs=1e-6)
        assert not result.steps[length:, lane].any()
        assert not result.return_[length:, lane].any()
        assert not result.complete[length:, lane].any()


def test_nstep_return_of_the_worked_example():
    # Row 0: 1 + 0.5 * 2, complete by n. Row 1 is done: 2. Row 2: 4 + 0.5 * 8. Row 3: 8, and its window is still open.
    reward = np.array([[1.0], [2.0], [4.0], [8.0]], dtype=np.float32)
    done = np.array([[False], [True], [False], [False]])

    result = nstep_return(reward, done, gamma=0.5, n=2)

    assert result.return_[:, 0].tolist() == [2.0, 2.0, 8.0, 8.0]
    assert result.steps[:, 0].tolist() == [2, 1, 2, 1]
    assert result.discount[:, 0].tolist() == [0.25, 0.5, 0.25, 0.5]
    assert result.last[:, 0].tolist() == [1, 1, 3, 3]
    assert result.complete[:, 0].tolist() == [True, True, True, False]


def test_nstep_return_of_no_rows_is_empty():
    result = nstep_return(np.zeros((0, 3), dtype=np.float32), np.zeros((0, 3), dtype=bool), gamma=0.9, n=3)

    assert all(column.shape == (0, 3) for column in result)


def test_nstep_return_writes_into_none_of_its_arguments():
    _, reward, done, valid = random_rollout(2, 6, 2)
    before = [array.copy() for array in (reward, done, valid)]

    nstep_return(reward, done, gamma=0.9, n=3, valid=valid)

    for array, copy in zip((reward, done, valid), before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_nstep_return_keeps_float32_rewards_exact_over_long_windows():
    reward = np.full((1000, 1), 0.1, dtype=np.float32)

    result = nstep_return(reward, np.zeros((1000, 1), dtype=bool), gamma=1.0, n=1000)

    assert result.return_[0, 0] == pytest.approx(1000 * float(np.float32(0.1)), rel=1e-7)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**31),
    st.integers(1, 12),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.9, 1.0]),
    st.sampled_from([0.0, 0.95, 1.0]),
)
def test_gae_equals_summing_the_deltas(seed, num_rows, num_lanes, gamma, lam):
    rng, reward, done, valid = random_rollout(seed, num_rows, num_lanes)
    terminated = done & (rng.random(done.shape) < 0.5)
    value, next_value = rng.normal(size=(2, num_rows, num_lanes)).astype(np.float32)

    result = gae(reward, value, next_value, terminated, done, gamma=gamma, lam=lam, valid=valid)

    for lane in range(num_lanes):
        rows = slice(int(valid[:, lane].sum()))
        columns = [column[rows, lane] for column in (reward, value, next_value, terminated, done)]
        np.testing.assert_allclose(result[rows, lane], slow_gae(*columns, gamma, lam), rtol=1e-6, atol=1e-6)
        assert not result[rows.stop :, lane].any()


def test_gae_ignores_the_value_after_a_terminated_row():
    ones, always = np.ones((1, 1), dtype=np.float32), np.ones((1, 1), dtype=bool)

    result = gae(ones, ones, np.full((1, 1), np.nan), always, always, gamma=0.9, lam=0.9)

    assert result[0, 0] == 0.0


def draw(eps, *, seed=0, num_rows=1000, num_actions=4, mask=None):
    """Return actions where the greedy one is always 0."""
    greedy = np.zeros(num_rows, dtype=np.int64)
    rng = np.random.default_rng(seed)
    return epsilon_greedy(greedy, eps, num_actions=num_actions, rng=rng, action_mask=mask)


@pytest.mark.parametrize(("eps", "masked"), [(0.0, False), (1.0, True)])
def test_two_numbers_a_row_are_drawn_whatever_happens(eps, masked):
    rng, other = np.random.default_rng(3), np.random.default_rng(3)
    mask = np.ones((5, 2), dtype=bool) if masked else None

    epsilon_greedy(np.zeros(5, dtype=np.int64), eps, num_actions=2, rng=rng, action_mask=mask)

    other.random(10)
    assert rng.random() == other.random()


def test_what_is_drawn_does_not_depend_on_sigma():
    generators = [np.random.default_rng(0) for _ in range(2)]
    for rng, sigma in zip(generators, (0.1, np.ones(4)), strict=True):
        gaussian_noise(4, 3, sigma=sigma, rng=rng)

    assert generators[0].random() == generators[1].random()


def test_rollout_arithmetic_loads_no_torch():
    code = "import sys, ding_like.rl_utils; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (get_epsilon_greedy_fn(1.0, 0.1, 1000), {0: 1.0, 1000: 0.1 + 0.9 / math.e, 10**6: 0.1}),
        (get_epsilon_greedy_fn(1.0, 0.2, 100, "linear"), {0: 1.0, 50: 0.6, 100: 0.2, 1000: 0.2}),
        (linear_schedule(0.4, 1.0, num_steps=4), {0: 0.4, 1: 0.55, 4: 1.0, 5: 1.0}),  # it may rise as well
        (constant(0.5), {0: 0.5, 10**9: 0.5}),
    ],
)
def test_schedules_say_the_value_of_a_step(schedule, said):
    assert {step: schedule(step) for step in said} == pytest.approx(said)


@pytest.mark.parametrize(
    ("eps", "mask", "shares"),
    [
        (1.0, None, [0.25] * 4),
        (0.3, None, [0.775, 0.075, 0.075, 0.075]),  # one in four random actions is the greedy one
        (1.0, [0, 1, 0, 1], [0, 0.5, 0, 0.5]),
    ],
)
def test_epsilon_is_the_share_of_rows_with_any_legal_action(eps, mask, shares):
    masks = None if mask is None else np.tile(np.array(mask, bool), (40_000, 1))

    counts = np.bincount(draw(eps, num_rows=40_000, mask=masks), minlength=4)

    # The standard deviation of 20,000 expected ones is 100.
    assert counts == pytest.approx(40_000 * np.array(shares), abs=400)


def test_every_row_has_its_own_epsilon_and_mask_and_the_greedy_actions_stay():
    greedy = np.zeros(1000, np.int64)
    own = draw(np.array([0.0, 1.0] * 500))
    assert not own[::2].any() and set(own[1::2]) == {0, 1, 2, 3}
    assert draw(1.0, mask=np.eye(4, dtype=bool)[np.arange(1000) % 4]).tolist() == [i % 4 for i in range(1000)]
    assert draw(0.5).tolist() == draw(0.5, mask=np.ones((1000, 4), dtype=bool)).tolist()
    epsilon_greedy(greedy, 1.0, num_actions=5, rng=np.random.default_rng(0))
    assert not greedy.any()


@pytest.mark.parametrize("sigma", [0.3, np.array([0.0, 0.1, 1.0])])
def test_noise_has_the_standard_deviation_asked_for_of_each_row(sigma):
    noise = gaussian_noise(3, 20_000, sigma=sigma, rng=np.random.default_rng(0))

    assert noise.shape == (3, 20_000) and noise.dtype == np.float32
    np.testing.assert_allclose(noise.std(axis=1), np.broadcast_to(sigma, 3), rtol=0.03)


@pytest.mark.parametrize(
    ("low", "high", "action", "scaled"),
    [
        # Thirds: centre + half is not exactly the bound in float32.
        ([-1 / 3, 0.1], [0.7, 1 / 3], [[-5.0, -1.0], [5.0, 1.0]], [[-1 / 3, 0.1], [0.7, 1 / 3]]),
        # Nothing here is near enough to a bound to be cut.
        ([-1.0, 0.0], [1.0, 4.0], [[-0.5, -0.5], [0.25, 0.5]], [[-0.5, 1.0], [0.25, 3.0]]),
    ],
)
def test_actions_are_scaled_and_cut_to_the_bounds_exactly(low, high, action, scaled):
    found = ActionRange(low, high).to_env(np.array(action, np.float32))

    np.testing.assert_array_equal(found, np.array(scaled, np.float32))


SQUARE, TALL = np.zeros((2, 2)), np.zeros((3, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nstep_return(SQUARE, SQUARE, gamma=0.9, n=0), "at least 1, got 0"),
        (lambda: nstep_return(SQUARE, TALL, gamma=0.9, n=1), r"reward \(2, 2\), done"),
        (lambda: nstep_return(SQUARE, np.zeros(2), gamma=0.9, n=1), r"reward \(2, 2\), done"),
        (lambda: gae(SQUARE, SQUARE, np.zeros(2), SQUARE, SQUARE, gamma=0.9, lam=0.9), r"next_value \(2,\)"),
        (lambda: get_epsilon_greedy_fn(1.5, 0.1, 10), r"eps.start .* got 1.5"),
        (lambda: get_epsilon_greedy_fn(1.0, -0.1, 10), r"eps.end .* got -0.1"),
        (lambda: get_epsilon_greedy_fn(1.0, 0.1, 0), r"eps.decay .* got 0"),
        (lambda: get_epsilon_greedy_fn(1.0, 0.1, 10, "cosine"), "'cosine'; expected 'exp' or 'linear'"),
        (lambda: linear_schedule(1.0, 0.0, num_steps=0), "num_steps above 0, got 0"),
        (lambda: draw(0.5, num_rows=2, num_actions=2, mask=np.array([[1, 1], [0, 0]])), r"no action in rows \[1\]"),
        (lambda: ActionRange([-np.inf], [1.0]), "action_low"),
        (lambda: ActionRange(-1.0, np.nan), "action_low"),
        (lambda: ActionRange([1.0], [1.0]), "action_low"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises((ConfigError, EnvError, SchemaError), match=message):
        call()
