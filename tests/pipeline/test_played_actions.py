"""What a run logs as an action is what was played, also where lanes have open rows when the actor changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.config import read_config
from ding_like.data.batch import TransitionBatch
from ding_like.entry import serial_pipeline
from ding_like.envs.manager.game import GameEnvManager
from ding_like.worker import NaiveReplayBuffer

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")

ROOT = Path(__file__).parents[2]
TICTACTOE = ROOT / "dizoo/petting_zoo/config/tictactoe_dqn_config.py"


@pytest.fixture
def pushed(monkeypatch: pytest.MonkeyPatch) -> list[TransitionBatch]:
    """Return the rows that reach the buffer."""
    batches: list[TransitionBatch] = []
    push = NaiveReplayBuffer.push

    def spy(self: Any, data: Any, *args: Any, **kwargs: Any) -> None:
        batches.append(data.own_memory())
        push(self, data, *args, **kwargs)

    monkeypatch.setattr(NaiveReplayBuffer, "push", spy)
    return batches


# By lane and in order: what was observed -> the action that was played.
Moves = dict[int, list[tuple[bytes, int]]]


def spy_on_steps(monkeypatch: pytest.MonkeyPatch, manager: type, see: Callable[[Any, int], bytes]) -> Moves:
    """Return what is going to be played in the envs of the first manager of a class, the collector's."""
    moves: Moves = defaultdict(list)
    first: list[Any] = []
    step = manager.step  # type: ignore[attr-defined]

    def spy(self: Any, lanes: Any, actions: Any, **kwargs: Any) -> Any:
        first.append(self)
        if self is first[0]:  # the evaluator's come later
            for lane, action in zip(lanes.tolist(), actions.tolist(), strict=True):
                moves[lane].append((see(self.obs, lane), action))
        return step(self, lanes, actions, **kwargs)

    monkeypatch.setattr(manager, "step", spy)
    return moves


def board(obs: Any, row: int) -> bytes:
    return bytes(obs["observation"][row].astype(np.uint8))


def test_tic_tac_toe_logs_the_moves_that_were_played(pushed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    played = spy_on_steps(monkeypatch, GameEnvManager, board)
    file = read_config(TICTACTOE)
    small = ["policy.random_collect_size=100", "policy.model.encoder_hidden_size_list=[16]", "env.stop_value=2"]
    small += ["env.n_evaluator_episode=8", "policy.learn.update_per_collect=1"]

    serial_pipeline((file.main_config, file.create_config), seed=0, max_env_step=500, overrides=small)

    logged: dict[int, list[tuple[bytes, int]]] = defaultdict(list)
    for batch in pushed:
        for lane, obs, mask, action in zip(
            batch["lane"], batch["obs/observation"], batch["obs/action_mask"], batch["action"], strict=True
        ):
            assert mask[action] == 1, "this action was not played"
            logged[int(lane)].append((bytes(obs.astype(np.uint8)), int(action)))
    assert sum(map(len, logged.values())) > 400 and len(logged) == 16
    for lane, moves in logged.items():
        assert moves == played[lane][: len(moves)], "each move is logged once, as it was played"
