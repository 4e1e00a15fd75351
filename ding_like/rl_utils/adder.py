"""Make training rows of one lane's transitions, for policies in DI-engine's style; ours cut columns by `segment`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal

import numpy as np

from ding_like.errors import ConfigError
from ding_like.rl_utils.returns import nstep_return

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
