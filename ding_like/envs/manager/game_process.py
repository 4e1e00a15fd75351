"""Play a game in a process of its own, so that one that hangs or dies takes no other along."""

from __future__ import annotations

import select
import time
from collections.abc import Mapping, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

from ding_like.data.space_json import space_from_json, space_to_json
from ding_like.envs.game import GameStep, as_game
from ding_like.envs.manager.message import describe_failure, failure_of
from ding_like.envs.manager.process import WorkerProcess, serve, stop_all

# Of importing what the game needs and making it; a reset's deadline may be much shorter.
_START_S = 60.0
_CLOSE_S = 2.0


class GameStart(NamedTuple):
    """First message to a game's process; pickled, as the start arguments of a process are."""

    make: bytes  # pickled callable
    preparation: dict[str, Any]


class GameProcess:
    """`Game` whose moves are made in another process, with a deadline for each.

    Raises what the game raises, TimeoutError for a move that takes longer than its deadline, and RuntimeError if the
    process has ended; then the game is over for good, and another must be made.
    """

    def __init__(self, start: GameStart, *, step_timeout_s: float, reset_timeout_s: float) -> None:
        self._step_s, self._reset_s = step_timeout_s, reset_timeout_s
        self._is_stepping = False
        self._process = WorkerProcess(__name__, start)
        try:
            made = self._answer(_START_S)
        except BaseException:
            self.close()
            raise
        self.num_players = int(made["num_players"])
        self.observation_space, self.action_space = map(space_from_json, made["spaces"])

    def reset(self, seed: int | None = None) -> tuple[Sequence[Any], Sequence[int]]:
        self._process.send({"do": "reset", "seed": seed})
        answer = self._answer(self._reset_s)
        return answer["obs"], answer["to_move"]

    def begin_step(self, actions: Mapping[int, Any]) -> None:
        """Send the actions and do not wait: other games can be sent theirs before this one's `step` is asked for."""
        self._process.send({"do": "step", "actions": dict(actions)})
        self._is_stepping = True

    def step(self, actions: Mapping[int, Any]) -> GameStep:
        if not self._is_stepping:
            self.begin_step(actions)
        self._is_stepping = False
        return GameStep(**self._answer(self._step_s))

    def _answer(self, timeout_s: float) -> Any:
        """Return the next message; the deadline runs from now, as the process had nothing else to do before."""
        if not self._process.is_running:
            raise RuntimeError("the game's process was ended before")
        channel = self._process.channel
        poll = select.poll()
        poll.register(channel.read_end, select.POLLIN | select.POLLHUP)
        deadline = time.monotonic() + timeout_s
        while not poll.poll(max(deadline - time.monotonic(), 0.0) * 1000):
            if time.monotonic() >= deadline:
                self._process.end()
                raise TimeoutError(f"the game has not answered for {timeout_s:g} s, and was killed")
        try:
            answer = channel.receive()
        except EOFError:
            raise RuntimeError(f"the game's process {self._process.end()}") from None
        if isinstance(answer, dict) and "failure" in answer:
            raise failure_of(answer["failure"])
        return answer

    def close(self) -> None:
        """Let the game close itself and end; a second call does nothing."""
        stop_all([self._process], _CLOSE_S)


class GameWorker:
    """Owner of the game in its process: answers commands with dicts that `GameProcess` reads."""

    def __init__(self, start: GameStart) -> None:
        self._game = as_game(ForkingPickler.loads(start.make)())

    def made(self) -> dict[str, Any]:
        spaces = [space_to_json(self._game.observation_space), space_to_json(self._game.action_space)]
        return {"num_players": self._game.num_players, "spaces": spaces}

    def carry_out(self, command: dict[str, Any]) -> dict[str, Any]:
        try:
            if command["do"] == "reset":
                obs, to_move = self._game.reset(command["seed"])
                return {"obs": list(obs), "to_move": [int(player) for player in to_move]}
            step = self._game.step(command["actions"])
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

    def close(self) -> None:
        self._game.close()


def main(read_end: int, write_end: int, life: int, start_file: int) -> None:
    """Serve the manager at the other end of the pipes until it closes them or dies."""
    serve(read_end, write_end, life, start_file, GameWorker)
