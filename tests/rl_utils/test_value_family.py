"""A family of distributions fits the frame of a TD update: a small categorical one (C51) beside a slow walk over atoms.

The family is the test's own; the update around it, target, weights, priorities, double Q-learning and masks, is the
shipped frame.
"""

from __future__ import annotations

import pytest
import torch

from ding_like.errors import SchemaError
from ding_like.rl_utils.value_family import ScalarValue, weighted_mean

ACTIONS, ATOMS, OBS, ROWS = 3, 5, 4, 12


def test_a_team_of_actions_is_read_agent_by_agent() -> None:
    values = torch.arange(12.0).view(2, 3, 2)

    chosen = ScalarValue("mse").of_action(values, torch.tensor([[0, 1, 0], [1, 1, 0]]))

    assert chosen.tolist() == [[0.0, 3.0, 4.0], [7.0, 9.0, 10.0]]


def test_a_weight_that_would_broadcast_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"weight has shape \(3, 1\), expected \(3,\)"):
        weighted_mean(torch.zeros(3), torch.ones(3, 1))
