"""Our policies, called through DI-engine's row functions as its scripts call them.

Random actions: uniform, and legal where a mask says which are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from ding_like.envs import BaseEnvTimestep
from ding_like.errors import ConfigError
from ding_like.policy.di_engine_view import RandomActor
from tests.policy.values import make_policy

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


ROWS = 400


def draw(space, obs):
    first = np.zeros(ROWS, bool)
    return RandomActor(space).act(obs, lanes=np.arange(ROWS), is_first=first, rng=np.random.default_rng(0))["action"]


@pytest.mark.parametrize(
    ("space", "num_different"),
    [
        (spaces.Discrete(3), 3),
        (spaces.Discrete(3, start=4), 3),
        (spaces.MultiDiscrete([2, 3]), 6),
        (spaces.MultiBinary(3), 8),
        (spaces.Box(-1.0, 2.0, (2,)), ROWS),
    ],
    ids=str,
)
def test_every_action_comes_up(space, num_different):
    actions = draw(space, np.zeros((ROWS, 2), np.float32))

    assert actions.shape == (ROWS, *space.shape)
    assert len(np.unique(actions, axis=0)) == num_different


@pytest.mark.parametrize(
    ("space", "mask", "legal"),
    [
        (spaces.Discrete(4), [0, 1, 0, 1], [[1], [3]]),
        (spaces.MultiDiscrete([2, 3]), [0, 1, 1, 0, 1], [[1, 0], [1, 2]]),
        (spaces.MultiBinary(2), [1, 1, 0, 1], [[0, 1], [1, 1]]),
    ],
    ids=str,
)
def test_a_mask_leaves_the_legal_actions_alone(space, mask, legal):
    obs = {"board": np.zeros((ROWS, 2), np.float32), "action_mask": np.tile(np.array(mask, np.int8), (ROWS, 1))}

    actions = draw(space, obs)

    assert np.unique(actions.reshape(ROWS, -1), axis=0).tolist() == legal


def test_a_box_without_bounds_is_refused_with_a_way_out():
    with pytest.raises(ConfigError, match="random_collect_size=0"):
        RandomActor(spaces.Box(-np.inf, np.inf, (2,)))
