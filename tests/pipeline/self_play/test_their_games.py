"""Games in DI-engine's own form, and gymnasium's, train by self-play and in a league, and battle in a loop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.entry import serial_pipeline
from ding_like.envs import BaseEnvManager, EnvFactory, create_env_manager
from ding_like.envs.game import as_game
from ding_like.worker import create_serial_collector, create_serial_evaluator
from ding_like.worker.collector.battle import BattleSampleSerialCollector
from tests.pipeline.self_play.dilemma import FORMS, GymnasiumsDilemma, OldDilemma, TheirDilemma
from tests.worker.test_di_engine_games import mode

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")

KINDS = {"TheirDilemma": TheirDilemma, "OldDilemma": OldDilemma, "GymnasiumsDilemma": GymnasiumsDilemma}


def env_section(kind: str, form: str) -> dict[str, Any]:
    return {"form": form} if kind == "TheirDilemma" else {"kwargs": {"form": form}}


@pytest.mark.parametrize("is_league", [False, True])
@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("TheirDilemma", "one"),
        ("GymnasiumsDilemma", "list"),
        *(pytest.param(kind, form, marks=pytest.mark.slow) for kind in KINDS for form in FORMS),
    ],
)
def test_a_game_of_users_trains_by_itself_and_in_a_league(kind: str, form: str, is_league: bool) -> None:
    league = dict(active_players=dict(main_player=1), games_per_job=8, main_player=dict(one_phase_step=8))
    main = dict(
        exp_name="exp",
        env=dict(
            collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=4, stop_value=1e9, **env_section(kind, form)
        ),
        policy=dict(
            model=dict(encoder_hidden_size_list=[8]),
            learn=dict(update_per_collect=2, batch_size=8),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=10)),
            **(dict(other=dict(league=league)) if is_league else {}),
        ),
    )
    create = dict(
        env=dict(type=f"tests.pipeline.self_play.dilemma:{kind}"),
        env_manager=dict(type="game"),
        policy=dict(type="dqn"),
        **(dict(league=dict(type="one_vs_one")) if is_league else {}),
    )

    serial_pipeline((main, create), seed=0, max_train_iter=20)

    result = json.loads(Path("exp/result.json").read_text())
    assert result["train_iter"] >= 20 and 0.0 <= result["eval_value"] <= 4.0
    if is_league:
        players = [row["player"] for row in json.loads(Path("exp/league.json").read_text())]
        assert players[0] == "main_player_0" and len(players) > 1, "it has snapshots"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("theirs", [True, False])
def test_games_of_users_are_battled_in_both_kinds_of_managers(kind: str, form: str, theirs: bool) -> None:
    make = EnvFactory({"type": f"tests.pipeline.self_play.dilemma:{kind}", **env_section(kind, form)})

    def manager() -> Any:
        return BaseEnvManager([make] * 2) if theirs else create_env_manager({"type": "game"}, [make] * 2)

    cfg = {**BattleSampleSerialCollector.default_config(), "type": "battle_sample"}
    collector = create_serial_collector(cfg, env=manager(), policy=[mode(), mode()])
    data, infos = collector.collect(n_sample=6)
    evaluator = create_serial_evaluator(
        {"type": "battle_interaction", "eval_freq": 50}, env=manager(), policy=[mode(), mode()]
    )
    _, evaluated = evaluator.eval(n_episode=4)

    assert [each["reward"].tolist() for each in data] == [[3.0] * 6] * 2, "both cooperate"
    assert [each["obs"][0].tolist() for each in data] == [[1.0, 0.0], [0.0, 1.0]]
    for found in (infos, evaluated):
        assert [{info["result"] for info in mine} for mine in found] == [{"draws"}] * 2
        assert {float(info["eval_episode_return"]) for mine in found for info in mine} == {3.0}
    collector.close()
    evaluator.close()


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("cut", [False, True])
def test_a_game_in_gymnasiums_form_is_seeded_and_ends_by_its_flags(each: bool, cut: bool) -> None:
    env = GymnasiumsDilemma(each=each, cut=cut)
    game = as_game(env)
    game.reset(7)
    step = game.step({0: 1, 1: 0})

    assert env.seeds[-1] == 7
    assert (list(step.reward), list(step.to_move)) == ([4.0, 0.0], [])
    assert (list(step.terminated), list(step.truncated)) == ([not cut] * 2, [cut] * 2)
    assert np.array_equal(step.obs, np.eye(2))
