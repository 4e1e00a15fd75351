"""Leagues: win rates with decay, matchmaking, snapshots, ratings, saving."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.errors import ConfigError, RegistryError, SchemaError
from ding_like.league import BattleSharedPayoff, OneVsOneLeague, Ratings, create_league, pfsp


def job(home: str, away: str, *results: Any) -> dict[str, Any]:
    return {"player_id": [home, away], "result": list(results)}


def make(folder: Path, **cfg: Any) -> OneVsOneLeague:
    league = create_league(
        {"path_policy": str(folder), **cfg}, rng=np.random.default_rng(0), save_checkpoint=lambda source, target: None
    )
    assert isinstance(league, OneVsOneLeague)
    return league


# --- payoff


def test_the_win_rate_is_that_of_the_slow_obvious_way() -> None:
    payoff, rng = BattleSharedPayoff({"decay": 0.9, "min_win_rate_games": 3}), np.random.default_rng(0)
    results = rng.integers(-1, 2, 40).tolist()
    for start in range(0, 40, 7):
        payoff.update(job("b", "a", *results[start : start + 7]))

    weights = [0.9 ** (len(results) - 1 - index) for index in range(len(results))]
    won = sum(weight * (result + 1) / 2 for weight, result in zip(weights, results, strict=True))
    assert payoff.win_rate("b", "a") == pytest.approx(won / sum(weights))
    assert payoff.win_rate("a", "b") == pytest.approx(1 - won / sum(weights))
    assert payoff["b", ["a", "b"]].tolist() == [[payoff.win_rate("b", "a"), 0.5]] and payoff.num_games("a", "b") == 40


def test_few_games_say_nothing_and_later_ones_weigh_more() -> None:
    payoff = BattleSharedPayoff()
    payoff.update(job("a", "b", *["wins"] * 7))
    assert payoff.win_rate("a", "b") == 0.5
    payoff.update(job("b", "a", "losses"))
    assert payoff.win_rate("a", "b") == 1.0
    payoff.update(job("a", "b", *["losses"] * 8))
    assert payoff.win_rate("a", "b") < 0.5


def test_results_that_are_none_are_refused_and_change_nothing() -> None:
    payoff = BattleSharedPayoff({"min_win_rate_games": 1})
    with pytest.raises(SchemaError, match="results"):
        payoff.update(job("a", "b", "wins", "won"))
    assert payoff.num_games("a", "b") == 0
    payoff.update(job("a", "a", "wins"))
    assert payoff.win_rate("a", "a") == 0.5 and not payoff.state_dict()["pairs"]
    with pytest.raises(ConfigError, match="decay"):
        BattleSharedPayoff({"decay": 0.0})


# --- matchmaking


def test_pfsp_weights_by_the_papers_functions() -> None:
    rates = [0.0, 0.5, 1.0]
    assert pfsp(rates, "squared") == pytest.approx(np.array([1.0, 0.25, 0.0]) / 1.25)
    assert pfsp(rates, "variance").tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("weighting", ["squared", "variance"])
def test_pfsp_is_even_where_everybody_is_beaten(weighting: str) -> None:
    assert pfsp([1.0, 1.0, 1.0, 1.0], weighting).tolist() == [0.25] * 4
    assert np.isfinite(pfsp([1.0 - 1e-200, 1.0], weighting)).all()


def test_pfsp_refuses_what_are_no_win_rates() -> None:
    for rates in ([], [float("nan")], [1.5], [[0.5]]):
        with pytest.raises(ConfigError, match="win rates"):
            pfsp(rates)
    with pytest.raises(ConfigError, match="weighting"):
        pfsp([0.5], "linear")


# --- players and league


def test_opponents_are_drawn_by_branch_and_by_strength(tmp_path: Path) -> None:
    league = make(tmp_path, naive_sp_player={"branch_probs": {"pfsp": 0.75, "sp": 0.25}})
    player = league.active_players_ids[0]
    league.begin()
    for _ in range(2):
        league.judge_snapshot(player, force=True)
    names = [each.player_id for each in league.historical_players]
    for name, wins in zip(names, (10, 5, 0), strict=True):
        league.finish_job(job(player, name, *["wins"] * wins, *["losses"] * (10 - wins)))

    drawn = [league.get_job_info(player)["player_id"][1] for _ in range(4000)]

    shares = {name: drawn.count(name) / 4000 for name in [player, *names]}
    expected = 0.75 * pfsp(league.payoff[player, names][0])
    assert shares[player] == pytest.approx(0.25, abs=0.03)
    assert [shares[name] for name in names] == pytest.approx(expected.tolist(), abs=0.03)


def test_a_job_says_who_plays_and_who_learns(tmp_path: Path) -> None:
    league = make(tmp_path, naive_sp_player={"branch_probs": {"pfsp": 1.0}})
    league.begin()

    found = league.get_job_info("naive_sp_player_0")

    assert found == {
        "agent_num": 2,
        "launch_player": "naive_sp_player_0",
        "player_id": ["naive_sp_player_0", "naive_sp_player_0_0_historical"],
        "checkpoint_path": [
            f"{tmp_path}/naive_sp_player_0.pth.tar",
            f"{tmp_path}/naive_sp_player_0_0_historical.pth.tar",
        ],
        "player_active_flag": [True, False],
    }
    assert league.get_job_info(eval_flag=True)["eval_opponent"] == "random"


def test_a_snapshot_is_taken_when_strong_enough_or_after_two_phases(tmp_path: Path) -> None:
    league = make(tmp_path, naive_sp_player={"one_phase_step": 10})
    player = "naive_sp_player_0"
    league.begin()
    (first,) = league.historical_players

    def is_taken(step: int) -> bool:
        league.update_active_player({"player_id": player, "train_iteration": step})
        return league.judge_snapshot(player) is not None

    league.finish_job(job(player, first.player_id, *["wins"] * 20))
    assert not is_taken(9)
    assert is_taken(10)
    assert not is_taken(25), "nothing is known of games against the new snapshot"
    assert is_taken(30)
    assert [each.total_agent_step for each in league.historical_players] == [0, 10, 30]


def test_a_snapshot_copies_the_weights(tmp_path: Path) -> None:
    league = create_league({"path_policy": str(tmp_path)}, rng=np.random.default_rng(0))
    (tmp_path / "naive_sp_player_0.pth.tar").write_bytes(b"first")

    league.begin()
    (tmp_path / "naive_sp_player_0.pth.tar").write_bytes(b"later")

    assert Path(league.historical_players[0].checkpoint_path).read_bytes() == b"first"


def test_the_kinds_of_players_of_the_paper(tmp_path: Path) -> None:
    league = make(tmp_path, active_players={"main_player": 1, "main_exploiter": 1, "league_exploiter": 1})
    league.begin()
    main, main_past = "main_player_0", "main_player_0_0_historical"
    opponents = {
        name: {league.get_job_info(name)["player_id"][1] for _ in range(200)} for name in league.active_players_ids
    }
    past = {each.player_id for each in league.historical_players}

    assert opponents[main] == past | {main}
    assert opponents["main_exploiter_0"] == {main}
    assert opponents["league_exploiter_0"] == past
    # An exploiter that loses always to the main player plays its snapshots; a main player looks at what it forgot.
    league.finish_job(job("main_exploiter_0", main, *["losses"] * 10))
    assert {league.get_job_info("main_exploiter_0")["player_id"][1] for _ in range(50)} == {main_past}
    assert league.is_to_reset("main_exploiter_0") and not league.is_to_reset(main)
    resets = [league.is_to_reset("league_exploiter_0") for _ in range(1000)]
    assert sum(resets) / 1000 == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        ({"active_players": {"main_player": 0}}, "at least one"),
        ({"active_players": {"historical_player": 1}}, "does not learn"),
        ({"naive_sp_player": {"branch_probs": {"pfsp": 0.5}}}, "sum to 1"),
        ({"naive_sp_player": {"branch_probs": {"best": 1.0}}}, "pfsp, sp"),
    ],
)
def test_leagues_that_cannot_be_are_refused(tmp_path: Path, cfg: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(tmp_path, **cfg)
    with pytest.raises(RegistryError):
        make(tmp_path, active_players={"unknown_player": 1})
    with pytest.raises(ConfigError, match="no player"):
        make(tmp_path).finish_job(job("naive_sp_player_0", "unknown_player_0", "wins"))


def test_a_saved_league_goes_on_as_the_other_does(tmp_path: Path) -> None:
    league = make(tmp_path)
    league.begin()
    league.finish_job(job("naive_sp_player_0", "naive_sp_player_0_0_historical", *[1, 0, -1] * 5))
    league.judge_snapshot("naive_sp_player_0", force=True)
    saved = json.loads(json.dumps(league.state_dict()))

    other = make(tmp_path)
    other.load_state_dict(saved)

    assert other.table() == league.table()
    mine = [league.get_job_info() for _ in range(30)]
    assert [other.get_job_info() for _ in range(30)] == mine
    with pytest.raises(ConfigError, match="main_player_0"):
        make(tmp_path, active_players={"main_player": 1}).load_state_dict(saved)


# --- ratings


def test_elo_is_that_of_the_formula() -> None:
    ratings = Ratings()
    ratings.add("a")
    ratings.add("b")
    ratings.update("a", "b", 1)
    assert (ratings.elo["a"], ratings.elo["b"]) == (1016.0, 984.0)
    ratings.update("b", "a", 0)
    expected = 1 / (1 + 10 ** ((1016 - 984) / 400))
    assert ratings.elo["b"] == pytest.approx(984 + 32 * (0.5 - expected))
    assert sum(ratings.elo.values()) == pytest.approx(2000.0)


def test_skills_find_the_order_of_players() -> None:
    """Bradley-Terry players of known strength: the skills' order is theirs, and deviations shrink."""
    ratings, rng, strength = Ratings(), np.random.default_rng(0), {"weak": 1.0, "middle": 3.0, "strong": 9.0}
    for name in strength:
        ratings.add(name)
    for _ in range(300):
        home, away = rng.choice(list(strength), 2, replace=False).tolist()
        wins = rng.random() < strength[home] / (strength[home] + strength[away])
        ratings.update(home, away, 1 if wins else -1)

    means = [ratings.skill(name)[0] for name in strength]
    elo = [ratings.elo[name] for name in strength]
    assert means == sorted(means) and elo == sorted(elo)
    assert all(ratings.skill(name)[1] < 25 / 3 for name in strength)
    ratings.add("copy", like="strong")
    assert ratings.skill("copy") == ratings.skill("strong") and ratings.elo["copy"] == ratings.elo["strong"]
