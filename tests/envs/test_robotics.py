"""Envs of gymnasium-robotics are made by their ids, and hindsight takes their goals and rewards."""

from __future__ import annotations

import numpy as np
import pytest

from ding_like.envs.factory import make_env
from ding_like.worker.replay_buffer.hindsight import GoalRules

pytest.importorskip("gymnasium_robotics")


def test_fetchreach_is_made_by_its_id_and_moves() -> None:
    env = make_env({"type": "gymnasium", "env_id": "FetchReach-v4"})
    try:
        before, _ = env.reset(seed=0)
        for _ in range(10):
            obs, *_ = env.step(np.array([1, 0, 0, 0], np.float32))
        again, _ = env.reset(seed=0)
    finally:
        env.close()

    assert obs["achieved_goal"][0] > before["achieved_goal"][0] + 0.05
    assert (again["desired_goal"] == before["desired_goal"]).all()
    # The welds that drive the hand are set back with the rest.
    assert np.allclose(again["achieved_goal"], before["achieved_goal"], atol=1e-3)


@pytest.mark.parametrize("env_id", ["FetchReach-v4", "FetchReachDense-v4"])
def test_hindsight_takes_its_goals_and_rewards(env_id: str) -> None:
    rules = GoalRules(lambda: make_env({"type": "gymnasium", "env_id": env_id}))
    try:
        goals = np.array([[1.3, 0.7, 0.5], [1.4, 0.7, 0.5]], np.float32)
        reward, terminated = rules.reward(goals, goals[::-1]), rules.terminated(goals, goals)
    finally:
        rules.close()

    assert reward == pytest.approx([-0.1, -0.1] if "Dense" in env_id else [-1.0, -1.0])
    assert terminated is not None and not terminated.any()
