"""Demonstrations of another env are one error that names the row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ding_like.data.demonstrations import Demonstrations
from ding_like.errors import SchemaError


def steps(action: Any, obs: Any = None) -> Demonstrations:
    number = len(action)
    zeros = np.zeros(number)
    names = ("reward", "terminated", "truncated", "lane", "episode_id", "step")
    obs = np.zeros((number, 4), np.float32) if obs is None else obs
    return Demonstrations({"obs": obs, "next_obs": obs, "action": np.asarray(action), **dict.fromkeys(names, zeros)})


@pytest.mark.parametrize(
    ("action", "size", "choices", "found", "takes"),
    [
        ([0, 1, 2, 3], 1, [3], "action 3 in row 3", "one of 3 choices"),
        ([0, -1], 1, [3], "action -1 in row 1", "one of 3 choices"),
        ([0.0, 1.0], 1, [3], "action 0.0 in row 0", "one of 3 choices"),
        ([[0, 1], [2, 2]], 2, [3, 2], r"action \[2, 2\] in row 1", "one of 3 x 2 choices"),
        ([0, 1], 2, [3, 2], "action 0 in row 0", "one of 3 x 2 choices"),
        ([[0.5], [0.1]], 2, None, r"action \[0.5\] in row 0", "2 real numbers"),
        ([0, 1], 1, None, "action 0 in row 0", "1 real numbers"),
    ],
)
def test_an_action_that_the_env_does_not_take_is_refused_by_its_row(
    action: Any, size: int, choices: Sequence[int] | None, found: str, takes: str
) -> None:
    with pytest.raises(SchemaError, match=f"has the {found}, and the env takes {takes}: it was collected in another"):
        steps(action).check_actions(size, choices)


@pytest.mark.parametrize(
    ("action", "size", "choices"), [([0, 2], 1, [3]), ([[2, 1], [0, 0]], 2, [3, 2]), ([[0.5, -9.0]], 2, None)]
)
def test_actions_of_the_env_are_taken(action: Any, size: int, choices: Sequence[int] | None) -> None:
    steps(action).check_actions(size, choices)


def test_observations_of_another_shape_are_refused() -> None:
    steps([0]).check_obs(np.zeros((1, 4)))
    with pytest.raises(SchemaError, match=r"rows 'obs' of shape \[4\], the env's are \[6\]"):
        steps([0]).check_obs(np.zeros((1, 6)))
