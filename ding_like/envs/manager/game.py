"""Games of N players, here or in processes of their own: a lane is one (game, player); env manager 'game'."""

from __future__ import annotations

import functools
import select
import time
from collections.abc import Iterable, Mapping, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any, ClassVar

import numpy as np

from ding_like.data.batch import take_lanes
from ding_like.data.spaces import space_from_json, space_to_json
from ding_like.envs.game import Game, GameStep, as_game
from ding_like.envs.manager.base import ArrayEnvManager, close_envs, rows_of, view_rows
from ding_like.envs.manager.process import WorkerProcess, describe_failure, failure_of, pickle_env_fns, serve, stop_all
from ding_like.errors import EnvError
from ding_like.types import (
    Actor,
    Array,
    Config,
    EnvAction,
    EnvFn,
    EnvManager,
    EnvObs,
    Json,
    Obs,
    RewardShaping,
    Section,
    State,
    StepBatch,
)
from ding_like.utils.registries import ENV_MANAGER_REGISTRY
from ding_like.utils.seeding import rng_state, set_rng_state


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
        self._env_fn = list(env_fn)
        if settings["subprocess"]:
            times = {name: float(settings[name]) for name in ("step_timeout_s", "reset_timeout_s")}
            self._env_fn = [functools.partial(GameProcess, make, **times) for make in pickle_env_fns(env_fn)]
        self._games: list[Game] = []
        try:
            for make in self._env_fn:
                self._games.append(as_game(make()))
            num_players = self._games[0].num_players if self._games else 1
            super().__init__(self._env_fn, {**(cfg or {}), "resume_replay_steps": 0}, num_players=num_players)
            first = self._games[0]
            for index, game in enumerate(self._games):
                spaces = (game.num_players, game.observation_space, game.action_space)
                if spaces != (first.num_players, first.observation_space, first.action_space):
                    raise EnvError(f"game {index} has other players or spaces than game 0; give equal envs.")
        except BaseException:
            self._close_envs()
            raise
        self._set_spaces(first.observation_space, first.action_space)
        self._obs = self._layout.allocate(self.num_lanes)
        self._write = self._layout.writer(self._obs)
        self._next_obs = self._layout.allocate(self.num_lanes)
        self._write_next = self._layout.writer(self._next_obs)
        self.ready = np.zeros(self.num_lanes, bool)
        self._has_moved = np.zeros(self.num_lanes, bool)  # and has not seen the game since
        self._is_done = np.zeros(self.num_lanes, bool)  # in the open game
        self._reward = np.zeros(self.num_lanes, np.float64)  # since its last move

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
        rows, terminated, truncated = np.array(closed, np.int64).reshape(-1, 3).T.copy()
        obs, reward = take_lanes(self._next_obs, rows), self._reward[rows].astype(np.float32)
        flags = terminated.astype(bool), truncated.astype(bool)
        batch = StepBatch(rows, obs, reward, *flags, infos, np.array(dropped, np.int64))
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
            to_move = np.flatnonzero(self.ready[first : first + self.num_players]).tolist()
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
            if not np.isfinite(self._reward[lane]):
                raise self._nonfinite(game, "reward")
            if not self._layout.all_finite(view_rows(self._next_obs, lane, lane + 1)):
                raise self._nonfinite(game, "observation")
            if self._has_moved[lane]:
                mine.append((lane, terminated[player], truncated[player]))
                if answer.info:
                    infos[lane] = answer.info[player]
        closed += mine
        self._is_done[lanes] |= terminated | truncated
        self.ready[lanes] = is_to_move
        for player in answer.to_move:
            self._write(first + player, answer.obs[player])

    def _begin_next_if_over(self, game: int) -> bool:
        first = game * self.num_players
        if self.ready[first : first + self.num_players].any():
            return False
        lane = self._lanes[first]
        lane.crashes.in_a_row = 0
        self._begin_game(game, lane.seed_after_episode())
        return True

    def _begin_game(self, game: int, seed: int | None, *, make_anew: bool = False) -> None:
        """Begin a game; one that breaks at once is recreated and tried again."""
        first = game * self.num_players
        lanes, book = slice(first, first + self.num_players), self._lanes[first]
        while True:
            try:
                if make_anew:
                    close_envs({game: self._games[game]})
                    self._games[game] = as_game(self._env_fn[game]())
                obs, to_move = self._games[game].reset(seed)
                for player in range(self.num_players):
                    self._write(first + player, obs[player])
                    if not self._layout.all_finite(view_rows(self._obs, first + player, first + player + 1)):
                        raise self._nonfinite(game, "first observation")
                if not len(to_move):
                    raise EnvError(f"no player moves first in game {game}. Fix its reset.")
            except EnvError:
                raise
            except Exception as error:  # an env may raise anything; record_crash ends a crash loop
                book.record_crash(error)
                seed, make_anew = book.draw_seed(), True
                continue
            self.ready[lanes] = [player in to_move for player in range(self.num_players)]
            self._has_moved[lanes] = self._is_done[lanes] = False
            self._reward[lanes] = 0.0
            book.record_reset(seed)
            return

    def _reset_lanes(self, lanes: list[int]) -> None:
        for game in sorted({lane // self.num_players for lane in lanes}):
            self._begin_game(game, self._lanes[game * self.num_players].draw_seed())

    def _restore(self, state: State) -> list[int]:
        return self._all

    def _close_envs(self) -> None:
        close_envs(dict(enumerate(self._games)))


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
        if "failure" in answer:
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


class VersusManager:
    """Env manager whose lane e is game e of a manager of games, seen by the player whose turn it is to learn.

    That player changes from game to game, so that every side is played as often. All other moves are the
    `opponent`'s, which must be set before the first step. Any collector or evaluator of single lanes can use it.
    """

    num_players = 1  # is seen of each game
    reward_shaping: RewardShaping | None = None
    lane_seeds = False  # the opponent's moves are not brought back on resume

    def __init__(self, games: EnvManager, *, rng: np.random.Generator, opponent: Actor | None = None) -> None:
        players = games.num_players
        if players < 2:
            raise EnvError("an opponent needs games: use env.manager.type='game' and an env of several players.")
        self._games = games
        self.metrics = games.metrics
        self._players = players
        self.num_envs = self.num_lanes = games.num_envs
        self.observation_space, self.action_space = games.observation_space, games.action_space
        self._rng = rng
        self._opponent = opponent
        self._side = np.zeros(self.num_lanes, np.int64)  # the player of each game that is seen
        self._is_first = np.ones(self.num_lanes * players, bool)
        self._return = np.zeros(self.num_lanes, np.float64)  # of the seen player in its open game
        self._results: list[int] = []
        self._is_open = np.zeros(self.num_lanes, bool)  # a move was made in the game
        self._is_counted = np.ones(self.num_lanes, bool)  # the game is played against one opponent from its beginning
        self.lanes_lost: list[int] = []

    # --- the opponent

    def use_opponent(self, actor: Actor) -> None:
        """Play against another actor from the next step on; open games continue, but are not among the results."""
        self._opponent = actor
        self._is_counted &= ~self._is_open
        actor.reset()

    def take_results(self) -> list[int]:
        """Return, once, how the games against one opponent ended: 1 won, 0 drawn, -1 lost, by the return's sign."""
        results, self._results = self._results, []
        return results

    # --- an env manager

    @property
    def obs(self) -> Obs:
        return take_lanes(self._games.obs, self._own())

    @property
    def ready(self) -> Array:
        return self._games.ready[self._own()]

    @property
    def closed(self) -> bool:
        return self._games.closed

    @property
    def game_steps(self) -> int:
        return self._games.game_steps

    @property
    def ended_games(self) -> list[int]:
        return self._games.ended_games

    def _own(self) -> Array:
        """Return the lanes of the games' manager that are seen, by game."""
        return np.asarray(np.arange(self.num_lanes) * self._players + self._side)

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        self._games.seed(seed, dynamic_seed)

    def launch(self) -> None:
        self._games.launch()

    def reset(self, lanes: Array | None = None, *, seeds: Iterable[int] | None = None) -> None:
        """Begin new games; after a reset of all, player 0 is seen in even games, player 1 in odd ones, and so on."""
        games = np.arange(self.num_lanes) if lanes is None else np.asarray(lanes)
        inner = (games[:, None] * self._players + np.arange(self._players)).ravel()
        each = None if seeds is None else [seed for seed in seeds for _ in range(self._players)]
        self._games.reset(inner, seeds=each)
        if lanes is None:
            self._side = np.arange(self.num_lanes) % self._players
        self._begin(games.tolist())

    def _begin(self, games: list[int]) -> None:
        self._is_first.reshape(-1, self._players)[games] = True
        self._return[games] = 0.0
        self._is_open[games] = False
        self._is_counted[games] = True

    def step(self, lanes: Array, actions: Array, *, timeout_s: float | None = None) -> StepBatch:
        """Step games with our actions [R, A...], and those of the others who are to move there."""
        if self._opponent is None:
            raise EnvError("there is no opponent: call use_opponent(actor) before the first step.")
        own, others = self._own(), self._others(lanes)
        moved, chosen = own[lanes], actions
        if len(others):
            obs, is_first = take_lanes(self._games.obs, others), self._is_first[others]
            theirs = self._opponent.act(obs, lanes=others, is_first=is_first, rng=self._rng)["action"]
            moved = np.concatenate([moved, others])
            chosen = np.concatenate([actions, theirs]) if len(lanes) else theirs
            self._is_first[others] = False
        self._is_open[moved // self._players] = True
        answer = self._games.step(moved, chosen, timeout_s=timeout_s)
        return self._seen(answer, own)

    def _others(self, lanes: Array) -> Array:
        """Return the others' lanes that are to move: not where we could move too, and do not."""
        ready = self._games.ready.reshape(self.num_lanes, self._players).copy()
        ours = np.arange(self.num_lanes), self._side
        waits_for_us = ready[ours]
        waits_for_us[lanes] = False
        ready[ours] = False
        ready[waits_for_us] = False
        return np.flatnonzero(ready)

    def _seen(self, answer: StepBatch, own: Array) -> StepBatch:
        """Return the rows of the seen players, by game; in games that ended another player is seen next."""
        rows = np.flatnonzero(own[answer.lanes // self._players] == answer.lanes)
        seen = rows_of(answer, rows)
        lanes = seen.lanes // self._players
        done = seen.terminated | seen.truncated
        self._return[lanes] += seen.reward
        ended = lanes[done & self._is_counted[lanes]]
        self._results += np.sign(self._return[ended]).astype(int).tolist()
        dropped = np.unique(answer.dropped // self._players)
        over = [*self._games.ended_games, *dropped.tolist()]
        self._side[over] = (self._side[over] + 1) % self._players
        self._begin(over)
        info = {lane // self._players: told for lane, told in seen.info.items()}
        return seen._replace(lanes=lanes, info=info, dropped=dropped)

    # --- saved state

    def state_dict(self) -> State:
        """Return the games' state, who is seen, and the opponent's generator."""
        return {"games": self._games.state_dict(), "side": self._side.copy(), "rng": rng_state(self._rng)}

    def load_state_dict(self, state: State) -> None:
        """Take over what `state_dict` returned; games begin again."""
        self._games.load_state_dict(state["games"])
        self._side[:] = state["side"]
        set_rng_state(self._rng, state["rng"])
        self.lanes_lost = sorted({lane // self._players for lane in self._games.lanes_lost})
        self._begin(list(range(self.num_lanes)))

    def wrapper_states(self) -> list[list[State]]:
        """Return nothing: games have no wrappers."""
        return []

    def load_wrapper_states(self, states: Sequence[Sequence[State]]) -> None:
        """Do nothing: games have no wrappers."""

    def adopt_wrapper_states(self, states: Sequence[Sequence[State]]) -> None:
        """Do nothing: games have no wrappers."""

    def close(self) -> None:
        self._games.close()
