"""Teams' games in dizoo: they pay what their papers say, and their best returns are known by trying everything."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from ding_like.config import compile_config
from ding_like.envs import make_env
from ding_like.errors import ConfigError
from dizoo.multi_agent.switch_game import BEST_RETURNS, STEPS, SwitchGame, move
from dizoo.multi_agent.team_matrix_game import PAYOFFS, TeamMatrixGame
from dizoo.multi_agent.two_step_game import TwoStepGame


def played(team: Any, actions: list[Any]) -> list[tuple[Any, float, bool, bool, Any]]:
    team.reset(seed=0)
    return [team.step(np.array(action)) for action in actions]


@pytest.mark.parametrize(
    ("game", "best", "where"),
    [
        ("climbing", 11.0, [(0, 0)]),
        ("penalty", 10.0, [(0, 0), (2, 2)]),
        ("monotonic", 8.0, [(1, 1)]),
        ("nonmonotonic", 8.0, [(0, 0)]),
    ],
)
def test_a_matrix_game_pays_its_matrix_and_ends(game: str, best: float, where: list[tuple[int, int]]) -> None:
    team = TeamMatrixGame({"game": game})
    choices = list(itertools.product(*(range(size) for size in team.payoff.shape)))
    steps = {choice: played(team, [choice])[0] for choice in choices}

    assert [choice for choice in choices if steps[choice][1] == best] == where
    assert max(step[1] for step in steps.values()) == best
    for choice, (obs, reward, terminated, truncated, info) in steps.items():
        assert reward == team.payoff[choice] and terminated and not truncated
        assert obs["rewards"].tolist() == [reward] * 2 and obs["ended"].tolist() == [1, 1]
        assert info["episode_info"] == {"return_agent_0": reward, "return_agent_1": reward}


def test_sums_of_agents_values_miss_the_monotonic_game_and_a_monotonic_mixer_the_nonmonotonic_one() -> None:
    """The best sum q_0[a] + q_1[b] is that of the means; growing values need rows that lie above each other."""

    def best_sum(payoff: Any) -> Any:
        return payoff.mean(axis=1, keepdims=True) + payoff.mean(axis=0, keepdims=True) - payoff.mean()

    def is_monotonic(payoff: Any) -> bool:
        pairs = itertools.combinations(payoff, 2)
        return all((one >= other).all() or (one <= other).all() for one, other in pairs)

    monotonic, other = PAYOFFS["monotonic"], PAYOFFS["nonmonotonic"]
    assert best_sum(monotonic) == pytest.approx(np.array([[-1.5, 2.5], [2.5, 6.5]]))
    assert is_monotonic(monotonic) and is_monotonic(monotonic.T)
    assert not is_monotonic(other) and best_sum(other).argmax() != other.argmax()


def test_an_unknown_game_is_refused_with_the_names() -> None:
    with pytest.raises(ConfigError, match="must be 'climbing', 'penalty', 'monotonic' or 'nonmonotonic', got 'climb'"):
        compile_config(
            {"env": {"game": "climb"}},
            {
                "env": {"type": "team_matrix_game", "import_names": ["dizoo.multi_agent.team_matrix_game"]},
                "env_manager": {"type": "base"},
                "policy": {"type": "qmix"},
            },
        )


def best_return(agents: int) -> float:
    """Return the best return of the switch game, over all joint actions of all states in reach."""
    team = SwitchGame({"agents": agents})
    team.reset(seed=0)
    over = tuple([None] * agents)
    reached: dict[Any, float] = {tuple(team._places): 0.0}  # where agents are -> best return so far
    arrived = -np.inf
    for _ in range(STEPS):
        following: dict[Any, float] = {}
        for places, so_far in reached.items():
            for actions in itertools.product(*(range(5) if place else (0,) for place in places)):
                now, rewards = move(places, actions, team._goals)
                total = so_far + sum(rewards)
                following[tuple(now)] = max(total, following.get(tuple(now), -np.inf))
        arrived = max(arrived, following.pop(over, -np.inf))
        reached = following
    return max(arrived, *reached.values())


@pytest.mark.parametrize(("agents", "best"), [(2, 1.15), pytest.param(3, 1.6, marks=pytest.mark.slow)])
def test_the_best_return_of_the_switch_game(agents: int, best: float) -> None:
    assert best_return(agents) == pytest.approx(best) == pytest.approx(BEST_RETURNS[agents])


def test_the_best_play_of_the_switch_game_in_its_steps() -> None:
    """Agent 0 goes round agent 1, who makes room, and leaves; agent 1 follows the other way."""
    down, left, right, up, stay = 2, 3, 4, 1, 0
    first = [down, right, right, right, right, up]
    second = [down, down, stay, stay, stay, up, left, left, left, left, up]
    steps = played(SwitchGame(), [(one, two) for one, two in itertools.zip_longest(first, second, fillvalue=0)])

    assert sum(step[1] for step in steps) == pytest.approx(BEST_RETURNS[2])
    assert [step[2] for step in steps] == [False] * 10 + [True]
    assert [step[0]["alive"].tolist() for step in steps] == [[1, 1]] * 5 + [[0, 1]] * 5 + [[0, 0]]
    assert [step[0]["ended"].tolist() for step in steps[-2:]] == [[1, 0], [1, 1]]
    assert steps[5][0]["rewards"].tolist() == pytest.approx([0.95, -0.05])
    assert steps[6][0]["rewards"].tolist() == pytest.approx([0.0, -0.05])
    assert steps[6][0]["action_mask"][0].tolist() == [1, 0, 0, 0, 0], "it has left: nothing is to do"
    returns = steps[-1][4]["episode_info"]
    assert returns == pytest.approx({"return_agent_0": 0.7, "return_agent_1": 0.45})


def test_the_switch_game_shows_where_agents_are_until_they_arrive() -> None:
    game = SwitchGame({"render_mode": "rgb_array"})
    game.reset(seed=0)
    first = game.render()
    blue, red = first[30, 30].tolist(), first[30, 270].tolist()

    assert first.shape == (180, 300, 3) and blue != red and first[30, 150].tolist() == [60, 60, 60]
    for action in (2, 4, 4, 4, 4, 1):
        game.step(np.array([action, 2 if action == 2 or game._places[1] == (1, 4) else 0]))
    last = game.render()
    assert game._places[0] is None and last[30, 30].tolist() != blue
    assert last[150, 270].tolist() == red, "agent 1 has made room"


def test_the_time_of_the_switch_game_runs_out_for_agents_who_would_go_on() -> None:
    steps = played(SwitchGame(), [(0, 0)] * STEPS)

    obs, reward, terminated, truncated, _ = steps[-1]
    assert reward == pytest.approx(-0.1) and truncated and not terminated
    assert obs["alive"].tolist() == [1, 1] and obs["ended"].tolist() == [0, 0]
    assert not any(step[3] for step in steps[:-1])


def test_teams_of_dizoo_are_envs_as_gymnasium_wants_them() -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*observation space m.*imum value is -?infinity.*")
        for env in (TwoStepGame(), TeamMatrixGame(), SwitchGame()):
            check_env(env, skip_render_check=True)


def test_games_are_made_by_their_types() -> None:
    for name in ("team_matrix_game", "switch_game", "two_step_game"):
        env = make_env({"type": name, "import_names": [f"dizoo.multi_agent.{name}"]})
        assert env.reset(seed=0)[0]["alive"].tolist() == [1, 1]


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
