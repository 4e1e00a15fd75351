"""Games: environments with N players, who move at once or in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import Space

from ding_like.envs.di_engine_style import BaseEnvTimestep, DiEngineStyleEnv
from ding_like.errors import EnvError

# What players see and do differs from game to game: hence Any.


class GameStep(NamedTuple):
    """Hold the result of one step of a game."""

    obs: Sequence[Any]  # N; what counts are those of players who move next and of players who are done
    reward: Sequence[float]  # N, of this step alone
    terminated: Sequence[bool]  # N; a player who is done moves no more in this game
    truncated: Sequence[bool]  # N
    to_move: Sequence[int]  # players who move next; none: the game is over
    info: Sequence[Mapping[str, Any]] = ()  # N, or nothing


class Game(Protocol):
    """Play one game after another; all players share the spaces."""

    num_players: int
    observation_space: Space[Any]  # of one player
    action_space: Space[Any]  # of one player

    def reset(self, seed: int | None = None) -> tuple[Sequence[Any], Sequence[int]]:
        """Begin a game; return the players' observations [N] and who moves first."""

    def step(self, actions: Mapping[int, Any]) -> GameStep:
        """Take the actions of those who are to move, by player."""

    def close(self) -> None: ...


class PairGame:
    """Make a game of an env in DI-engine's style whose `obs` and `reward` have an entry for each player.

    `reset() -> obs`, `step([action0, action1, ...]) -> BaseEnvTimestep(obs, reward, done, info)`, all players at once;
    its spaces are those of one player. `info` may be one dict or a list of them; `info["TimeLimit.truncated"]` marks a
    game that a time limit cut.
    """

    def __init__(self, env: Any) -> None:
        missing = [name for name in ("reset", "step", "observation_space", "action_space") if not hasattr(env, name)]
        if missing:
            raise EnvError(f"{env!r} is not an env of several players: it lacks {', '.join(missing)}.")
        self._env = env
        self.num_players = int(getattr(env, "num_players", 2))
        self.observation_space = env.observation_space
        self.action_space = env.action_space

    def reset(self, seed: int | None = None) -> tuple[Sequence[Any], Sequence[int]]:
        if seed is not None and hasattr(self._env, "seed"):
            self._env.seed(seed)
        obs = self._env.reset()
        return self._each(obs, "obs"), range(self.num_players)

    def step(self, actions: Mapping[int, Any]) -> GameStep:
        step = BaseEnvTimestep(*self._env.step([actions[player] for player in range(self.num_players)]))
        said: Any = step.info
        info = list(said) if isinstance(said, (list, tuple)) else [said] * self.num_players
        done = bool(np.all(step.done))
        cut = done and any(each.get("TimeLimit.truncated", False) for each in info)
        over, is_cut = [done and not cut] * self.num_players, [cut] * self.num_players
        to_move = () if done else range(self.num_players)
        reward = [float(value) for value in self._each(step.reward, "reward")]
        return GameStep(self._each(step.obs, "obs"), reward, over, is_cut, to_move, info)

    def close(self) -> None:
        if hasattr(self._env, "close"):
            self._env.close()

    def _each(self, values: Any, what: str) -> Sequence[Any]:
        """Return one entry per player, of a list or an array."""
        found: Sequence[Any] = list(values) if isinstance(values, np.ndarray) else values
        if len(found) != self.num_players:
            raise EnvError(f"the env gave {len(found)} entries as {what} for {self.num_players} players.")
        return found


def as_game(env: Any) -> Game:
    """Return `env` as a Game: one that is, or an env in DI-engine's style with an entry for each player."""
    if isinstance(env, DiEngineStyleEnv):
        env = env.env
    if all(hasattr(env, name) for name in ("num_players", "reset", "step", "close")) and not hasattr(env, "seed"):
        game: Game = env
        return game
    return PairGame(env)
