"""Returns and advantages of whole rollouts, all lanes at once; rows of one lane for policies in DI-engine's style.

Arrays are [T, E]: time, lane. Ragged lanes are padded to T rows and `valid` marks the real ones; what stands in a
padded row (NaN too) changes nothing. Sums run in float64 and results are float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal, NamedTuple

import numpy as np

from ding_like.errors import ConfigError, SchemaError
from ding_like.types import Array


class NStep(NamedTuple):
    """The n-step window of every row; each array is [T, E]."""

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


Transition = Mapping[str, Any]  # the keys are the policy's own
_FROM_WINDOW_END = ("next_obs", "done", "terminated", "truncated")


def get_nstep_return_data(
    data: Sequence[Transition],
    nstep: int,
    cum_reward: bool = False,
    gamma: float = 0.99,
    correct_terminate_gamma: bool = True,
) -> list[dict[str, Any]]:
    """Return the transitions of one lane as n-step transitions; with `nstep` 1 they stay as they are.

    The window of a transition holds `nstep` of them, fewer where `done` or the list ends. `next_obs` and `done` are
    those of its last transition. `reward` is [nstep], with 0 after the window's end, or the discounted sum with
    `cum_reward`. `value_gamma` multiplies the value of `next_obs`: gamma to the number of transitions in the window,
    or to `nstep` for all without `correct_terminate_gamma`. Raises ConfigError if `nstep` is below 1.
    """
    if nstep == 1 or not data:
        return [dict(row) for row in data]
    reward = np.array([_number(row["reward"]) for row in data])[:, None]
    done = np.array([bool(row["done"]) for row in data])[:, None]
    window = nstep_return(reward, done, gamma=gamma, n=nstep)
    padded = np.concatenate([reward[:, 0], np.zeros(nstep)])
    rows = []
    for i, row in enumerate(data):
        steps, last = int(window.steps[i, 0]), data[int(window.last[i, 0])]
        rewards = np.where(np.arange(nstep) < steps, padded[i : i + nstep], 0.0)
        rows.append(
            {
                **row,
                **{name: last[name] for name in _FROM_WINDOW_END if name in last},
                "reward": _like(row["reward"], window.return_[i] if cum_reward else rewards),
                "value_gamma": float(gamma ** (steps if correct_terminate_gamma else nstep)),
            }
        )
    return rows


def _number(reward: Any) -> float:
    """Return a number, or an array or tensor of one, as a float."""
    return float(reward.item() if hasattr(reward, "item") else reward)


def _like(reward: Any, values: Any) -> Any:
    """Return `values` as a tensor if `reward` is one, else as an array of float32."""
    return reward.new_tensor(values) if hasattr(reward, "new_tensor") else np.asarray(values, np.float32)


def get_train_sample(
    data: Sequence[Transition],
    unroll_len: int,
    last_fn_type: Literal["last", "drop", "null_padding"] = "last",
    null_transition: Transition | None = None,
) -> list[dict[str, Any]]:
    """Return the transitions of one lane as stretches of `unroll_len`, each a dict of lists; with 1 as they are.

    What remains at the end becomes a stretch by 'last', which begins it earlier, is left out by 'drop', or is filled up
    with copies of `null_transition` by 'null_padding'. Copies of the last transition take its place where it is None.
    'last' fills up too where there are fewer than `unroll_len` transitions. Raises ConfigError for other arguments.
    """
    if unroll_len < 1:
        raise ConfigError(f"unroll_len is {unroll_len}, expected 1 or more.")
    if last_fn_type not in ("last", "drop", "null_padding"):
        raise ConfigError(f"last_fn_type is {last_fn_type!r}, expected 'last', 'drop' or 'null_padding'.")
    if unroll_len == 1:
        return [dict(row) for row in data]
    rest = len(data) % unroll_len
    stretches = [list(data[i : i + unroll_len]) for i in range(0, len(data) - rest, unroll_len)]
    if rest and last_fn_type == "last" and stretches:
        stretches.append(list(data[-unroll_len:]))
    elif rest and last_fn_type != "drop":
        filling = data[-1] if null_transition is None else null_transition
        stretches.append([*data[-rest:], *(dict(deepcopy(filling)) for _ in range(unroll_len - rest))])
    return [{name: [row[name] for row in rows] for name in rows[0]} for rows in stretches]
