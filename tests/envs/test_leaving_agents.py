"""Agents that leave a team before the others: what the team observes, in every env manager."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pettingzoo
import pytest

from ding_like.envs import EnvFactory, check_env, create_env_manager, make_env
from ding_like.envs.adapters import as_lane_env
from ding_like.envs.team import ParallelTeam
from ding_like.errors import EnvError
from ding_like.policy.di_engine_view import RandomActor
from tests.envs.leaving import LEAVES_AFTER, RETURNS, STEPS, Leaving, expected, legal

KIND = "tests.envs.leaving:Leaving"
WAYS = [(leaves, ends) for leaves in ("terminated", "truncated") for ends in ("terminated", "truncated")]


def is_expected(obs: Any, time: int, *, leaves: str, ends: str) -> bool:
    known = expected(time, leaves=leaves, ends=ends)
    return all(obs[name].tolist() == value for name, value in known.items())


@pytest.mark.parametrize(("leaves", "ends"), WAYS)
@pytest.mark.parametrize("mask", ["obs", "info"])
def test_what_a_team_observes_when_an_agent_leaves(leaves: str, ends: str, mask: str) -> None:
    team = make_env({"type": KIND, "kwargs": {"leaves": leaves, "ends": ends, "mask": mask}})
    assert isinstance(team, ParallelTeam)
    for _ in range(2):
        obs, _ = team.reset(seed=0)
        assert is_expected(obs, 0, leaves=leaves, ends=ends)
        for time in range(1, STEPS + 1):
            gone = [1, 0, 0]
            assert obs["action_mask"][0].tolist() == legal(time - 1).tolist()
            assert obs["action_mask"][1].tolist() == (legal(time - 1).tolist() if time <= LEAVES_AFTER else gone)
            obs, reward, terminated, truncated, info = team.step(obs["action_mask"].argmax(axis=1))
            assert is_expected(obs, time, leaves=leaves, ends=ends)
            over = time == STEPS
            assert (terminated, truncated) == (over and ends == "terminated", over and ends == "truncated")
            assert reward == (11.0 if time <= LEAVES_AFTER else 1.0)
        assert info["episode_info"] == {f"return_{name}": value for name, value in RETURNS.items()}


@pytest.mark.parametrize(
    "manager",
    ["base", "gym_vector", pytest.param("subprocess", marks=pytest.mark.slow)]
    + [pytest.param("async_subprocess", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize(("leaves", "ends"), [("terminated", "truncated"), ("truncated", "terminated")])
def test_every_manager_gives_what_the_env_gives_also_at_the_end_and_after_a_reset(
    manager: str, leaves: str, ends: str
) -> None:
    cfg = {"type": KIND, "kwargs": {"leaves": leaves, "ends": ends}}
    with closing(create_env_manager({"type": manager}, [EnvFactory(cfg)] * 2)) as envs:
        envs.seed(0)
        envs.launch()
        random, rng, ended = RandomActor(envs.action_space), np.random.default_rng(0), 0
        times = np.zeros(2, int)
        while ended < 4:
            lanes = np.flatnonzero(envs.ready)
            obs = rows_of(envs.obs, lanes)
            for row, lane in enumerate(lanes):
                assert is_expected(rows_of(obs, row), times[lane], leaves=leaves, ends=ends)
            acted = random.act(obs, lanes=lanes, is_first=times[lanes] == 0, rng=rng)
            batch = envs.step(lanes, acted["action"])
            assert not len(batch.dropped)
            for row, lane in enumerate(batch.lanes):
                times[lane] += 1
                assert is_expected(rows_of(batch.next_obs, row), times[lane], leaves=leaves, ends=ends)
                if batch.terminated[row] or batch.truncated[row]:
                    assert times[lane] == STEPS and bool(batch.truncated[row]) == (ends == "truncated")
                    times[lane], ended = 0, ended + 1


def rows_of(obs: Any, rows: Any) -> dict[str, Any]:
    return {name: part[rows].copy() for name, part in obs.items()}


def test_random_actions_are_legal_and_all_that_are_legal_are_drawn() -> None:
    team = make_env({"type": KIND})
    obs, _ = team.reset(seed=0)
    rows = {name: np.repeat(part[None], 300, axis=0) for name, part in obs.items()}
    rows["action_mask"][:, 1] = [1, 0, 0]
    lanes = np.arange(300)
    drawn = RandomActor(team.action_space).act(rows, lanes=lanes, is_first=lanes < 0, rng=np.random.default_rng(0))[
        "action"
    ]

    assert set(drawn[:, 0].tolist()) == {1, 2} and set(drawn[:, 1].tolist()) == {0}


def test_a_team_of_a_parallel_env_has_no_fault_and_agents_who_act_in_turn_are_refused() -> None:
    found = check_env(Leaving, num_steps=60)
    assert [each for each in found if each.level == "fault"] == []

    with pytest.raises(EnvError, match="act in turn; a team acts at once.*aec_to_parallel"):
        as_lane_env(pettingzoo.make("aec", "classic/tictactoe-v3"))


def test_continuous_actions_of_an_agent_that_left_have_no_effect() -> None:
    team = make_env({"type": KIND, "kwargs": {"continuous": True, "mask": ""}})
    obs, _ = team.reset(seed=0)
    for time in range(1, STEPS + 1):
        obs, *_ = team.step(np.full(4, 0.5, np.float32))
        assert is_expected(obs, time, leaves="terminated", ends="truncated")
    assert "action_mask" not in obs
