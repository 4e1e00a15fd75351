"""Run in a process of its own and play one game there; the other side is `game_process`.

Messages are JSON, as those of `subprocess_worker`. Nothing here imports torch.
"""

from __future__ import annotations

import contextlib
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

from ding_like.envs.game import Game, as_game
from ding_like.envs.manager.subprocess_message import Channel, describe_failure, describe_space
from ding_like.envs.manager.subprocess_worker import prepare, settle


class GameStart(NamedTuple):
    """Tell a process what it plays; pickled, as the start arguments of a process are."""

    make: bytes  # pickled callable
    preparation: dict[str, Any]  # sys.path and the like, for multiprocessing.spawn.prepare


def main(read_end: int, write_end: int, life: int) -> None:
    """Serve the manager at the other end of the pipes until it closes them or dies."""
    channel = settle(read_end, write_end, life)
    with contextlib.suppress(EOFError, BrokenPipeError):
        channel.send()
        game = _start(channel)
        if game is not None:
            try:
                while True:
                    channel.send(_carry_out(game, channel.receive()))
            finally:
                game.close()


def _start(channel: Channel) -> Game | None:
    """Return the game that the manager asks for; None, and the cause is sent, if it cannot be made."""
    start: GameStart = ForkingPickler.loads(channel.receive())
    try:
        prepare(start.preparation)
        game = as_game(ForkingPickler.loads(start.make)())
        spaces = [describe_space(game.observation_space), describe_space(game.action_space)]
    except Exception as error:  # importing and making envs runs the user's code; the manager raises it
        channel.send({"failure": describe_failure(error)})
        return None
    channel.send({"num_players": game.num_players, "spaces": spaces})
    return game


def _carry_out(game: Game, command: dict[str, Any]) -> dict[str, Any]:
    try:
        if command["do"] == "reset":
            obs, to_move = game.reset(command["seed"])
            return {"obs": list(obs), "to_move": [int(player) for player in to_move]}
        step = game.step(command["actions"])
    except Exception as error:  # an env may raise anything; the manager has it recreated
        return {"failure": describe_failure(error)}
    return {
        "obs": list(step.obs),
        "reward": [float(value) for value in step.reward],
        "terminated": [bool(value) for value in step.terminated],
        "truncated": [bool(value) for value in step.truncated],
        "to_move": [int(player) for player in step.to_move],
        "info": list(step.info),
    }
