"""Games in processes of their own: the same games, and those that hang, die, raise or give NaN are made anew."""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.envs.manager.game import GameEnvManager
from ding_like.errors import EnvError
from ding_like.worker.collector.battle import BattleLoop
from tests.envs.faulty_env import FaultyGame, HangingGame, WrongGame
from tests.worker.collector.scripted_game import ScriptedActor, ScriptedGame

# (fault, whether players move in turn); the others with the tests that are marked slow.
FAULTS = [("hang", True), ("nan", False)]
SLOW_FAULTS = [("hang", False), ("die", False), ("die", True), ("raise", False), ("raise", True), ("nan", True)]


def make(envs: Any, **cfg: Any) -> GameEnvManager:
    return GameEnvManager(envs, {"subprocess": True, "step_timeout_s": 2.0, **cfg})


def play(manager: GameEnvManager, steps: int) -> BattleLoop:
    manager.launch()
    loop = BattleLoop(manager, [ScriptedActor(), ScriptedActor()], rng=np.random.default_rng(0), record=[True, True])
    for _ in range(steps):
        loop.step([{}, {}])
    return loop


@pytest.mark.parametrize("in_turn", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_process_plays_the_same_game(in_turn: bool) -> None:
    envs = [functools.partial(ScriptedGame, game, in_turn=in_turn) for game in range(2)]
    logs = []
    for subprocess in (False, True):
        manager = GameEnvManager(envs, {"subprocess": subprocess})
        loop = play(manager, 30)
        logs.append([own.rollout.columns() for own in loop.loops])
        manager.close()

    for here, there in zip(*logs, strict=True):
        assert here.keys() == there.keys() and len(here["reward"]) > 20
        for name in here:
            assert (here[name] == there[name]).all(), name


@pytest.mark.parametrize(
    ("fault", "in_turn"), [*FAULTS, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW_FAULTS)]
)
def test_both_sides_of_a_broken_game_are_dropped_and_nothing_else(fault: str, in_turn: bool, tmp_path: Path) -> None:
    """The loops' actors check that every observation is of their game, and games that every action is for them."""
    marker = tmp_path / "done"
    envs: list[Any] = [functools.partial(ScriptedGame, 0, in_turn=in_turn, lengths=(4, 5, 6))]
    envs.append(functools.partial(FaultyGame, 1, in_turn=in_turn, fault=fault, marker=str(marker)))
    manager = make(envs)
    loop = play(manager, 60)
    manager.close()

    assert marker.exists()
    assert [own.dropped_episodes for own in loop.loops] == [1, 1]
    for player, own in enumerate(loop.loops):
        rows = own.rollout.columns()
        assert (rows["obs"][:, 0] == rows["lane"]).all() and (rows["obs"][:, 1] == player).all()
        for lane in (0, 1):
            of_lane = rows["lane"] == lane
            episodes = np.unique(rows["episode_id"][of_lane])
            for episode in episodes[:-1]:  # the last one is open
                mine = of_lane & (rows["episode_id"] == episode)
                assert rows["terminated"][mine].tolist() == [False] * (mine.sum() - 1) + [True]
            assert len(episodes) > 5


def test_a_game_that_cannot_be_made_is_an_error_with_its_cause_and_leaves_no_process() -> None:
    with pytest.raises(ValueError, match="no such game"):
        make([functools.partial(ScriptedGame, 0), WrongGame])
    with pytest.raises(EnvError, match="cannot be pickled"):
        make([functools.partial(ScriptedGame, threading.Lock())])


@pytest.mark.slow
def test_a_game_that_hangs_at_every_move_ends_the_run() -> None:
    manager = make([HangingGame], step_timeout_s=0.3)
    with pytest.raises(EnvError, match="without finishing an episode"):
        play(manager, 20)
    manager.close()
