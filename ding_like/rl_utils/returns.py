"""Compute returns and advantages of whole rollouts, all lanes at once.

Arrays are [T, E]: time, lane. Ragged lanes are padded to T rows and `valid` marks the real ones; what stands in a
padded row (NaN too) changes nothing. Sums run in float64 and results are float32.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ding_like.errors import ConfigError, SchemaError
from ding_like.types import Array


class NStep(NamedTuple):
    """Hold the n-step window of every row; each array is [T, E]."""

    return_: Array  # float32, the discounted sum of the window's rewards
    steps: Array  # int64, rows in the window: 1..n, and 0 for a padded row
    discount: Array  # float32, gamma ** steps: what multiplies the value of the window's last next_obs
    last: Array  # int64, time index of the window's last row, whose next_obs and terminated belong to this row
    complete: Array  # bool, the window reached n rows or an episode's end; the others wait for more rows


def nstep_return(reward: Array, done: Array, *, gamma: float, n: int, valid: Array | None = None) -> NStep:
    """Return the discounted sum of up to `n` rewards from every row on.

    The window of a row ends with the first row that is `done`, after `n` rows, or before the first row that is not
    valid, whichever comes first. With gamma 0.5, n 2 and one lane of rewards 1 2 4 8, done 0 1 0 0:

        return_ 2 2 8 8    steps 2 1 2 1    last 1 1 3 3    complete 1 1 1 0

    Raises ConfigError if `n` is below 1, SchemaError if shapes differ.
    Source: Watkins 1989; Sutton & Barto 2018, eq. 7.1.
    """
    if n < 1:
        raise ConfigError(f"an n-step return needs n of at least 1, got {n}; set nstep=1 for one-step targets")
    _check_rectangular(reward=reward, done=done, valid=valid)
    num_rows = reward.shape[0]
    ended = done.astype(bool)
    real = np.ones(reward.shape, dtype=bool) if valid is None else valid.astype(bool)
    reaches = real.copy()  # the window of row t holds row t + k
    addend = reward.astype(np.float64)
    total = np.zeros(reward.shape)
    steps = np.zeros(reward.shape, dtype=np.int64)
    complete = np.zeros(reward.shape, dtype=bool)
    for k in range(min(n, num_rows)):
        head = reaches[: num_rows - k]
        if k:
            head &= real[k:]
            head &= ~ended[k - 1 : num_rows - 1]
        total[: num_rows - k] += np.where(head, gamma**k * addend[k:], 0.0)
        steps[: num_rows - k] += head
        complete[: num_rows - k] |= head & ended[k:]
    complete |= steps == n
    return NStep(
        return_=total.astype(np.float32),
        steps=steps,
        discount=np.power(gamma, steps, dtype=np.float64).astype(np.float32),
        last=np.arange(num_rows)[:, None] + np.maximum(steps, 1) - 1,
        complete=complete,
    )


def gae(
    reward: Array,
    value: Array,
    next_value: Array,
    terminated: Array,
    done: Array,
    *,
    gamma: float,
    lam: float,
    valid: Array | None = None,
) -> Array:
    """Return generalised advantages, walking each lane backwards; 0 in padded rows.

    `next_value[t]` is the value of the true next observation, so a truncated lane bootstraps and a terminated one does
    not; `done` cuts the recursion in both cases. The value's regression target is the result plus `value`. With gamma
    and lam 0.5, values 0, next values 4, rewards 1 1, neither row done: delta 3 3, so the result is 3.75 3.

    Raises SchemaError if shapes differ. Source: Schulman et al. 2016, eq. 16.
    """
    _check_rectangular(reward=reward, value=value, next_value=next_value, terminated=terminated, done=done, valid=valid)
    bootstrap = np.where(terminated, 0.0, next_value).astype(np.float64)
    delta = gamma * bootstrap + reward - value
    decay = gamma * lam * (1.0 - done)
    if valid is not None:
        delta = np.where(valid, delta, 0.0)
        decay = np.where(valid, decay, 0.0)
    running = np.zeros(reward.shape[1:])
    advantage = np.empty(reward.shape, dtype=np.float32)
    for t in range(reward.shape[0] - 1, -1, -1):
        running *= decay[t]
        running += delta[t]
        advantage[t] = running
    return advantage


def _check_rectangular(**arrays: Array | None) -> None:
    shapes = {name: array.shape for name, array in arrays.items() if array is not None}
    if len(set(shapes.values())) != 1 or len(shapes["reward"]) != 2:
        seen = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise SchemaError(f"expected arrays of one shape [T, E], got {seen}; pad ragged lanes and mark them in `valid`")
