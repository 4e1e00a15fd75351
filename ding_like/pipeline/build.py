"""Build the parts of a run in one process from a compiled config."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from ding_like.envs import EnvFactory, create_env_manager, get_vec_env_setting
from ding_like.errors import ConfigError
from ding_like.pipeline.sample_unit import check_buffer
from ding_like.pipeline.self_play import LeaguePlay, Opponents, has_league, is_game, versus
from ding_like.pipeline.spaces import fit_policy_config
from ding_like.pipeline.statistics import ENV_WRAPPERS, WrapperStatistics
from ding_like.policy import Policy, create_policy
from ding_like.types import EnvManager
from ding_like.utils.metrics import MetricsSink
from ding_like.utils.seeding import make_rng, set_pkg_seed
from ding_like.worker import (
    BaseLearner,
    BaseSerialCommander,
    IBuffer,
    InteractionSerialEvaluator,
    SampleSerialCollector,
    create_learner,
    create_pipeline_buffer,
    create_serial_collector,
    create_serial_evaluator,
)

# (env factories, one config per collector env, one per evaluator env): what `get_vec_env_setting` returns.
EnvSetting = tuple[Callable[..., Any], Sequence[Any], Sequence[Any]]


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


@contextmanager
def training_process(*, num_threads: int = 1) -> Iterator[None]:
    """Set torch and numpy up for training, and back again: one thread unless told otherwise, no denormal numbers.

    Small matrices gain nothing from a second thread, and on a busy machine numpy's threads wait for each other, which
    was seen to cost 200 times. Adam's moments become denormal on the CPU, which costs up to 30 times.
    """
    threads = torch.get_num_threads()
    # torch has no getter: a denormal number that survives tells.
    flushed = bool((torch.full((), 1e-40) * 1.0) == 0)
    torch.set_num_threads(num_threads)
    torch.set_flush_denormal(True)
    try:
        with threadpool_limits(num_threads):
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(flushed)


def build_envs(
    cfg: Any, *, seed: int, env_setting: EnvSetting | None, dynamic_seed: bool
) -> tuple[EnvManager, EnvManager]:
    """Return launched managers for collecting and evaluating."""
    env_fn, collector_cfgs, evaluator_cfgs = env_setting or get_vec_env_setting(cfg.env)
    collector_env = create_env_manager(cfg.env.manager, [EnvFactory(env, env_fn) for env in collector_cfgs])
    evaluator_env = create_env_manager(cfg.env.manager, [EnvFactory(env, env_fn) for env in evaluator_cfgs])
    # Lane i starts from seed + i when collecting; evaluations bring seeds of their own.
    collector_env.seed(seed, dynamic_seed=dynamic_seed)
    evaluator_env.seed(seed)
    try:
        collector_env.launch()
        evaluator_env.launch()
    except BaseException:
        collector_env.close()
        evaluator_env.close()
        raise
    return collector_env, evaluator_env


def build_serial(
    cfg: Any,
    *,
    seed: int,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    dynamic_seed: bool = True,
    with_buffer: bool = True,
) -> SerialParts:
    """Return all parts of a serial run, launched and connected."""
    _check_hands_out_rows(cfg.policy.collect.collector)
    if with_buffer:
        check_buffer(cfg.policy)
    elif cfg.policy.random_collect_size:
        raise ConfigError(
            f"policy.random_collect_size is {cfg.policy.random_collect_size}, but an on-policy run has no buffer that "
            "random actions could fill. Set it to 0."
        )
    plays_league = has_league(cfg)
    collector_env, evaluator_env = build_envs(cfg, seed=seed, env_setting=env_setting, dynamic_seed=dynamic_seed)
    metrics, league = MetricsSink(cfg.exp_name), None
    try:
        set_pkg_seed(seed, use_cuda=bool(cfg.policy.cuda))
        fitted = fit_policy_config(cfg.policy, collector_env)
        policy = create_policy(fitted, model=model)
        if is_game(cfg):
            opponents = Opponents(fitted, policy)
            evaluator_env = versus(evaluator_env, seed=seed, name="evaluator")
            opponents.face(evaluator_env, cfg.env.manager.opponent)
        if plays_league:
            collector_env = versus(collector_env, seed=seed, name="collector")
            league = LeaguePlay(cfg, seed=seed, env=collector_env, policy=policy, opponents=opponents, metrics=metrics)
    except BaseException:
        for part in (collector_env, evaluator_env, metrics):
            part.close()
        raise
    shared: dict[str, Any] = dict(tb_logger=metrics, exp_name=cfg.exp_name)
    learner = create_learner(
        cfg.policy.learn.learner, policy=policy.learn_mode, rng=make_rng(seed, "learner"), **shared
    )
    learner.checkpoint_parts[ENV_WRAPPERS] = WrapperStatistics(collector_env)
    collector = create_serial_collector(
        cfg.policy.collect.collector,
        env=collector_env,
        policy=policy.collect_mode,
        rng=make_rng(seed, "collector"),
        **shared,
    )
    evaluator = create_serial_evaluator(
        cfg.policy.eval.evaluator, env=evaluator_env, policy=policy.eval_mode, seed=seed, **shared
    )
    buffer = None
    if with_buffer:
        buffer = create_pipeline_buffer(cfg.policy.other.replay_buffer, rng=make_rng(seed, "buffer"), **shared)
    commander = BaseSerialCommander(
        cfg.policy.other.commander, learner, collector, evaluator, buffer, policy.command_mode
    )
    return SerialParts(
        collector_env, evaluator_env, policy, learner, collector, evaluator, buffer, commander, metrics, league
    )


def _check_hands_out_rows(collector_cfg: Any) -> None:
    """Refuse a collector that hands out whole episodes: what follows here learns from rows."""
    if not collector_cfg.get("get_train_sample", True):
        raise ConfigError(
            f"policy.collect.collector.get_train_sample is False: collector '{collector_cfg.type}' would hand out "
            "whole episodes, but this pipeline learns from rows. Set it to True."
        )
