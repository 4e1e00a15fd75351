"""Games as one player sees them: an opponent's actor makes the others' moves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import gymnasium
import numpy as np

from ding_like.data.obs import copy_obs, take_lanes
from ding_like.envs.game import Game, GameStep
from ding_like.envs.spaces import ObsLayout
from ding_like.errors import EnvError
from ding_like.types import Actor, Array, EnvAction, EnvManager, EnvObs, Info, Obs, RewardShaping, State, StepBatch
from ding_like.utils.seeding import rng_state, set_rng_state


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


class SoloEnv(gymnasium.Env[Any, Any]):
    """One game, seen by a player who changes from game to game; for looking at games, one at a time.

    `VersusManager` is for many games at once.
    """

    def __init__(self, game: Game, opponent: Actor, *, seed: int = 0, render_mode: str | None = None) -> None:
        self._game, self._opponent = game, opponent
        self._layout = ObsLayout(game.observation_space)
        self.observation_space, self.action_space = game.observation_space, game.action_space
        self.render_mode = render_mode
        self._rng = np.random.default_rng(seed)
        self._own = -1
        self._is_first: list[bool] = []

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[EnvObs, Info]:
        super().reset(seed=seed)
        self._own = (self._own + 1) % self._game.num_players
        self._is_first = [True] * self._game.num_players
        obs, to_move = self._game.reset(seed)
        step = GameStep(obs, [0.0] * len(obs), [False] * len(obs), [False] * len(obs), to_move)
        step, _ = self._until_own_move(step)
        if self._own not in step.to_move:
            return self.reset(seed=None)  # it was over before our first move
        return step.obs[self._own], {}

    def step(self, action: EnvAction) -> tuple[EnvObs, float, bool, bool, Info]:
        step = self._game.step({self._own: action, **self._moves_beside()})
        step, reward = self._until_own_move(step)
        own = self._own
        return step.obs[own], reward, bool(step.terminated[own]), bool(step.truncated[own]), {}

    def _until_own_move(self, step: GameStep) -> tuple[GameStep, float]:
        """Make the others' moves until it is our turn or the end; return the last step and the sum of our rewards."""
        reward = float(step.reward[self._own])
        while step.to_move and self._own not in step.to_move:
            step = self._game.step(self._act(step.obs, list(step.to_move)))
            reward += float(step.reward[self._own])
        self._beside = (step.obs, [player for player in step.to_move if player != self._own])
        return step, reward

    def _moves_beside(self) -> dict[int, Any]:
        """Return the moves of the players who move at once with ours."""
        obs, players = self._beside
        return self._act(obs, players) if players else {}

    def _act(self, obs: EnvObs, players: list[int]) -> dict[int, Any]:
        rows = self._layout.allocate(len(players))
        write = self._layout.writer(rows)
        for row, player in enumerate(players):
            write(row, obs[player])
        is_first = np.array([self._is_first[player] for player in players])
        lanes = np.array(players, np.int64)
        actions = self._opponent.act(copy_obs(rows), lanes=lanes, is_first=is_first, rng=self._rng)["action"]
        for player in players:
            self._is_first[player] = False
        return dict(zip(players, actions, strict=True))

    def render(self) -> Any:
        """Return the game's picture. Raises EnvError for a game that has none."""
        render = getattr(self._game, "render", None)
        if render is None:
            raise EnvError(f"{type(self._game).__name__} cannot render: it has no render().")
        return render()

    def close(self) -> None:
        self._game.close()
