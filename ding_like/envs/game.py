"""Games: environments with N players, who move at once or in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box
from gymnasium.spaces import Tuple as TupleSpace

from ding_like.envs.di_engine_style import BaseEnvTimestep, DiEngineStyleEnv
from ding_like.errors import EnvError
from ding_like.types import EnvAction, EnvLike, EnvObs, Report

# What players see and do differs from game to game: hence Any.


class GameStep(NamedTuple):
    """Result of one step of a game."""

    obs: Sequence[Any]  # N; what counts are those of players who move next and of players who are done
    reward: Sequence[float]  # N, of this step alone
    terminated: Sequence[bool]  # N; a player who is done moves no more in this game
    truncated: Sequence[bool]  # N
    to_move: Sequence[int]  # players who move next; none: the game is over
    info: Sequence[Mapping[str, Any]] = ()  # N, or nothing


class Game(Protocol):
    """Env of several players, who share the spaces; plays one game after another."""

    num_players: int
    observation_space: Space[Any]  # of one player
    action_space: Space[Any]  # of one player

    def reset(self, seed: int | None = None) -> tuple[Sequence[EnvObs], Sequence[int]]:
        """Begin a game; return the players' observations [N] and who moves first."""

    def step(self, actions: Mapping[int, EnvAction]) -> GameStep:
        """Take the actions of the players who are to move, by player."""

    def close(self) -> None: ...


class PairGame:
    """Game over an env in DI-engine's style whose `obs` and `reward` have an entry for each player.

    `reset() -> obs`, `step([action0, action1, ...]) -> BaseEnvTimestep(obs, reward, done, info)`, all players at once.
    Its spaces are those of one player, or have an equal entry (of a Box, a row) for each. `info` is one dict, in which
    `eval_episode_return` may have an entry for each player, or a list of dicts; `info["TimeLimit.truncated"]` marks a
    game that a time limit ended. An env of more than two players has an attribute `num_players`.
    """

    def __init__(self, env: EnvLike) -> None:
        missing = [name for name in ("reset", "step", "observation_space", "action_space") if not hasattr(env, name)]
        if missing:
            raise EnvError(f"{env!r} is not an env of several players: it lacks {', '.join(missing)}.")
        self._env = env
        self.num_players = int(getattr(env, "num_players", 2))
        self.observation_space = self._space_of_one("observation_space")
        self.action_space = self._space_of_one("action_space")

    def reset(self, seed: int | None = None) -> tuple[Sequence[EnvObs], Sequence[int]]:
        if seed is not None and hasattr(self._env, "seed"):
            self._env.seed(seed)
        obs = self._env.reset()
        return self._each(obs, "obs"), range(self.num_players)

    def step(self, actions: Mapping[int, EnvAction]) -> GameStep:
        step = BaseEnvTimestep(*self._env.step([actions[player] for player in range(self.num_players)]))
        given: Any = step.info
        info = list(given) if isinstance(given, (list, tuple)) else self._info_of_each(given)
        done = bool(np.all(step.done))
        cut = done and any(each.get("TimeLimit.truncated", False) for each in info)
        over, is_cut = [done and not cut] * self.num_players, [cut] * self.num_players
        to_move = () if done else range(self.num_players)
        reward = [float(np.asarray(value).reshape(-1)[0]) for value in self._each(step.reward, "reward")]
        return GameStep(self._each(step.obs, "obs"), reward, over, is_cut, to_move, info)

    def close(self) -> None:
        if hasattr(self._env, "close"):
            self._env.close()

    def _space_of_one(self, name: str) -> Space[Any]:
        """Return the space of one player. Raises EnvError if there is none, or players have different ones."""
        spaces = getattr(self._env, name)
        each = list(spaces) if isinstance(spaces, (list, tuple, TupleSpace)) else [spaces] * self.num_players
        is_shared = all(isinstance(space, Space) and space == each[0] for space in each)
        if len(each) != self.num_players or not is_shared:
            raise EnvError(
                f"{name} of {type(self._env).__name__} is {spaces!r:.200}; expected a gymnasium space that all "
                f"{self.num_players} players share."
            )
        one: Space[Any] = each[0]
        if name == "observation_space" and isinstance(one, Box) and one.shape[:1] == (self.num_players,):
            own_shape = np.shape(self._each(self._env.reset(), "obs")[0])
            if own_shape == one.shape[1:]:  # the space has a row for each player
                return Box(one.low.min(axis=0), one.high.max(axis=0), dtype=one.dtype.type)
        return one

    def _info_of_each(self, info: Report) -> list[Mapping[str, Any]]:
        returns = info.get("eval_episode_return")
        if returns is None or np.size(returns) != self.num_players:
            return [info] * self.num_players
        each = np.asarray(returns, np.float64).reshape(-1).tolist()
        return [{**info, "eval_episode_return": value} for value in each]

    def _each(self, values: Any, what: str) -> Sequence[Any]:
        """Return one entry per player, of a list or an array."""
        found: Sequence[Any] = list(values) if isinstance(values, np.ndarray) else values
        if len(found) != self.num_players:
            raise EnvError(f"the env gave {len(found)} entries as {what} for {self.num_players} players.")
        return found


def as_game(env: EnvLike) -> Game:
    """Return `env` as a Game: one that is, or an env in DI-engine's style with an entry for each player."""
    if isinstance(env, DiEngineStyleEnv):
        env = env.env
    if all(hasattr(env, name) for name in ("num_players", "reset", "step", "close")) and not hasattr(env, "seed"):
        game: Game = env
        return game
    return PairGame(env)
