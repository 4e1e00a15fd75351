"""Our policies, called through DI-engine's row functions as its scripts call them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ding_like.envs import BaseEnvTimestep
from tests.policy.test_dqn import make_policy

OBS = {"state": np.zeros(3, np.float32), "action_mask": np.array([0, 1, 0, 1], np.int8)}


def transition_of(mode: Any, done: bool, info: dict[str, Any]) -> dict[str, Any]:
    timestep = BaseEnvTimestep(OBS, np.ones(1, np.float32), done, info)
    return dict(mode.process_transition(OBS, {"action": np.int64(1)}, timestep))


def test_dict_observations_go_through_all_row_functions_nested():
    policy = make_policy(nstep=1)
    mode = policy.collect_mode

    output = mode.forward({4: OBS}, eps=0.0)
    rows = mode.get_train_sample([transition_of(mode, False, {}) for _ in range(3)])
    result = policy.learn_mode.forward(rows)

    assert int(output[4]["action"]) in (1, 3)
    assert set(rows[0]["obs"]) == set(rows[0]["next_obs"]) == {"state", "action_mask"}
    assert np.isfinite(result["total_loss"])


@pytest.mark.parametrize(
    ("done", "info", "terminated", "truncated"),
    [
        (False, {}, False, False),
        (True, {}, True, False),
        (True, {"TimeLimit.truncated": False}, True, False),
        (True, {"TimeLimit.truncated": True}, False, True),
    ],
)
def test_a_time_limit_does_not_terminate(done, info, terminated, truncated):
    mode = make_policy(nstep=1).collect_mode

    row = mode.get_train_sample([transition_of(mode, done, info)])[0]

    assert (bool(row["terminated"]), bool(row["truncated"]), bool(row["done"])) == (terminated, truncated, done)
