"""Play a game as an env of one player: an opponent's actor makes the others' moves."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from ding_like.data.obs import copy_obs
from ding_like.envs.game import Game, GameStep
from ding_like.envs.spaces import ObsLayout
from ding_like.errors import EnvError
from ding_like.types import Actor


class SoloEnv(gymnasium.Env[Any, Any]):
    """Be one game, seen by a player who changes from game to game; for looking at games, one at a time.

    Many games at once are `VersusManager`'s business.
    """

    def __init__(self, game: Game, opponent: Actor, *, seed: int = 0, render_mode: str | None = None) -> None:
        self._game, self._opponent = game, opponent
        self._layout = ObsLayout(game.observation_space)
        self.observation_space, self.action_space = game.observation_space, game.action_space
        self.render_mode = render_mode
        self._rng = np.random.default_rng(seed)
        self._own = -1
        self._is_first: list[bool] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._own = (self._own + 1) % self._game.num_players
        self._is_first = [True] * self._game.num_players
        obs, to_move = self._game.reset(seed)
        step = GameStep(obs, [0.0] * len(obs), [False] * len(obs), [False] * len(obs), to_move)
        step, _ = self._until_own_move(step)
        if self._own not in step.to_move:
            return self.reset(seed=None)  # it was over before our first move
        return step.obs[self._own], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        step = self._game.step({self._own: action, **self._moves_beside()})
        step, reward = self._until_own_move(step)
        own = self._own
        return step.obs[own], reward, bool(step.terminated[own]), bool(step.truncated[own]), {}

    def _until_own_move(self, step: GameStep) -> tuple[GameStep, float]:
        """Let the others move until it is our turn or the end; return the last step and the sum of our rewards."""
        reward = float(step.reward[self._own])
        while step.to_move and self._own not in step.to_move:
            step = self._game.step(self._act(step.obs, list(step.to_move)))
            reward += float(step.reward[self._own])
        self._beside = (step.obs, [player for player in step.to_move if player != self._own])
        return step, reward

    def _moves_beside(self) -> dict[int, Any]:
        """Return the moves of those who move at once with us."""
        obs, players = self._beside
        return self._act(obs, players) if players else {}

    def _act(self, obs: Any, players: list[int]) -> dict[int, Any]:
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
