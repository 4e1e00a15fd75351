"""Build the parts of a run in one process."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import torch

from ding_like.config import FrozenConfig
from ding_like.errors import ConfigError
from ding_like.pipeline.build.envs import EnvSetting, build_collect_env, build_eval_env, one_player_sees
from ding_like.pipeline.build.opponents import Opponents
from ding_like.pipeline.build.parts import (
    build_buffer,
    build_collector,
    build_evaluator,
    build_learner,
    check_hands_out_rows,
)
from ding_like.pipeline.build.policies import build_policy
from ding_like.pipeline.build.spaces import fit_policy_config
from ding_like.pipeline.sample_unit import check_buffer
from ding_like.pipeline.self_play import LeaguePlay, has_league, versus
from ding_like.pipeline.statistics import ENV_WRAPPERS, WrapperStatistics
from ding_like.policy import Policy
from ding_like.types import EnvManager
from ding_like.utils.metrics import MetricsSink
from ding_like.worker import (
    BaseLearner,
    BaseSerialCommander,
    IBuffer,
    InteractionSerialEvaluator,
    SampleSerialCollector,
)


@dataclass
class SerialParts:
    """Hold the parts of one run; `close` closes them all."""

    collector_env: EnvManager
    evaluator_env: EnvManager
    policy: Policy
    learner: BaseLearner
    collector: SampleSerialCollector
    evaluator: InteractionSerialEvaluator
    buffer: IBuffer | None  # None: on-policy, nothing is stored
    commander: BaseSerialCommander
    metrics: MetricsSink
    league: LeaguePlay | None = None  # of a run that plays in one

    @property
    def replay_buffer(self) -> IBuffer:
        """Return the buffer. Raises ConfigError in an on-policy run, which has none."""
        if self.buffer is None:
            raise ConfigError("this run was built without a replay buffer: on-policy data are used once, at once.")
        return self.buffer

    def close(self) -> None:
        """Close every part, the metrics last."""
        for part in (self.collector, self.evaluator, self.learner, self.buffer, self.metrics):
            if part is not None:
                part.close()


def build_serial(
    cfg: FrozenConfig,
    *,
    seed: int,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    dynamic_seed: bool = True,
    with_buffer: bool = True,
) -> SerialParts:
    """Return all parts of a serial run, launched and connected."""
    _check(cfg, with_buffer=with_buffer)
    with ExitStack() as opened:
        collector_env = build_collect_env(cfg, seed=seed, env_setting=env_setting, dynamic_seed=dynamic_seed)
        opened.callback(collector_env.close)
        evaluator_env = build_eval_env(cfg, seed=seed, env_setting=env_setting)
        opened.callback(evaluator_env.close)
        metrics = MetricsSink(cfg.exp_name)
        opened.callback(metrics.close)
        fitted = fit_policy_config(cfg.policy, collector_env)
        policy = build_policy(fitted, seed=seed, model=model)
        opponents = Opponents(fitted, policy)
        if (seen := one_player_sees(cfg, evaluator_env, seed=seed, name="evaluator")) is not None:
            opponents.face(seen, cfg.env.manager.opponent)
            evaluator_env = seen
        league = None
        if has_league(cfg):
            collector_env = versus(collector_env, seed=seed, name="collector")
            league = LeaguePlay(cfg, seed=seed, env=collector_env, policy=policy, opponents=opponents, metrics=metrics)
        learner = build_learner(cfg, policy, seed=seed, metrics=metrics)
        learner.checkpoint_parts[ENV_WRAPPERS] = WrapperStatistics(collector_env)
        collector = build_collector(cfg, collector_env, policy, seed=seed, metrics=metrics)
        evaluator = build_evaluator(cfg, evaluator_env, policy, seed=seed, metrics=metrics)
        buffer = build_buffer(cfg, seed=seed, metrics=metrics) if with_buffer else None
        commander = BaseSerialCommander(
            cfg.policy.other.commander, learner, collector, evaluator, buffer, policy.command_mode
        )
        opened.pop_all()
    return SerialParts(
        collector_env, evaluator_env, policy, learner, collector, evaluator, buffer, commander, metrics, league
    )


def _check(cfg: FrozenConfig, *, with_buffer: bool) -> None:
    """Raise ConfigError for what a serial run cannot do, before anything is made."""
    check_hands_out_rows(cfg.policy.collect.collector)
    has_league(cfg)
    if with_buffer:
        check_buffer(cfg.policy)
    elif cfg.policy.random_collect_size:
        raise ConfigError(
            f"policy.random_collect_size is {cfg.policy.random_collect_size}, but an on-policy run has no buffer that "
            "random actions could fill. Set it to 0."
        )
