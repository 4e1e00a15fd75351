"""Collect from games: a policy for each player, the data of each side apart."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any, ClassVar, TypeAlias

import numpy as np

from ding_like.data.batch import EpisodeBatch
from ding_like.data.records import EpisodeRecord
from ding_like.data.rows import adapt_collect_mode
from ding_like.errors import ConfigError
from ding_like.types import CollectMode, EnvManager, Setting
from ding_like.utils.registries import SERIAL_COLLECTOR_REGISTRY
from ding_like.worker.collector.base import BaseSerialCollector, attribute_of, reads_info, target_of
from ding_like.worker.collector.battle_loop import BattleLoop
from ding_like.worker.collector.episode import as_episodes, whole_episodes
from ding_like.worker.collector.interface import PolicyMode, Unit
from ding_like.worker.collector.loop import step_until
from ding_like.worker.collector.row_taker import RowTaker, Samples
from ding_like.worker.collector.stats import CollectReport, describe
from ding_like.worker.collector.stop_rule import Episodes, StopRule

BattleSamples: TypeAlias = "EpisodeBatch | Samples"
# What is handed out: (data of each player, statistics of each player).
BattleData: TypeAlias = tuple[list[BattleSamples], list[dict[str, float]]]
# What the actors are told: the same for all, or a list with an entry for each player.
BattleSetting: TypeAlias = "Setting | Sequence[Setting | None] | None"


class BattleCollector(BaseSerialCollector):
    """Collect through a `BattleLoop`; a sub-class says when to stop and what to hand out.

    `policy` is a list of collect modes, one per player; a mode whose attribute `collect_data` is False only plays.
    `envstep` counts moves: of one player, or of all at once.
    """

    _policies: Sequence[CollectMode] = ()
    _keeps: Sequence[bool] = ()
    _loop: BattleLoop | None = None

    def reset_policy(self, _policy: Sequence[PolicyMode] | None = None) -> None:
        """Play with new collect modes if some are given; open games go on, recurrent state is forgotten."""
        if _policy is not None:
            self._check_number(len(_policy))
            self._policies = [adapt_collect_mode(mode) for mode in _policy]
            self._keeps = [bool(attribute_of(mode, "collect_data", True)) for mode in self._policies]
        if self._loop is None or (_policy is not None and len(_policy) != self._loop.num_players):
            self._make_loop()
        else:
            for loop, mode in zip(self._loop.loops, self._policies, strict=True):
                loop.use_actor(mode.actor, keeps_info=reads_info(mode))

    def collect_rows(
        self,
        rows: int | None = None,
        *,
        train_iter: int = 0,
        policy_kwargs: Setting | None = None,
        stop: StopRule | None = None,
    ) -> Samples:
        """Refuse: what is collected is each player's own. Raises ConfigError."""
        raise ConfigError(
            f"collector '{self._cfg.get('type')}' hands out the data of each player apart, but here one policy learns "
            "from all rows. Use collector 'sample' or 'episode': games are then seen as one player sees them."
        )

    def _check_number(self, policies: int) -> None:
        """Refuse a number of policies that the collector has no use for."""
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
        return BattleLoop(
            self._env,
            [mode.actor for mode in self._policies],
            rng=self._rng,
            record=self._keeps,
            keeps_info=[reads_info(mode) for mode in self._policies],
        )

    def _parts(self) -> tuple[BattleLoop, Sequence[CollectMode]]:
        if self._loop is None:
            raise ConfigError("the collector needs an env and policies before collect(): call reset(policy, env).")
        return self._loop, self._policies

    def _target(self, given: int | None, name: str) -> int:
        """Return how many are to be collected. Raises ConfigError if neither the caller nor a policy says so."""
        return target_of(given, name, attribute_of(self._policies[0], name, None))

    def _settings(self, policy_kwargs: BattleSetting) -> list[Setting]:
        """Return what each player's actor is told. Raises ConfigError for a list that is not one for each."""
        if policy_kwargs is None or isinstance(policy_kwargs, Mapping):
            return [dict(policy_kwargs or {})] * len(self._policies)
        if len(policy_kwargs) != len(self._policies):
            raise ConfigError(
                f"policy_kwargs is a list of {len(policy_kwargs)} for {len(self._policies)} players; give one dict "
                "for each, or one for all."
            )
        return [dict(each or {}) for each in policy_kwargs]

    def _count(
        self,
        episodes: list[list[EpisodeRecord]],
        *,
        first_step: int,
        samples: list[int],
        started_s: float,
        train_iter: int,
    ) -> list[dict[str, float]]:
        """Count one `collect` call, report if it is time, and return each player's statistics of this call."""
        loop, _ = self._parts()
        duration_s = time.perf_counter() - started_s
        infos = []
        for own, report, mine, number in zip(loop.loops, self._reports, episodes, samples, strict=True):
            report.total.dropped_episodes = own.dropped_episodes
            report.add(mine, env_steps=loop.env_steps - first_step, samples=number, duration_s=duration_s)
            returns = [episode.return_ for episode in mine]
            infos.append(
                {
                    "episodes": len(mine),
                    "return_mean": float(np.mean(returns)) if returns else float("nan"),
                    "length_mean": float(np.mean([each.length for each in mine])) if mine else float("nan"),
                    "dropped_episodes": own.dropped_episodes,
                }
            )
        self._print(train_iter)
        return infos

    def _print(self, train_iter: int) -> None:
        is_due = train_iter - self._last_print_iter >= self._cfg["collect_print_freq"]
        if not is_due or not all(report.has_episodes for report in self._reports):
            return
        self._last_print_iter = train_iter
        for player, report in enumerate(self._reports):
            values = report.take()
            self._logger.info("collect, player %d: %s", player, describe(values))
            named = {f"{name}_{player}": value for name, value in values.items() if isinstance(value, (int, float))}
            self._metrics.write(self._instance_name, named, env_step=self.envstep, train_iter=train_iter)


@SERIAL_COLLECTOR_REGISTRY.register("sample_1v1")
class BattleSampleSerialCollector(BattleCollector):
    """Collect `n_sample` training samples for each of two or more players."""

    unit: ClassVar[Unit] = "rows"

    config: dict[str, Any] = dict(
        type="sample_1v1",
        # Keys of DI-engine's configs: see `without_effect`.
        deepcopy_obs=False,
        transform_obs=False,
        # Updates between two lines in the collector's log.
        collect_print_freq=100,
    )

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
        """Return ([samples of each player], [statistics of each player]); an empty list where data are not kept.

        Each player whose data are kept gets `n_sample` (default: the first policy's); what was made beyond leads the
        next call (on-policy: it is dropped), or is returned too with `drop_extra=False`. `policy_kwargs` goes to the
        actors: one dict for all, or a list. If `stop` is met before, there are fewer samples.
        Raises ConfigError if nobody says how many, or if no player's data are kept.
        """
        loop, policies = self._parts()
        target, settings = self._target(n_sample, "n_sample"), self._settings(policy_kwargs)
        started, first_step = time.perf_counter(), loop.env_steps
        takers = {
            player: RowTaker(own, mode, target, first=self._surplus.get(player))
            for player, (own, mode, keep) in enumerate(zip(loop.loops, policies, self._keeps, strict=True))
            if keep
        }
        if not takers:
            raise ConfigError("no player's data are kept: let collect_data be True for one of the policies.")
        rule: StopRule = reduce(and_, (taker.rule() for taker in takers.values()))
        self._surplus = {}
        episodes: list[list[EpisodeRecord]] = [[] for _ in policies]
        for ended in step_until(loop, rule if stop is None else rule | stop, settings, policy_version=train_iter):
            for mine, new in zip(episodes, ended, strict=True):
                mine += new
        data: list[BattleSamples] = [[] for _ in policies]
        for player, taker in takers.items():
            on_policy = bool(attribute_of(policies[player], "on_policy", False))
            data[player], self._surplus[player], dropped = taker.divide(on_policy=on_policy, drop_extra=drop_extra)
            self._reports[player].total.dropped_steps += dropped
        infos = self._count(
            episodes,
            first_step=first_step,
            samples=[len(each) for each in data],
            started_s=started,
            train_iter=train_iter,
        )
        return data, infos


@SERIAL_COLLECTOR_REGISTRY.register("episode_1v1")
class BattleEpisodeSerialCollector(BattleCollector):
    """Collect whole games of two players, all begun within the call, so that short ones are not preferred."""

    unit: ClassVar[Unit] = "episodes"

    config: dict[str, Any] = dict(
        type="episode_1v1",
        # Keys of DI-engine's configs: see `without_effect`.
        deepcopy_obs=False,
        transform_obs=False,
        # Updates between two lines in the collector's log.
        collect_print_freq=100,
        # Return training rows, as the policies' `segment` makes them, in place of episodes.
        get_train_sample=False,
    )

    def _check_number(self, policies: int) -> None:
        if policies != 2:
            raise ConfigError(f"collector 'episode_1v1' takes exactly 2 policies; {policies} were given.")

    def collect(
        self, n_episode: int | None = None, train_iter: int = 0, policy_kwargs: BattleSetting = None
    ) -> BattleData:
        """Return ([episodes of each player], [statistics of each player]) of `n_episode` games.

        Episodes are an EpisodeBatch, or training samples with `get_train_sample`; an empty list where data are not
        kept. Raises ConfigError if nobody says how many, or if there are fewer games than envs.
        """
        loop, policies = self._parts()
        settings = self._settings(policy_kwargs)
        rule = Episodes(self._target(n_episode, "n_episode"), loop.loops[0].rollout.num_lanes)
        if any(own.is_mid_episode for own in loop.loops):
            self.reset_env()
            loop, _ = self._parts()
        started, first_step = time.perf_counter(), loop.env_steps
        episodes: list[list[EpisodeRecord]] = [[] for _ in policies]
        for ended in step_until(loop, rule, settings, policy_version=train_iter):
            for mine, new in zip(episodes, ended, strict=True):
                mine += new
        data = [self._take(player) if keep else [] for player, keep in enumerate(self._keeps)]
        infos = self._count(
            episodes,
            first_step=first_step,
            samples=[len(each) for each in data],
            started_s=started,
            train_iter=train_iter,
        )
        return data, infos

    def _take(self, player: int) -> BattleSamples:
        loop, policies = self._parts()
        if self._cfg.get("get_train_sample"):
            samples: Samples = loop.loops[player].take(policies[player].segment)
            return samples
        return as_episodes(loop.loops[player].take(whole_episodes))
