"""n-step returns and GAE against slow obvious versions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ding_like.errors import ConfigError, SchemaError
from ding_like.rl_utils import gae, nstep_return


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


def test_nstep_return_refuses_n_below_one():
    with pytest.raises(ConfigError, match="at least 1, got 0"):
        nstep_return(np.zeros((2, 1)), np.zeros((2, 1)), gamma=0.9, n=0)


@pytest.mark.parametrize("done_shape", [(3, 1), (2,)])
def test_nstep_return_refuses_shapes_that_differ(done_shape):
    with pytest.raises(SchemaError, match=r"reward \(2, 1\), done"):
        nstep_return(np.zeros((2, 1)), np.zeros(done_shape), gamma=0.9, n=1)


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


def test_gae_refuses_shapes_that_differ():
    square = np.zeros((2, 2))

    with pytest.raises(SchemaError, match=r"next_value \(2,\)"):
        gae(square, square, np.zeros(2), square, square, gamma=0.9, lam=0.9)
