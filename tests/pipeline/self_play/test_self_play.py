"""Self-play and leagues from a config: whole runs, resumed ones, and configs that cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.config import deep_merge
from ding_like.entry import resume_pipeline, serial_pipeline, serial_pipeline_onpolicy
from ding_like.errors import ConfigError
from ding_like.utils.checkpoint import load_state
from dizoo.league_demo.cartpole_pair import CartPolePair

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")

MATRIX: dict[str, Any] = dict(
    exp_name="matrix",
    env=dict(collector_env_num=8, evaluator_env_num=4, n_evaluator_episode=8),
    policy=dict(
        model=dict(encoder_hidden_size_list=[4]), collect=dict(n_sample=64), eval=dict(evaluator=dict(eval_freq=10))
    ),
)
MATRIX_CREATE: dict[str, Any] = dict(
    env=dict(type="matrix_game", import_names=["dizoo.league_demo.matrix_game"]),
    env_manager=dict(type="game"),
    policy=dict(type="a2c"),
)
BOARD: dict[str, Any] = dict(
    exp_name="board",
    env=dict(
        env_id="classic/tictactoe-v3", flatten=True, collector_env_num=4, evaluator_env_num=4, n_evaluator_episode=8
    ),
    policy=dict(
        random_collect_size=64,
        model=dict(encoder_hidden_size_list=[8]),
        learn=dict(update_per_collect=1, batch_size=16),
        collect=dict(n_sample=32),
        eval=dict(evaluator=dict(eval_freq=10)),
        other=dict(league=dict(games_per_job=8, naive_sp_player=dict(one_phase_step=5))),
    ),
)
BOARD_CREATE: dict[str, Any] = dict(
    env=dict(type="petting_zoo"), env_manager=dict(type="game"), policy=dict(type="dqn"), league=dict(type="one_vs_one")
)


def test_one_policy_plays_both_sides_and_learns_from_both() -> None:
    serial_pipeline_onpolicy((MATRIX, MATRIX_CREATE), seed=0, max_env_step=640)
    result = json.loads(Path("matrix/result.json").read_text())

    # 8 games of two lanes each: 640 moves are 320 games.
    assert result["env_step"] == 640 and result["train_iter"] == 10
    assert set(result["eval_value_raw"]) <= {-2.0, -1.0, 0.0, 1.0, 2.0} and len(result["eval_value_raw"]) == 20


def test_a_league_grows_and_a_resumed_run_goes_on_with_it() -> None:
    serial_pipeline((BOARD, BOARD_CREATE), seed=0, max_env_step=1000)
    table = json.loads(Path("board/league.json").read_text())
    names = [line["player"] for line in table]

    assert names[:2] == ["naive_sp_player_0", "naive_sp_player_0_0_historical"] and len(names) > 2
    files = sorted(path.name for path in Path("board/league").iterdir())
    assert files == sorted(f"{name}.pth.tar" for name in names[1:])
    assert set(load_state(Path("board/league", files[0]))) == {"model"}
    told = [json.loads(line) for line in Path("board/metrics.jsonl").read_text().splitlines()]
    assert any(line["source"] == "league" and "elo" in line for line in told)

    resume_pipeline("board", max_env_step=2000)

    later = [line["player"] for line in json.loads(Path("board/league.json").read_text())]
    assert later[: len(names)] == names and len(later) > len(names)


def test_the_opponent_of_evaluations_is_as_the_config_says() -> None:
    for opponent in ("self", "missing.pth.tar"):
        main = deep_merge(MATRIX, dict(env=dict(manager=dict(opponent=opponent)), exp_name=opponent))
        if opponent == "self":
            serial_pipeline_onpolicy((main, MATRIX_CREATE), seed=0, max_env_step=64)
            assert Path("self/result.json").is_file()
            main["env"]["manager"]["opponent"] = str(next(Path("self/ckpt").glob("iteration_*")))
            serial_pipeline_onpolicy((main, MATRIX_CREATE), seed=0, max_env_step=64)
        else:
            with pytest.raises(ConfigError, match=r"missing.pth.tar.*'random', 'self'"):
                serial_pipeline_onpolicy((main, MATRIX_CREATE), seed=0, max_env_step=64)


def test_leagues_that_cannot_be_are_refused() -> None:
    wrong: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({}, {"env_manager": {"type": "base"}}, "env_manager=dict\\(type='game'\\)"),
        ({"policy": {"other": {"league": {"active_players": {"main_player": 2}}}}}, {}, "trains one player"),
        ({"policy": {"other": {"league": {"active_players": {"main_exploiter": 1}}}}}, {}, "trains one player"),
        ({"policy": {"other": {"league": {"payof": {}}}}}, {}, "payof"),
        ({"env": {"env_id": "classic/no_such_game-v0"}}, {}, "no_such_game"),
    ]
    for main, create, message in wrong:
        with pytest.raises(ConfigError, match=message):
            serial_pipeline((deep_merge(BOARD, main), deep_merge(BOARD_CREATE, create)), seed=0, max_env_step=64)


def test_the_cartpole_pair_is_a_fair_game() -> None:
    """What one wins the other loses, both see the same from their sides, and a game ends in time."""
    pair = CartPolePair({"max_steps": 30})
    rng = np.random.default_rng(0)
    ends = set()
    for seed in range(40):
        obs, to_move = pair.reset(seed=seed)
        assert list(to_move) == [0, 1] and not np.array_equal(obs[0], obs[1])
        while to_move:
            assert np.array_equal(obs[0][:4], obs[1][4:]) and np.array_equal(obs[0][4:], obs[1][:4])
            step = pair.step({0: int(obs[0][2] > 0), 1: int(rng.integers(2))})
            obs, to_move = step.obs, step.to_move
            assert sum(step.reward) == 0.0
        ends.add((step.terminated[0], step.truncated[0], step.reward[0]))
    pair.close()

    assert (True, False, 1.0) in ends and (False, True, 0.0) in ends
