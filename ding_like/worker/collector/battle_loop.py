"""Step games with a policy for each player: a rollout loop for each side, over its lanes of one manager."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ding_like.data.obs import take_lanes
from ding_like.data.records import EpisodeRecord
from ding_like.errors import ConfigError, EnvError
from ding_like.types import Actor, Array, EnvManager, Obs, Setting, StepBatch
from ding_like.worker.collector.loop import RolloutLoop


class PlayerView:
    """Show one player's lanes of a manager of games as a manager of its own: its lane e is the player's of game e."""

    def __init__(self, manager: EnvManager, player: int) -> None:
        self._manager = manager
        self._own = slice(player, None, manager.num_players)
        self.num_lanes = manager.num_envs
        self.metrics = manager.metrics

    @property
    def obs(self) -> Obs:
        obs = self._manager.obs
        return {key: array[self._own] for key, array in obs.items()} if isinstance(obs, dict) else obs[self._own]

    @property
    def ready(self) -> Array:
        return self._manager.ready[self._own]

    def step(self, lanes: Array, actions: Array) -> StepBatch:
        """Refuse: a game is stepped for all its players, by the loop over them."""
        raise EnvError("one player's lanes cannot be stepped alone: step the games with BattleLoop.step.")

    def reset(self, lanes: Array | None = None) -> None:
        """Refuse: a game is begun anew for all its players, by the loop over them."""
        raise ConfigError("info['abnormal'] of one player cannot break off a game: let the env raise instead.")


class BattleLoop:
    """Hold a `RolloutLoop` for each of N players over E games; nothing of one side reaches another.

    `manager` has `num_players` and lanes game * N + player. `record[p]` says whether player p's rows are kept,
    `keeps_info[p]` whether with the env's `info` (by default none's are).
    """

    def __init__(
        self,
        manager: EnvManager,
        actors: Sequence[Actor],
        *,
        rng: np.random.Generator,
        record: Sequence[bool],
        keeps_info: Sequence[bool] | None = None,
    ) -> None:
        self.num_players = manager.num_players
        if self.num_players != len(actors):
            raise ConfigError(
                f"{len(actors)} policies for envs of {self.num_players} players. Use env.manager.type='game', "
                "and one policy per player."
            )
        self._manager = manager
        self._first_step = manager.game_steps
        self.loops = [
            RolloutLoop(
                PlayerView(manager, player),
                actor,
                rng=rng,
                record=keep,
                keeps_info=keeps_info is not None and keeps_info[player],
            )
            for player, (actor, keep) in enumerate(zip(actors, record, strict=True))
        ]

    @property
    def env_steps(self) -> int:
        """Return the moves since this loop began: of one player, or of all at once."""
        return self._manager.game_steps - self._first_step

    @property
    def ended_lanes(self) -> list[int]:
        """Return the games that came to their end in the last step: lane e of every player is game e."""
        return self._manager.ended_games

    def step(
        self, setting: Sequence[Setting], *, policy_version: int = 0, idle: Array | None = None
    ) -> list[list[EpisodeRecord]]:
        """Let all who are to move do so, but in `idle` games [E]; return the episodes that ended, by player.

        `setting` holds what each player's actor is told.
        """
        opened = [
            loop.act(own, policy_version=policy_version, idle=idle)
            for loop, own in zip(self.loops, setting, strict=True)
        ]
        lanes = np.concatenate([own * self.num_players + player for player, (own, _) in enumerate(opened)])
        actions = np.concatenate([action for own, action in opened if len(own)]) if len(lanes) else np.zeros(0, int)
        answer = self._manager.step(lanes, actions)
        return [loop.close(self._part(answer, player)) for player, loop in enumerate(self.loops)]

    def _part(self, answer: StepBatch, player: int) -> StepBatch:
        """Return the rows of one player, by game."""
        rows = np.flatnonzero(answer.lanes % self.num_players == player)
        mine = answer.dropped[answer.dropped % self.num_players == player]
        return StepBatch(
            lanes=answer.lanes[rows] // self.num_players,
            next_obs=take_lanes(answer.next_obs, rows),
            reward=answer.reward[rows],
            terminated=answer.terminated[rows],
            truncated=answer.truncated[rows],
            info={
                lane // self.num_players: info
                for lane, info in answer.info.items()
                if lane % self.num_players == player
            },
            dropped=mine // self.num_players,
        )
