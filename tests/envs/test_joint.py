"""Teams as one lane: what agents see, do and get, put side by side."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from ding_like.envs.petting_zoo import JointEnv
from ding_like.errors import ConfigError
from dizoo.multi_agent.two_step_game import TwoStepGame

SPREAD = {"env_id": "mpe2.simple_spread_v3", "kwargs": {"N": 3, "max_cycles": 5, "continuous_actions": False}}


def test_a_team_is_its_agents_side_by_side() -> None:
    from mpe2 import simple_spread_v3

    team, alone = JointEnv(SPREAD), simple_spread_v3.parallel_env(**SPREAD["kwargs"])  # type: ignore[arg-type]
    obs, _ = team.reset(seed=3)
    theirs, _ = alone.reset(seed=3)
    rng = np.random.default_rng(0)
    for step in range(5):
        assert (obs["agents"] == np.stack(list(theirs.values())).astype(np.float32)).all()
        assert (obs["state"] == alone.state().astype(np.float32)).all()
        action = rng.integers(0, 5, 3)
        obs, reward, terminated, truncated, _ = team.step(action)
        theirs, rewards, *_ = alone.step(dict(zip(alone.possible_agents, action.tolist(), strict=True)))
        assert reward == pytest.approx(np.mean(list(rewards.values())))
        assert (terminated, truncated) == (False, step == 4)
    team.close()
    alone.close()


def test_teams_are_envs_as_gymnasium_wants_them() -> None:
    check_env(TwoStepGame(), skip_render_check=True)


def test_what_is_no_team_of_discrete_actions_is_refused() -> None:
    with pytest.raises(ConfigError, match="continuous_actions=False"):
        JointEnv({"env_id": "mpe2.simple_spread_v3", "kwargs": {"continuous_actions": True}})
    with pytest.raises(ConfigError, match="env_id"):
        JointEnv({"env_id": "os.system"})


def test_the_two_step_game_pays_as_in_the_paper() -> None:
    game = TwoStepGame()
    returns = {}
    for first in (0, 1):
        for second in ((0, 0), (0, 1), (1, 0), (1, 1)):
            game.reset()
            obs, reward, terminated, _, _ = game.step((first, 0))
            assert (reward, terminated) == (0.0, False) and obs["state"].argmax() == 1 + first
            returns[first, second] = game.step(second)[1]

    assert [returns[0, second] for second in ((0, 0), (0, 1), (1, 0), (1, 1))] == [7.0] * 4
    assert [returns[1, second] for second in ((0, 0), (0, 1), (1, 0), (1, 1))] == [0.0, 1.0, 1.0, 8.0]
