"""Show games as one player sees them: an opponent's actor makes the others' moves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ding_like.data.obs import take_lanes
from ding_like.errors import EnvError
from ding_like.types import Actor, Array, EnvManager, Obs, RewardShaping, State, StepBatch
from ding_like.utils.seeding import rng_state, set_rng_state


class VersusManager:
    """Be an env manager whose lane e is game e of a manager of games, seen by the player whose turn it is to learn.

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
        """Play against another actor from the next step on; open games go on, but are among no results."""
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
        own: Array = np.arange(self.num_lanes) * self._players + self._side
        return own

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

    def _begin(self, games: Sequence[int]) -> None:
        for game in games:
            first = game * self._players
            self._is_first[first : first + self._players] = True
        self._return[list(games)] = 0.0
        self._is_open[list(games)] = False
        self._is_counted[list(games)] = True

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
        games = np.arange(self.num_lanes)
        waits_for_us = ready[games, self._side]
        waits_for_us[lanes] = False
        ready[games, self._side] = False
        ready[waits_for_us] = False
        others: Array = ready.ravel().nonzero()[0]
        return others

    def _seen(self, answer: StepBatch, own: Array) -> StepBatch:
        """Return the rows of the seen players, by game; in games that ended another player is seen next."""
        rows = np.flatnonzero(own[answer.lanes // self._players] == answer.lanes)
        lanes = answer.lanes[rows] // self._players
        done = answer.terminated[rows] | answer.truncated[rows]
        self._return[lanes] += answer.reward[rows]
        ended = lanes[done & self._is_counted[lanes]]
        self._results += np.sign(self._return[ended]).astype(int).tolist()
        dropped = np.unique(answer.dropped // self._players)
        info = {lane // self._players: info for lane, info in answer.info.items() if own[lane // self._players] == lane}
        over = [*self._games.ended_games, *dropped.tolist()]
        self._side[over] = (self._side[over] + 1) % self._players
        self._begin(over)
        return StepBatch(
            lanes=lanes,
            next_obs=take_lanes(answer.next_obs, rows),
            reward=answer.reward[rows],
            terminated=answer.terminated[rows],
            truncated=answer.truncated[rows],
            info=info,
            dropped=dropped,
        )

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
        self._begin(range(self.num_lanes))

    def wrapper_states(self) -> list[list[State]]:
        """Return nothing: games have no wrappers."""
        return []

    def load_wrapper_states(self, states: Sequence[Sequence[State]]) -> None:
        """Do nothing: games have no wrappers."""

    def adopt_wrapper_states(self, states: Sequence[Sequence[State]]) -> None:
        """Do nothing: games have no wrappers."""

    def close(self) -> None:
        self._games.close()
