"""Build collectors, evaluators, learners and buffers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ding_like.config import FrozenConfig, deep_merge
from ding_like.envs import EnvFactory, get_vec_env_setting
from ding_like.errors import ConfigError
from ding_like.pipeline.build.envs import EnvSetting
from ding_like.policy import Policy
from ding_like.types import EnvManager, Reducer
from ding_like.utils.metrics import MetricsSink
from ding_like.utils.seeding import make_rng
from ding_like.worker import (
    BaseLearner,
    IBuffer,
    InteractionSerialEvaluator,
    SampleSerialCollector,
    create_learner,
    create_pipeline_buffer,
    create_serial_collector,
    create_serial_evaluator,
    get_buffer_cls,
)


def build_collector(
    cfg: FrozenConfig,
    env: EnvManager,
    policy: Policy,
    *,
    seed: int,
    metrics: MetricsSink | None = None,
    name: str = "collector",
    rank: int = 0,
    rng: np.random.Generator | None = None,
) -> SampleSerialCollector:
    """Return the collector of a config, of several learners that of `rank`; its log and its metrics bear `name`.

    `rng` is what it draws from, by default a generator that follows from `seed`.
    Raises ConfigError for one that hands out whole episodes: what follows learns from rows.
    """
    section = cfg.policy.collect.collector
    check_hands_out_rows(section)
    collector: SampleSerialCollector = create_serial_collector(
        section,
        env=env,
        policy=policy.collect_mode,
        rng=make_rng(seed, "collector", *_apart(rank)) if rng is None else rng,
        tb_logger=metrics,
        exp_name=cfg.exp_name,
        instance_name=_named(name, rank),
    )
    return collector


def check_hands_out_rows(section: FrozenConfig) -> None:
    """Raise ConfigError if a section `collector` asks for whole episodes."""
    if not section.get("get_train_sample", True):
        raise ConfigError(
            f"policy.collect.collector.get_train_sample is False: collector '{section.type}' would hand out "
            "whole episodes, but this pipeline learns from rows. Set it to True."
        )


def build_evaluator(
    cfg: FrozenConfig, env: EnvManager, policy: Policy | None, *, seed: int, metrics: MetricsSink | None = None
) -> InteractionSerialEvaluator:
    """Return the evaluator of a config; without a policy it must be given one before it plays."""
    evaluator: InteractionSerialEvaluator = create_serial_evaluator(
        cfg.policy.eval.evaluator,
        env=env,
        policy=None if policy is None else policy.eval_mode,
        tb_logger=metrics,
        exp_name=cfg.exp_name,
        seed=seed,
    )
    return evaluator


def build_learner(
    cfg: FrozenConfig,
    policy: Policy,
    *,
    seed: int,
    metrics: MetricsSink | None = None,
    max_updates: float = float("inf"),
    rng: np.random.Generator | None = None,
    reducer: Reducer | None = None,
    rank: int = 0,
    num_learners: int = 1,
) -> BaseLearner:
    """Return the learner of a config, which stops after `max_updates` where the config does not stop it before.

    `rng` draws its minibatches, by default a generator that follows from `seed`. Of several learners, which share
    gradients through `reducer`, it is the one of `rank`.
    """
    section = cfg.policy.learn.learner
    if max_updates < section.get("train_iterations", float("inf")):
        section = deep_merge(section, {"train_iterations": int(max_updates)})
    learner: BaseLearner = create_learner(
        section,
        policy=policy.learn_mode,
        tb_logger=metrics,
        dist_info=(rank, num_learners) if num_learners > 1 else None,
        rng=make_rng(seed, "learner", *_apart(rank)) if rng is None else rng,
        reducer=reducer,
        exp_name=cfg.exp_name,
        instance_name=_named("learner", rank),
    )
    return learner


def build_buffer(
    cfg: FrozenConfig,
    *,
    seed: int,
    metrics: MetricsSink | None = None,
    name: str = "buffer",
    rank: int = 0,
    env_setting: EnvSetting | None = None,
) -> IBuffer:
    """Return the replay buffer of a config, to be sampled by `sample(size, train_iter)` whatever its unit is.

    Of several learners it is that of `rank`. `env_setting` stands in place of the config's envs, of which a buffer may
    need one.
    """
    section = cfg.policy.other.replay_buffer
    own: dict[str, Any] = {}
    if get_buffer_cls(section).needs_env:
        env_fn, env_cfgs, _ = env_setting or get_vec_env_setting(cfg.env, eval_=False)
        own["make_env"] = EnvFactory(env_cfgs[0], env_fn)
    return create_pipeline_buffer(
        section,
        rng=make_rng(seed, "buffer", *_apart(rank)),
        tb_logger=metrics,
        exp_name=cfg.exp_name,
        instance_name=_named(name, rank),
        **own,
    )


def _apart(rank: int) -> tuple[str, ...]:
    """Return what sets the generators of a learner apart from those of the first one, which a single one has too."""
    return (str(rank),) if rank else ()


def _named(name: str, rank: int) -> str:
    return f"{name}_rank{rank}" if rank else name
