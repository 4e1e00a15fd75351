"""Build the parts of a run in one process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import torch

from ding_like.config import FrozenConfig
from ding_like.errors import ConfigError
from ding_like.pipeline.build.envs import EnvSetting, build_collect_env, build_eval_env
from ding_like.pipeline.build.parts import (
    Opponents,
    build_buffer,
    build_collector,
    build_evaluator,
    build_learner,
    build_policy,
    check_hands_out_rows,
    evaluated_env,
)
from ding_like.pipeline.build.spaces import fit_policy_config
from ding_like.pipeline.learners.lock_step import SharedStatistics
from ding_like.pipeline.roles.remote_collectors import RemoteCollectors
from ding_like.pipeline.sample_unit import check_buffer
from ding_like.pipeline.self_play import LeaguePlay, has_league, versus
from ding_like.pipeline.statistics import ENV_WRAPPERS, MergedStatistics, WrapperStatistics
from ding_like.policy import Policy
from ding_like.policy.sharing import Share
from ding_like.types import EnvManager, Reducer
from ding_like.utils.metrics import MetricsSink
from ding_like.utils.seeding import make_rng
from ding_like.worker import (
    BaseLearner,
    BaseSerialCommander,
    IBuffer,
    InteractionSerialEvaluator,
    SampleSerialCollector,
)

_ALONE = Share()


@dataclass
class Components:
    """Components of one run, or of one of several learners; `close` closes them all.

    Of several learners, only the first evaluates and writes metrics. Where rows are collected elsewhere there are no
    envs for that, and the collector stands for those that do.
    """

    collector_env: EnvManager | None
    evaluator_env: EnvManager | None
    policy: Policy
    learner: BaseLearner
    collector: SampleSerialCollector | RemoteCollectors
    evaluator: InteractionSerialEvaluator | None
    buffer: IBuffer | None  # None: on-policy, nothing is stored
    commander: BaseSerialCommander
    metrics: MetricsSink | None
    league: LeaguePlay | None = None  # of a run that plays in one
    share: Share = _ALONE
    statistics: SharedStatistics | MergedStatistics | None = None  # of several learners' or collectors' env wrappers

    @property
    def own_env(self) -> EnvManager:
        """Return the envs of collecting. Raises ConfigError where others have them."""
        if self.collector_env is None:
            raise ConfigError("this run was built without envs to collect in: others collect.")
        return self.collector_env

    @property
    def own_collector(self) -> SampleSerialCollector:
        """Return the collector. Raises ConfigError where others collect."""
        if isinstance(self.collector, RemoteCollectors):
            raise ConfigError("this run was built without a collector of its own: others collect.")
        return self.collector

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
    cfg: FrozenConfig, *, seed: int, env_setting: EnvSetting | None = None, model: torch.nn.Module | None = None,
    dynamic_seed: bool = True, with_buffer: bool = True, share: Share = _ALONE,
    make_reducer: Callable[[Policy], Reducer] | None = None, collects: bool = True,
) -> Components:  # fmt: skip
    """Return all components of a serial run, launched and connected; without `collects` its collectors are remote.

    For one of several learners `cfg` and `env_setting` are its shares (`pipeline/learners/shares.py`), and
    `make_reducer` returns what averages the gradients of its policy. Its lanes and generators are seeded apart from the
    others', its weights as theirs.
    """
    check_run(cfg, with_buffer=with_buffer)
    rank = share.rank
    with ExitStack() as opened:
        collector_env = evaluator_env = shared = buffer = metrics = league = evaluator = None
        if collects:
            collector_env, shared = _collect_env(cfg, seed, env_setting, share, dynamic_seed=dynamic_seed)
            opened.callback(collector_env.close)
        if not rank:
            evaluator_env = build_eval_env(cfg, seed=seed, env_setting=env_setting)
            opened.callback(evaluator_env.close)
            metrics = MetricsSink(cfg.exp_name)
            opened.callback(metrics.close)
        if with_buffer:  # early: it may refuse the env
            buffer = build_buffer(cfg, seed=seed, metrics=metrics, rank=rank, env_setting=env_setting)
            opened.callback(buffer.close)
        envs = collector_env or evaluator_env
        assert envs is not None, "several learners collect each by themselves"
        fitted = fit_policy_config(cfg.policy, envs)
        policy = build_policy(fitted, seed=seed, model=model)
        statistics = shared if collects else MergedStatistics(envs)
        opponents = Opponents(fitted, policy)
        if evaluator_env is not None:
            evaluator_env = evaluated_env(cfg, evaluator_env, opponents, seed=seed)
        if collector_env is not None and has_league(cfg):
            assert metrics is not None, "leagues are of one learner"
            collector_env = versus(collector_env, seed=seed, name="collector")
            league = LeaguePlay(cfg, seed=seed, env=collector_env, policy=policy, opponents=opponents, metrics=metrics)
        is_alike = rank > 0 and policy.takes_whole_batches  # whole batches are shuffled by all learners alike
        learner = build_learner(
            cfg, policy, seed=seed, metrics=metrics, rng=make_rng(seed, "learner") if is_alike else None,
            reducer=None if make_reducer is None else make_reducer(policy), rank=rank, num_learners=share.num_learners,
        )  # fmt: skip
        collector: SampleSerialCollector | RemoteCollectors
        if collector_env is None:
            learner.checkpoint_parts[ENV_WRAPPERS] = statistics
            collector = RemoteCollectors(metrics)
        else:
            learner.checkpoint_parts[ENV_WRAPPERS] = statistics or WrapperStatistics(collector_env)
            collector = build_collector(cfg, collector_env, policy, seed=seed, metrics=metrics, rank=rank)
        if evaluator_env is not None:
            evaluator = build_evaluator(cfg, evaluator_env, policy, seed=seed, metrics=metrics)
        commander = BaseSerialCommander(
            cfg.policy.other.commander, learner, collector, evaluator, buffer, policy.command_mode
        )
        opened.pop_all()
    lone = collector_env, evaluator_env, policy, learner, collector, evaluator, buffer, commander, metrics, league
    return Components(*lone, share=share, statistics=statistics)


def _collect_env(
    cfg: FrozenConfig, seed: int, env_setting: EnvSetting | None, share: Share, *, dynamic_seed: bool
) -> tuple[EnvManager, SharedStatistics | None]:
    """Return the envs of a learner's collector, and, of several learners, what they normalise by together."""
    if share.num_learners == 1:
        return build_collect_env(cfg, seed=seed, env_setting=env_setting, dynamic_seed=dynamic_seed), None
    found: list[SharedStatistics] = []
    num_envs = int(cfg.env.collector_env_num) if env_setting is None else len(env_setting[1])
    env = build_collect_env(
        cfg,
        seed=seed + share.rank * num_envs,  # lane i of one process would have seed + i
        env_setting=env_setting,
        dynamic_seed=dynamic_seed,
        before_launch=lambda manager: found.append(SharedStatistics(manager)),
    )
    return env, found[0]


def check_run(cfg: FrozenConfig, *, with_buffer: bool) -> None:
    """Raise ConfigError for what a run of one program cannot do, before anything is made."""
    check_hands_out_rows(cfg.policy.collect.collector)
    has_league(cfg)
    if with_buffer:
        check_buffer(cfg.policy)
    elif cfg.policy.random_collect_size:
        raise ConfigError(
            f"policy.random_collect_size is {cfg.policy.random_collect_size}, but an on-policy run has no buffer that "
            "random actions could fill. Set it to 0."
        )
