"""Play a game in a process of its own, so that one that hangs or dies takes no other along."""

from __future__ import annotations

import select
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.reduction import ForkingPickler
from typing import Any

from ding_like.envs.game import GameStep
from ding_like.envs.manager import game_worker
from ding_like.envs.manager.game_worker import GameStart
from ding_like.envs.manager.subprocess_message import failure_of, space_of
from ding_like.envs.manager.subprocess_process import Interpreter

# Of importing what the game needs and making it; a reset's deadline may be much shorter.
_START_S = 60.0
_CLOSE_S = 2.0


class GameProcess:
    """Be a `Game` whose moves are made in another process, with a deadline for each.

    Raises what the game raises, TimeoutError for a move that takes longer than its deadline, and RuntimeError if the
    process has ended; then the game is over for good, and another must be made.
    """

    def __init__(self, start: GameStart, *, step_timeout_s: float, reset_timeout_s: float) -> None:
        self._step_s, self._reset_s = step_timeout_s, reset_timeout_s
        self._is_stepping = False
        self._interpreter: Interpreter | None = Interpreter(game_worker.__name__)
        self._channel = self._interpreter.channel
        try:
            self._answer(_START_S)
            self._channel.send(bytes(ForkingPickler.dumps(start)))
            made = self._answer(_START_S)
        except BaseException:
            self.close()
            raise
        self.num_players = int(made["num_players"])
        self.observation_space, self.action_space = map(space_of, made["spaces"])

    def reset(self, seed: int | None = None) -> tuple[Sequence[Any], Sequence[int]]:
        self._send({"do": "reset", "seed": seed})
        answer = self._answer(self._reset_s)
        return answer["obs"], answer["to_move"]

    def begin_step(self, actions: Mapping[int, Any]) -> None:
        """Send the actions and do not wait: other games can be sent theirs before this one's `step` is asked for."""
        self._send({"do": "step", "actions": dict(actions)})
        self._is_stepping = True

    def step(self, actions: Mapping[int, Any]) -> GameStep:
        if not self._is_stepping:
            self.begin_step(actions)
        self._is_stepping = False
        return GameStep(**self._answer(self._step_s))

    def _send(self, message: dict[str, Any]) -> None:
        with suppress(BrokenPipeError):  # that the process has ended shows when its answer is read
            self._channel.send(message)

    def _answer(self, timeout_s: float) -> Any:
        """Return the next message; the deadline runs from now, as the process had nothing else to do before."""
        poll = select.poll()
        poll.register(self._channel.read_end, select.POLLIN | select.POLLHUP)
        deadline = time.monotonic() + timeout_s
        while not poll.poll(max(deadline - time.monotonic(), 0.0) * 1000):
            if time.monotonic() >= deadline:
                self._end()
                raise TimeoutError(f"the game has not answered for {timeout_s:g} s, and was killed")
        try:
            answer = self._channel.receive()
        except EOFError:
            raise RuntimeError(f"the game's process {self._end()}") from None
        if isinstance(answer, dict) and "failure" in answer:
            raise failure_of(answer["failure"])
        return answer

    def _end(self) -> str:
        """End the process, and what the game has started, at once; return what it died of."""
        interpreter, self._interpreter = self._interpreter, None
        return "was ended before" if interpreter is None else interpreter.end()

    def close(self) -> None:
        """Let the game close itself and end; a second call does nothing."""
        if self._interpreter is not None:
            self._channel.close_write_end()
            self._interpreter.wait(_CLOSE_S)
            self._end()
