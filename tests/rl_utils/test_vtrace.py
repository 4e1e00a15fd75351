"""V-trace against the paper's sum, written as it stands there."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.errors import SchemaError
from ding_like.rl_utils.policy_gradient import vtrace

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


def test_columns_that_would_broadcast_are_refused() -> None:
    given = sequences(0)

    with pytest.raises(SchemaError, match=r"value has shape \(40, 1\).*expected \[B, T\]"):
        vtrace(**{**given, "value": given["value"][:, :1]}, gamma=0.9)
