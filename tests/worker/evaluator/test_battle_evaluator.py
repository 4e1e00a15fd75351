"""The battle evaluator plays whole games, as many as asked for, and judges by player 0."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ding_like.envs.manager.game import GameEnvManager
from ding_like.errors import ConfigError
from ding_like.worker import create_serial_evaluator
from tests.worker.collector.scripted_game import ScriptedActor
from tests.worker.collector.test_battle import manager_of


def mode() -> Any:
    return SimpleNamespace(
        actor=ScriptedActor(), forward=None, reset=None, get_attribute=None, set_attribute=None, state_dict=None,
        load_state_dict=None,
    )  # fmt: skip


def evaluator_of(folder: Path, manager: GameEnvManager, **cfg: Any) -> Any:
    own = {"type": "interaction_1v1", "eval_freq": 50, **cfg}
    return create_serial_evaluator(own, env=manager, policy=[mode(), mode()], exp_name=str(folder))


@pytest.mark.parametrize("in_turn", [False, True])
def test_the_first_games_of_each_env_count(tmp_path: Path, in_turn: bool) -> None:
    lengths = (3, 5, 2, 4)
    manager = manager_of(in_turn=in_turn, lengths=lengths)
    evaluator = evaluator_of(tmp_path, manager, stop_value=400.0)
    saved: list[str] = []

    stop, infos = evaluator.eval(saved.append, train_iter=7, envstep=3, n_episode=7)

    # Game e's first episode was begun at launch and broken off by the evaluation's reset: the next one is number 1.
    expected, moves_of_all = [], []
    for player in (0, 1):
        returns = []
        for game, number in ((0, 3), (1, 2), (2, 2)):
            for episode in range(1, number + 1):
                moves = lengths[(game + episode) % 4]
                moves_of_all.append(moves)
                returns.append(float(sum(100 * episode + 10 * (move + 1) + player for move in range(moves))))
        expected.append(returns)
    assert [[info["eval_episode_return"] for info in mine] for mine in infos] == expected
    assert manager.game_steps == sum(moves_of_all) / 2, "a game whose quota is full stands still"
    assert stop and saved == ["ckpt_best.pth.tar"] and evaluator.best_return == sum(expected[0]) / 7
    assert not evaluator.should_eval(7) and not evaluator.should_eval(56) and evaluator.should_eval(57)
    evaluator.close()


def test_it_stops_only_after_training_began(tmp_path: Path) -> None:
    evaluator = evaluator_of(tmp_path, manager_of(), stop_value=0.0)

    assert evaluator.eval(train_iter=0, n_episode=3)[0] is False
    assert evaluator.eval(train_iter=1, n_episode=3)[0] is True
    again = evaluator_of(tmp_path, manager_of(), stop_value=0.0)
    again.load_state_dict(evaluator.state_dict())
    assert (again.best_return, again.num_evals) == (evaluator.best_return, 2)


def test_what_cannot_be_played_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs n_episode"):
        evaluator_of(tmp_path, manager_of()).eval()
    with pytest.raises(ConfigError, match="each env must finish at least one"):
        evaluator_of(tmp_path, manager_of()).eval(n_episode=2)
    with pytest.raises(ConfigError, match="two policies or more"):
        evaluator_of(tmp_path, manager_of()).reset_policy([mode()])
    with pytest.raises(ConfigError, match="3 policies for envs of 2 players"):
        evaluator = evaluator_of(tmp_path, manager_of())
        evaluator.reset_policy([mode()] * 3)
        evaluator.eval(n_episode=3)
