"""Teams in DI-engine's form become teams by themselves; wrong ones are one clear error."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from ding_like.data.team import AGENTS as SEEN_BY_AGENTS
from ding_like.data.team import ALIVE, ENDED, REWARDS
from ding_like.data.team import STATE as OF_ALL
from ding_like.envs import EnvFactory, check_env, create_env_manager, make_env
from ding_like.envs.adapters import as_lane_env
from ding_like.envs.team import Team
from ding_like.errors import EnvError
from tests.envs.di_engine_teams import ACTIONS, AGENTS, SEEN, STATE, STEPS, Lights, LightsInTheirStyle

GYM, THEIRS = "tests.envs.di_engine_teams:Lights", "tests.envs.di_engine_teams:LightsInTheirStyle"


def made(kind: str = GYM, **kwargs: Any) -> Any:
    return make_env({"type": kind, "kwargs": kwargs})


def test_an_env_by_import_path_by_id_or_in_their_style_becomes_a_team() -> None:
    by_id = make_env({"type": "gymnasium", "env_id": "tests.envs.di_engine_teams:TeamOfLights-v0"})
    for env in (made(), made(THEIRS), by_id):
        obs, _ = env.reset(seed=0)

        assert isinstance(env, Team) and env.num_agents == AGENTS
        assert env.action_space == spaces.MultiDiscrete([ACTIONS] * AGENTS)
        assert obs in env.observation_space
        assert {name: part.shape for name, part in obs.items()} == {
            SEEN_BY_AGENTS: (AGENTS, SEEN),
            OF_ALL: (STATE,),
            ALIVE: (AGENTS,),
            ENDED: (AGENTS,),
            REWARDS: (AGENTS,),
            "action_mask": (AGENTS, ACTIONS),
        }


@pytest.mark.parametrize("kind", [GYM, THEIRS])
@pytest.mark.parametrize("reward", ["one", "each"])
@pytest.mark.parametrize("truncated", [True, False])
def test_a_team_is_paid_and_ends_as_its_env_says(kind: str, reward: str, truncated: bool) -> None:
    env = made(kind, reward=reward, truncated=truncated)
    obs, _ = env.reset(seed=0)
    assert obs[ALIVE].tolist() == [1] * AGENTS and obs[REWARDS].tolist() == [0.0] * AGENTS
    returns = np.zeros(AGENTS)
    for time in range(1, STEPS + 1):
        obs, total, terminated, cut, info = env.step(np.zeros(AGENTS, np.int64))
        each = [2.0] * AGENTS if reward == "one" else [time + agent for agent in range(AGENTS)]
        returns += each
        assert obs[REWARDS].tolist() == each and total == (2.0 if reward == "one" else sum(each))
        over = time == STEPS
        assert (terminated, cut) == (over and not truncated, over and truncated)
        assert obs[ALIVE].tolist() == [int(not terminated)] * AGENTS
        assert obs[ENDED].tolist() == [int(terminated)] * AGENTS
        assert obs["action_mask"][1:].tolist() == ([[1, 0]] if terminated else [[1, 1]]) * (AGENTS - 1)
        assert info["own"] == time and ("episode_info" in info) == over

    assert list(info["episode_info"].values()) == returns.tolist()


def test_continuous_actions_are_rows_of_agents_and_states_of_agents_lie_in_a_row() -> None:
    env = made(continuous=True, masked=False, state=(AGENTS, STATE))
    obs, _ = env.reset(seed=0)
    action = np.arange(AGENTS * ACTIONS, dtype=np.float32) / 10
    env.step(action)

    assert env.action_space == spaces.Box(-1, 1, (AGENTS * ACTIONS,), np.float32)
    assert env.unwrapped.env.actions[0].tolist() == action.reshape(AGENTS, ACTIONS).tolist()
    assert obs[OF_ALL].shape == (AGENTS * STATE,) and "action_mask" not in obs


def test_without_a_state_it_is_what_agents_see() -> None:
    obs, _ = made(state=None).reset(seed=0)

    assert obs[OF_ALL].tolist() == obs[SEEN_BY_AGENTS].ravel().tolist()


def test_actions_that_count_from_elsewhere_and_differ_by_agent_are_their_own() -> None:
    env = Lights(masked=False)
    choices = [spaces.Discrete(2), spaces.Discrete(3, start=1), spaces.Discrete(2)]
    for space in (spaces.Tuple(choices), spaces.Dict(dict(zip("abc", choices, strict=True)))):
        env.action_space = space
        team = as_lane_env(env)
        obs, _ = team.reset(seed=0)
        team.step(np.array([1, 2, 1]))
        assert env.actions[-1].tolist() == [1, 3, 1]
        assert obs["action_mask"].tolist() == [[1, 1, 0], [1, 1, 1], [1, 1, 0]]


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({"wrong": "no agent_state"}, r"agent_num=3 is Dict.*Set observation_space = spaces.Dict\(agent_state=Box"),
        ({"wrong": "mask space"}, r"action_mask .* shape \(4, 2\), expected \[3, 2\].*Set action_mask = .*\[3, 2\]"),
        ({"wrong": "actions"}, r"action_space of a team of agent_num=3 .*Set action_space to that of one agent"),
        ({"continuous": True}, r"action_mask .*leave it out of continuous actions"),
    ],
)
@pytest.mark.parametrize("kind", [GYM, THEIRS])
def test_spaces_of_another_form_are_one_error(kind: str, kwargs: dict[str, Any], expected: str) -> None:
    with pytest.raises(EnvError, match=re.compile(expected, re.DOTALL)):
        made(kind, **kwargs)


WRONG_ANSWERS: list[tuple[dict[str, Any], str]] = [
    ({"reward": "wrong"}, "the reward of NAME has 4 numbers; a team of agent_num=3 is paid one, or 3"),
    ({"wrong": "mask"}, r"action_mask of NAME has shape \(3, 3\), its observation space says \(3, 2\)"),
    ({"wrong": "missing"}, "the observation of NAME has the keys .*; its space names 'agent_state'"),
    ({"wrong": "dones"}, r"step\(\) of NAME (ended with|returned done) .*: return (one|a) bool"),
]


@pytest.mark.parametrize(("kwargs", "expected"), WRONG_ANSWERS)
@pytest.mark.parametrize("kind", [GYM, THEIRS])
def test_answers_of_another_form_end_a_run_at_once(kind: str, kwargs: dict[str, Any], expected: str) -> None:
    manager = create_env_manager({"type": "base"}, [EnvFactory({"type": kind, "kwargs": kwargs})])
    manager.launch()

    with pytest.raises(EnvError, match=expected.replace("NAME", kind.partition(":")[2])):
        for _ in range(3):
            manager.step(np.arange(1), np.zeros((1, AGENTS), np.int64))
    manager.close()


@pytest.mark.parametrize("env", [Lights, LightsInTheirStyle])
def test_a_team_in_this_form_has_no_fault(env: Any) -> None:
    found = check_env(env, num_steps=50)

    assert any("in DI-engine's style" in each.seen for each in found) == (env is LightsInTheirStyle)
    assert [each for each in found if each.level == "fault"] == []


@pytest.mark.parametrize(
    ("kwargs", "topic", "seen", "fix"),
    [
        ({"wrong": "no agent_state"}, "environment", "not what each agent sees", "set observation_space = spaces.Dict"),
        ({"reward": "wrong"}, "form", "has 4 numbers", "return float(reward), or an array [3]"),
        ({"wrong": "mask"}, "form", "has shape (3, 3)", "give both the same shape"),
        ({"wrong": "missing"}, "form", "its space names 'agent_state'", "return it too"),
        ({"wrong": "dones"}, "form", "a team ends as a whole", "return one bool"),
    ],
)
def test_the_check_names_what_is_wrong_and_the_fix(kwargs: dict[str, Any], topic: str, seen: str, fix: str) -> None:
    first = check_env(lambda: Lights(**kwargs), num_steps=50)[0]

    assert (first.level, first.topic) == ("fault", topic)
    assert seen in first.seen and fix in first.fix
