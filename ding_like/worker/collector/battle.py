"""Collectors of games: a policy for each player, and the data of each player apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np

from ding_like.data.batch import EpisodeBatch
from ding_like.data.records import EpisodeRecord
from ding_like.data.rows import CollectMode, adapt_collect_mode
from ding_like.errors import ConfigError, EnvError
from ding_like.types import Actor, Array, EnvManager, Obs, Setting, StepBatch
from ding_like.utils.registries import SERIAL_COLLECTOR_REGISTRY
from ding_like.worker.collector.base import (
    BaseSerialCollector,
    CollectReport,
    PolicyMode,
    Samples,
    Unit,
    attribute_of,
    game_manager,
    reads_info,
)
from ding_like.worker.collector.loop import Episodes, RolloutLoop, StopRule, step_until, take_rows
from ding_like.worker.collector.single import RowTaker, as_episodes, whole_episodes


class PlayerView:
    """One player's lanes of a manager of games, as a manager of its own: lane e is the player's in game e."""

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
    """Loops of N players over E games, one each; nothing of one side reaches another.

    `manager` has `num_players` and lanes game * N + player. Rows of player p are kept with `record[p]`, and with the
    env's `info` with `keeps_info[p]`.
    """

    def __init__(
        self,
        manager: EnvManager,
        actors: Sequence[Actor],
        *,
        rng: np.random.Generator,
        record: Sequence[bool],
        keeps_info: Sequence[bool] | None = None,  # None: no player's
    ) -> None:
        self.num_players = manager.num_players
        if self.num_players != len(actors):
            raise ConfigError(
                f"{len(actors)} policies for envs of {self.num_players} players. Use env.manager.type='game', "
                "and one policy per player."
            )
        self._manager = manager
        self._first_step = manager.game_steps
        infos = [False] * len(actors) if keeps_info is None else keeps_info
        self.loops = [
            RolloutLoop(PlayerView(manager, player), actor, rng=rng, record=keep, keeps_info=info)
            for player, (actor, keep, info) in enumerate(zip(actors, record, infos, strict=True))
        ]

    @property
    def env_steps(self) -> int:
        """Moves since this loop began: of one player, or of all at once."""
        return self._manager.game_steps - self._first_step

    @property
    def ended_lanes(self) -> list[int]:
        """Games that ended in the last step: lane e of every player is game e."""
        return self._manager.ended_games

    def step(
        self, setting: Sequence[Setting], *, policy_version: int = 0, idle: Array | None = None
    ) -> list[list[EpisodeRecord]]:
        """Step all players whose move it is, except in `idle` games [E]; return the episodes that ended, by player.

        `setting` has the keyword arguments of each player's actor.
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
        number = self.num_players
        part = take_rows(answer, np.flatnonzero(answer.lanes % number == player))
        infos = {lane // number: info for lane, info in answer.info.items() if lane % number == player}
        dropped = answer.dropped[answer.dropped % number == player] // number
        return part._replace(lanes=part.lanes // number, info=infos, dropped=dropped)


BattleSamples: TypeAlias = "EpisodeBatch | Samples"
# (data of each player, infos of the finished episodes of each player).
BattleData: TypeAlias = tuple[list[BattleSamples], list[list[dict[str, Any]]]]
# Keyword arguments of the actors: one dict for all, or a list with an entry for each player.
BattleSetting: TypeAlias = "Setting | Sequence[Setting | None] | None"


class BattleCollector(BaseSerialCollector):
    """Base class of collectors that play games with a policy for each player.

    `policy` is a list of collect modes, one per player; a mode whose attribute `collect_data` is False only plays.
    `env` is a manager of games, or DI-engine's `BaseEnvManager` over envs whose observations, rewards and infos have an
    entry for each player. `envstep` counts moves: of one player, or of all at once.
    """

    _policies: Sequence[CollectMode] = ()
    _keeps: Sequence[bool] = ()
    _loop: BattleLoop | None = None

    _as_manager = staticmethod(game_manager)

    def reset_policy(self, _policy: Sequence[PolicyMode] | None = None) -> None:
        """Play with new collect modes if some are given; open games continue, recurrent state is cleared."""
        if _policy is not None:
            self._check_number(len(_policy))
            self._policies = [adapt_collect_mode(mode) for mode in _policy]
            self._keeps = [bool(attribute_of(mode, "collect_data", True)) for mode in self._policies]
        if self._loop is None or (_policy is not None and len(_policy) != self._loop.num_players):
            self._make_loop()
        else:
            for loop, mode in zip(self._loop.loops, self._policies, strict=True):
                loop.use_actor(mode.actor, keeps_info=reads_info(mode))

    def collect_rows(self, rows: int | None = None, **settings: object) -> Samples:
        """Raise ConfigError: the data belong to each player apart."""
        raise ConfigError(
            f"collector '{self._cfg.get('type')}' hands out the data of each player apart, but here one policy learns "
            "from all rows. Use collector 'sample' or 'episode': games are then seen as one player sees them."
        )

    def _check_number(self, policies: int) -> None:
        """Raise ConfigError for a number of policies that the collector cannot use."""
        if policies < 2:
            raise ConfigError(f"a battle needs two policies or more, one per player; {policies} were given.")

    def reset(self, _policy: Sequence[PolicyMode] | None = None, _env: EnvManager | None = None) -> None:
        """Reset env, policies and all counters."""
        self._reports: list[CollectReport] = []
        super().reset(_policy, _env)

    def _new_loop(self) -> BattleLoop | None:
        if self._env is None or not self._policies:
            return None
        if len(self._reports) != len(self._policies):
            self._reports = [CollectReport() for _ in self._policies]
        actors, infos = [mode.actor for mode in self._policies], [reads_info(mode) for mode in self._policies]
        return BattleLoop(self._env, actors, rng=self._rng, record=self._keeps, keeps_info=infos)

    def _parts(self) -> tuple[BattleLoop, Sequence[CollectMode]]:
        if self._loop is None:
            raise ConfigError("the collector needs an env and policies before collect(): call reset(policy, env).")
        return self._loop, self._policies

    def _settings(self, policy_kwargs: BattleSetting) -> list[Setting]:
        """Return the arguments of each player's actor. Raises ConfigError for a list that is not one for each."""
        if policy_kwargs is None or isinstance(policy_kwargs, Mapping):
            return [dict(policy_kwargs or {})] * len(self._policies)
        if len(policy_kwargs) != len(self._policies):
            raise ConfigError(
                f"policy_kwargs is a list of {len(policy_kwargs)} for {len(self._policies)} players; give one dict "
                "for each, or one for all."
            )
        return [dict(each or {}) for each in policy_kwargs]

    def _play(
        self, steps: Iterable[list[list[EpisodeRecord]]], train_iter: int, data_of: Callable[[], list[BattleSamples]]
    ) -> BattleData:
        """Take the steps; return the data that `data_of` makes then, and the infos of the finished episodes."""
        loop, _ = self._parts()
        started, first_step = time.perf_counter(), loop.env_steps
        episodes: list[list[EpisodeRecord]] = [[] for _ in self._policies]
        for ended in steps:
            for mine, new in zip(episodes, ended, strict=True):
                mine += new
        data = data_of()
        env_steps, duration_s = loop.env_steps - first_step, time.perf_counter() - started
        for own, report, mine, samples in zip(loop.loops, self._reports, episodes, data, strict=True):
            report.total.dropped_episodes = own.dropped_episodes
            report.add(mine, env_steps=env_steps, samples=len(samples), duration_s=duration_s)
        self._print(train_iter, self._reports)
        return data, [[each.final_info for each in mine] for mine in episodes]


@SERIAL_COLLECTOR_REGISTRY.register("battle_sample")
@SERIAL_COLLECTOR_REGISTRY.register("sample_1v1")
class BattleSampleSerialCollector(BattleCollector):
    """Collector of `n_sample` training samples for each of two or more players."""

    config: dict[str, Any] = {"type": "sample_1v1", **BaseSerialCollector.config}
    unit: ClassVar[Unit] = "rows"

    def reset(self, _policy: Sequence[PolicyMode] | None = None, _env: EnvManager | None = None) -> None:
        """Reset env, policies, surplus and all counters."""
        self._surplus: dict[int, Samples | None] = {}  # by player
        super().reset(_policy, _env)

    def collect(
        self,
        n_sample: int | None = None,
        train_iter: int = 0,
        drop_extra: bool = True,
        policy_kwargs: BattleSetting = None,
        *,
        stop: StopRule | None = None,
    ) -> BattleData:
        """Return ([samples of each player], [infos of the finished episodes of each player]).

        Each player whose data are kept gets `n_sample` (default: the first policy's); a surplus leads the next call
        (on-policy: it is dropped), or is returned too with `drop_extra=False`. Samples are an empty list where data are
        not kept. `policy_kwargs` is passed to the actors: one dict for all, or a list. If `stop` returns True before,
        there are fewer samples. Raises ConfigError without a number of samples, or if no player's data are kept.
        """
        loop, policies = self._parts()
        target, settings = self._target(n_sample, "n_sample", policies[0]), self._settings(policy_kwargs)
        takers = {
            player: RowTaker(own, mode, target, first=self._surplus.get(player))
            for player, (own, mode, keep) in enumerate(zip(loop.loops, policies, self._keeps, strict=True))
            if keep
        }
        if not takers:
            raise ConfigError("no player's data are kept: let collect_data be True for one of the policies.")
        self._surplus = {}

        def steps() -> Iterator[list[list[EpisodeRecord]]]:
            while not (stop is not None and stop()) and not all(taker.is_full for taker in takers.values()):
                ended = loop.step(settings, policy_version=train_iter)
                for taker in takers.values():
                    taker.count()
                yield ended

        def data_of() -> list[BattleSamples]:
            data: list[BattleSamples] = [[] for _ in policies]
            for player, taker in takers.items():
                on_policy = bool(attribute_of(policies[player], "on_policy", False))
                data[player], self._surplus[player], dropped = taker.divide(on_policy=on_policy, drop_extra=drop_extra)
                self._reports[player].total.dropped_steps += dropped
            return data

        return self._play(steps(), train_iter, data_of)


@SERIAL_COLLECTOR_REGISTRY.register("battle_episode")
@SERIAL_COLLECTOR_REGISTRY.register("episode_1v1")
class BattleEpisodeSerialCollector(BattleCollector):
    """Collector of whole games of two players, all begun within the call, so that short ones are not preferred."""

    config: dict[str, Any] = {
        "type": "episode_1v1",
        **BaseSerialCollector.config,
        # Return training rows, as the policies' `segment` makes them, in place of episodes.
        "get_train_sample": False,
    }
    unit: ClassVar[Unit] = "episodes"

    def _check_number(self, policies: int) -> None:
        if policies != 2:
            raise ConfigError(f"collector 'episode_1v1' takes exactly 2 policies; {policies} were given.")

    def collect(
        self, n_episode: int | None = None, train_iter: int = 0, policy_kwargs: BattleSetting = None
    ) -> BattleData:
        """Return ([episodes of each player], [infos of the finished episodes of each player]) of `n_episode` games.

        Episodes are an EpisodeBatch, or training samples with `get_train_sample`; an empty list where data are not
        kept. Raises ConfigError without a number of games, or if there are fewer games than envs.
        """
        loop, policies = self._parts()
        rule = Episodes(self._target(n_episode, "n_episode", policies[0]), loop.loops[0].rollout.num_lanes)
        settings = self._settings(policy_kwargs)
        if any(own.is_mid_episode for own in loop.loops):
            self.reset_env()
            loop, _ = self._parts()
        steps = step_until(loop, rule, settings, policy_version=train_iter)
        return self._play(
            steps, train_iter, lambda: [self._take(player) if keep else [] for player, keep in enumerate(self._keeps)]
        )

    def _take(self, player: int) -> BattleSamples:
        loop, policies = self._parts()
        if self._cfg.get("get_train_sample"):
            samples: Samples = loop.loops[player].take(policies[player].segment)
            return samples
        return as_episodes(loop.loops[player].take(whole_episodes))
