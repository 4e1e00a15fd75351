"""Games in a parallel run: naive self-play, and a league whose games the commander hands out."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from ding_like.config import deep_merge
from ding_like.entry import parallel_pipeline

MAIN: dict[str, Any] = dict(
    exp_name="games",
    env=dict(collector_env_num=8, evaluator_env_num=4, n_evaluator_episode=8),
    policy=dict(
        model=dict(encoder_hidden_size_list=[4]),
        collect=dict(n_sample=64),
        eval=dict(evaluator=dict(eval_freq=50)),
    ),
)
CREATE: dict[str, Any] = dict(
    env=dict(type="matrix_game", import_names=["dizoo.league_demo.matrix_game"]),
    env_manager=dict(type="game"),
    policy=dict(type="a2c"),
)
LEAGUE = dict(games_per_job=64, naive_sp_player=dict(one_phase_step=5))


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_tmp")]


def test_one_policy_plays_both_sides() -> None:
    found = parallel_pipeline((MAIN, CREATE, dict(num_collectors=1)), seed=0, max_env_step=1280)

    assert found.env_step >= 1280 and found.train_iter == found.env_step // 64
    assert set(found.eval_value_raw) <= {-2.0, -1.0, 0.0, 1.0, 2.0}


def test_a_league_plays_and_its_snapshots_weights_are_kept() -> None:
    main = deep_merge(MAIN, dict(policy=dict(other=dict(league=LEAGUE))))
    create = deep_merge(CREATE, dict(league=dict(type="one_vs_one"), commander=dict(type="one_vs_one")))
    system = dict(num_collectors=2, path_data="data", path_policy="policy")

    parallel_pipeline((main, create, system), seed=0, max_env_step=3200)

    with sqlite3.connect("games/coordinator.sqlite") as db:
        (text,) = db.execute("SELECT value FROM item WHERE kind = 'run'").fetchone()
    db.close()
    commander = json.loads(text)["commander"]
    league, weights = commander["league"], commander["weights"]
    names = [each["player_id"] for each in league["historical"]]
    files = {path.name for path in Path("policy/policy").iterdir()}

    assert len(names) > 2 and list(weights) == names
    assert sum(league["finished_games"].values()) > 1000
    assert league["payoff"]["pairs"], "games against snapshots were counted"
    versions = [each["version"] for each in weights.values()]
    assert versions == sorted(versions) and versions[0] == 0
    assert all(any(f".{version}." in name or str(version) in name for name in files) for version in versions)
