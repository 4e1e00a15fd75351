"""Games of N players, here or in processes of their own: a lane is one (game, player); env manager 'game'."""

from __future__ import annotations

import functools
import logging
import select
import time
from collections.abc import Mapping, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any, ClassVar

import numpy as np

from ding_like.data.obs import take_lanes
from ding_like.data.space_json import space_from_json, space_to_json
from ding_like.envs.game import Game, GameStep, as_game
from ding_like.envs.manager.array_manager import ArrayEnvManager
from ding_like.envs.manager.base import _row
from ding_like.envs.manager.process import (
    WorkerProcess,
    describe_failure,
    failure_of,
    pickle_env_fns,
    serve,
    stop_all,
)
from ding_like.errors import EnvError
from ding_like.types import Array, Config, EnvAction, EnvFn, EnvObs, Json, Obs, Section, State, StepBatch
from ding_like.utils.registries import ENV_MANAGER_REGISTRY

logger = logging.getLogger(__name__)


@ENV_MANAGER_REGISTRY.register("game")
class GameEnvManager(ArrayEnvManager):
    """Manager of E games of N players; lane e * N + p is player p of game e.

    `ready` are the lanes whose players are to move; all of a game that are must be stepped together. A lane answers
    when its player sees the game again, at its next move or its end: in a turn-based game its reward is then the sum
    over the others' moves, plus the rewards before its first move, so that returns are complete. A game that raises
    or gives a NaN is restarted, and all its lanes are in `dropped`. Open games are not brought back on resume.
    """

    config = {
        **ArrayEnvManager.config,
        # Opponent of evaluations: "random", "self", or the path of a checkpoint.
        "opponent": "random",
        # Play each game in a process of its own: one that hangs (step_timeout_s) or dies is then recreated.
        "subprocess": False,
    }
    without_effect: ClassVar[Mapping[str, str]] = {"resume_replay_steps": "open games are not played again on resume"}

    def __init__(self, env_fn: Sequence[EnvFn], cfg: Config | None = None) -> None:
        settings = {**self.config, **(cfg or {})}
        self._env_fn = _in_processes(env_fn, settings) if settings["subprocess"] else list(env_fn)
        if not self._env_fn:
            raise EnvError("a manager needs at least one env; give env_fn a list of callables that each make one.")
        self._games: list[Game] = []
        try:
            for make in self._env_fn:
                self._games.append(as_game(make()))
            self._check_alike()
        except BaseException:
            self._close_envs()
            raise
        first = self._games[0]
        self.num_players = first.num_players
        super().__init__(len(self._games) * self.num_players, {**(cfg or {}), "resume_replay_steps": 0})
        self.num_envs = len(self._games)
        self._set_spaces(first.observation_space, first.action_space)
        self._obs = self._layout.allocate(self.num_lanes)
        self._write = self._layout.writer(self._obs)
        self._next_obs = self._layout.allocate(self.num_lanes)
        self._write_next = self._layout.writer(self._next_obs)
        self._ready = np.zeros(self.num_lanes, bool)
        self._has_moved = np.zeros(self.num_lanes, bool)  # and has not seen the game since
        self._is_done = np.zeros(self.num_lanes, bool)  # in the open game
        self._reward = np.zeros(self.num_lanes, np.float64)  # since its last move

    def _check_alike(self) -> None:
        first = self._games[0]
        for index, game in enumerate(self._games):
            spaces = (game.num_players, game.observation_space, game.action_space)
            if spaces != (first.num_players, first.observation_space, first.action_space):
                raise EnvError(f"game {index} has other players or spaces than game 0; give equal envs.")

    @property
    def obs(self) -> Obs:
        return self._obs

    def step(self, lanes: Array, actions: Array, *, timeout_s: float | None = None) -> StepBatch:
        """Step the games of `lanes` with `actions` [R, A...]; `timeout_s` is ignored.

        What holds are the config's time-outs, and those only where games have processes of their own.
        Raises EnvError for a game of which not all who are to move were given.
        """
        self._check_running()
        moves = self._moves(self._check_lanes(lanes), actions)
        for game, move in moves.items():
            begin_step = getattr(self._games[game], "begin_step", None)
            if begin_step is not None:  # games in processes of their own step side by side
                begin_step(move)
        closed: list[tuple[int, bool, bool]] = []
        infos: dict[int, Mapping[str, Any]] = {}
        dropped: list[int] = []
        for game, move in moves.items():
            first = game * self.num_players
            self._lanes[first].journal.append(sorted(move.items()))
            try:
                answer = self._games[game].step(move)
                self.game_steps += 1
                self._take(game, answer, move, closed, infos)
            except EnvError:
                raise
            except Exception as error:  # an env may raise anything; the game is recreated
                self._lanes[first].record_crash(error)
                dropped += range(first, first + self.num_players)
                self._begin_game(game, self._lanes[first].draw_seed(), make_anew=True)
        rows = np.array([lane for lane, _, _ in closed], np.int64)
        batch = StepBatch(
            lanes=rows,
            next_obs=take_lanes(self._next_obs, rows),
            reward=self._reward[rows].astype(np.float32),
            terminated=np.array([terminated for _, terminated, _ in closed], bool),
            truncated=np.array([truncated for _, _, truncated in closed], bool),
            info=infos,
            dropped=np.array(dropped, np.int64),
        )
        self._reward[rows] = 0.0
        self._has_moved[rows] = False
        self.ended_games = [game for game in moves if self._begin_next_if_over(game)]
        return batch

    def _moves(self, lanes: list[int], actions: Array) -> dict[int, dict[int, Any]]:
        """Return the actions by game and player."""
        taken = self._actions.split(self._actions.for_envs(actions, len(lanes)))
        moves: dict[int, dict[int, Any]] = {}
        for lane, action in zip(lanes, taken, strict=True):
            moves.setdefault(lane // self.num_players, {})[lane % self.num_players] = action
        for game, move in moves.items():
            first = game * self.num_players
            to_move = np.flatnonzero(self._ready[first : first + self.num_players]).tolist()
            if sorted(move) != to_move:
                raise EnvError(f"players {sorted(move)} of game {game} were given, but {to_move} are to move.")
        return moves

    def _take(
        self,
        game: int,
        answer: GameStep,
        move: Mapping[int, Any],
        closed: list[tuple[int, bool, bool]],
        infos: dict[int, Mapping[str, Any]],
    ) -> None:
        """Record a game's step: players who move next, or are done, close rows. Raises FloatingPointError for a NaN."""
        first = game * self.num_players
        lanes = slice(first, first + self.num_players)
        terminated, truncated = np.array(answer.terminated, bool), np.array(answer.truncated, bool)
        is_to_move = np.isin(np.arange(self.num_players), answer.to_move)
        is_over = (terminated | truncated) & ~self._is_done[lanes]
        self._has_moved[[first + player for player in move]] = True
        self._reward[lanes] += answer.reward
        mine: list[tuple[int, bool, bool]] = []
        for player in np.flatnonzero(is_to_move | is_over).tolist():
            lane = first + player
            self._write_next(lane, answer.obs[player])
            self._check_finite(lane)
            if self._has_moved[lane]:
                mine.append((lane, terminated[player], truncated[player]))
                if answer.info:
                    infos[lane] = answer.info[player]
        closed += mine
        self._is_done[lanes] |= terminated | truncated
        self._ready[lanes] = is_to_move
        for player in answer.to_move:
            self._write(first + player, answer.obs[player])

    def _check_finite(self, lane: int) -> None:
        if not np.isfinite(self._reward[lane]):
            raise self._nonfinite(lane // self.num_players, "reward")
        if not self._layout.all_finite(_row(self._next_obs, lane)):
            raise self._nonfinite(lane // self.num_players, "observation")

    def _begin_next_if_over(self, game: int) -> bool:
        first = game * self.num_players
        if self._ready[first : first + self.num_players].any():
            return False
        lane = self._lanes[first]
        lane.crashes.record_finished_episode()
        self._begin_game(game, lane.seed_after_episode())
        return True

    def _begin_game(self, game: int, seed: int | None, *, make_anew: bool = False) -> None:
        """Begin a game; one that breaks at once is recreated and tried again."""
        first = game * self.num_players
        lanes, book = slice(first, first + self.num_players), self._lanes[first]
        while True:
            try:
                if make_anew:
                    self._make_anew(game)
                obs, to_move = self._games[game].reset(seed)
                for player in range(self.num_players):
                    self._write(first + player, obs[player])
                    if not self._layout.all_finite(_row(self._obs, first + player)):
                        raise self._nonfinite(game, "first observation")
                if not len(to_move):
                    raise EnvError(f"no player moves first in game {game}. Fix its reset.")
            except EnvError:
                raise
            except Exception as error:  # an env may raise anything; record_crash ends a crash loop
                book.record_crash(error)
                seed, make_anew = book.draw_seed(), True
                continue
            self._ready[lanes] = [player in to_move for player in range(self.num_players)]
            self._has_moved[lanes] = self._is_done[lanes] = False
            self._reward[lanes] = 0.0
            book.record_reset(seed)
            return

    def _make_anew(self, game: int) -> None:
        try:
            self._games[game].close()
        except Exception as error:  # close() of a broken game may raise anything; the game is replaced
            logger.debug("closing the broken game %d failed: %s", game, error)
        self._games[game] = as_game(self._env_fn[game]())

    def _reset_lanes(self, lanes: list[int]) -> None:
        for game in sorted({lane // self.num_players for lane in lanes}):
            self._begin_game(game, self._lanes[game * self.num_players].draw_seed())

    def _restore(self, state: State) -> list[int]:
        return self._all

    def _close_envs(self) -> None:
        for game in self._games:
            game.close()


def _in_processes(env_fn: Sequence[EnvFn], cfg: Config) -> list[EnvFn]:
    """Return callables that make the same games in processes of their own. Raises EnvError for what cannot be sent."""
    times = {"step_timeout_s": float(cfg["step_timeout_s"]), "reset_timeout_s": float(cfg["reset_timeout_s"])}
    return [functools.partial(GameProcess, make, **times) for make in pickle_env_fns(env_fn)]


# Of importing what the game needs and making it; a reset's deadline may be much shorter.
_START_S = 60.0
_CLOSE_S = 2.0


class GameProcess:
    """`Game` whose moves are made in another process, with a deadline for each.

    Raises what the game raises, TimeoutError for a move that takes longer than its deadline, and RuntimeError if the
    process has ended; then the game is over for good, and another must be made.
    """

    def __init__(self, make: bytes, *, step_timeout_s: float, reset_timeout_s: float) -> None:
        self._step_s, self._reset_s = step_timeout_s, reset_timeout_s
        self._is_stepping = False
        self._process = WorkerProcess(__name__, make)
        try:
            made = self._answer(_START_S)
        except BaseException:
            self.close()
            raise
        self.num_players = int(made["num_players"])
        self.observation_space, self.action_space = map(space_from_json, made["spaces"])

    def reset(self, seed: int | None = None) -> tuple[Sequence[EnvObs], Sequence[int]]:
        self._process.send({"do": "reset", "seed": seed})
        answer = self._answer(self._reset_s)
        return answer["obs"], answer["to_move"]

    def begin_step(self, actions: Mapping[int, EnvAction]) -> None:
        """Send the actions and do not wait: other games can be sent theirs before this one's `step` is asked for."""
        self._process.send({"do": "step", "actions": dict(actions)})
        self._is_stepping = True

    def step(self, actions: Mapping[int, EnvAction]) -> GameStep:
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
        """Close the game and end its process; a second call does nothing."""
        stop_all([self._process], _CLOSE_S)


class GameWorker:
    """Owner of the game in its process: answers commands with dicts that `GameProcess` reads."""

    def __init__(self, make: bytes) -> None:
        self._game = as_game(ForkingPickler.loads(make)())

    def made(self) -> Section:
        spaces = [space_to_json(self._game.observation_space), space_to_json(self._game.action_space)]
        return {"num_players": self._game.num_players, "spaces": spaces}

    def carry_out(self, command: Json) -> Section:
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
