"""Build the parts of a run in one process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ding_like.config import FrozenConfig, deep_merge
from ding_like.data.batch import Schema, TransitionBatch
from ding_like.data.rows import adapt_collect_mode
from ding_like.envs import EnvFactory, get_vec_env_setting
from ding_like.errors import ConfigError, TrainingError
from ding_like.pipeline.checks import check_buffer, has_league
from ding_like.pipeline.envs import (
    EnvSetting,
    build_collect_env,
    build_eval_env,
    build_policy,
    fit_policy_config,
    versus,
)
from ding_like.pipeline.expert import give_expert
from ding_like.pipeline.rows import RemoteCollectors
from ding_like.pipeline.self_play import LeaguePlay, Opponents, evaluated_env
from ding_like.pipeline.statistics import ENV_WRAPPERS, MergedStatistics, SharedStatistics, WrapperStatistics
from ding_like.policy import Policy
from ding_like.policy.sharing import Share
from ding_like.reward_model import create_reward_model, get_reward_model_cls, reward_model_section
from ding_like.reward_model.base import Sizes
from ding_like.types import Config, EnvManager, Reducer
from ding_like.utils.metrics import MetricsSink
from ding_like.utils.seeding import global_rng_state, make_rng, set_global_rng_state
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
    get_buffer_cls,
)
from ding_like.worker.collector.base import reads_info
from ding_like.worker.collector.loop import RolloutLoop

_ALONE = Share()


@dataclass
class Components:
    """Components of one run, or of one of several learners; `close` closes them all.

    Of several learners, only the first evaluates and writes metrics. Where rows are collected elsewhere, or come from a
    file, there are no envs for that, and the collector stands for those that do.
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
    collects: bool = True  # here or elsewhere; False: rows come from a file

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
    """Return all components of a serial run, launched and connected; without `collects` none of its rows are its own.

    For one of several learners `cfg` and `env_setting` are its shares (`pipeline/learners/synced.py`), and
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
        if envs is None:  # another learner, which learns from a data set
            envs = opened.enter_context(closing(build_eval_env(cfg, seed=seed, env_setting=env_setting)))
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
        opened.callback(learner.close)
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
    elif cfg.policy.on_policy and cfg.policy.random_collect_size:
        raise ConfigError(
            f"policy.random_collect_size is {cfg.policy.random_collect_size}, but an on-policy run has no buffer that "
            "random actions could fill. Set it to 0."
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
    give_expert(policy, cfg)
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


# Number of the final evaluation of a run: no stop rule has seen its episodes.
FINAL_NUMBER = -1
_FINAL_EPISODES = 20


def final_episodes(env: EnvManager) -> int:
    """Return the number of episodes of a run's final evaluation, one in each lane at least."""
    return max(_FINAL_EPISODES, env.num_lanes)


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
    try:
        prepare_batches(cfg, policy, learner, seed=seed, rank=rank)
    except BaseException:
        learner.close()
        raise
    return learner


def check_reward_model(cfg: FrozenConfig, policy: Policy) -> None:
    """Raise ConfigError for a policy whose rows cannot be given other rewards, where the config has a reward model."""
    if (section := reward_model_section(cfg)) is None:
        return
    if why := getattr(policy, "why_no_reward_model", lambda: None)():
        raise ConfigError(f"reward model '{section.type}' does not work with policy '{cfg.policy.type}': {why}.")
    needs_sequences = getattr(get_reward_model_cls(section), "needs_sequences", False)
    if needs_sequences and not getattr(policy, "rows_are_sequences", False):
        raise ConfigError(
            f"reward model '{section.type}' takes rows that are sequences, and those of policy '{cfg.policy.type}' "
            "are single transitions: choose policy 'ngu' or 'r2d2'."
        )


def prepare_batches(cfg: FrozenConfig, policy: Policy, learner: BaseLearner, *, seed: int, rank: int = 0) -> None:
    """Give a learner the reward model and the expert's rows that its config asks for.

    Raises ConfigError for a policy whose rows cannot be given other rewards.
    """
    check_reward_model(cfg, policy)
    if (section := reward_model_section(cfg)) is not None:
        model = create_reward_model(
            section,
            Sizes.of_policy(policy.cfg),
            seed=seed,
            rng=make_rng(seed, "reward_model", *_apart(rank)),
            device=policy.device,
            batches_per_collect=1 if cfg.policy.on_policy else int(cfg.policy.learn.update_per_collect),
            mean=getattr(learner.reducer, "mean", None),
            log_prob=policy.log_prob if getattr(policy, "has_log_prob", False) else None,
        )
        learner.use_reward_model(model)
    make_rows = getattr(policy, "expert_rows", lambda rng: None)  # a class of one's own may be no Policy
    if (rows := make_rows(make_rng(seed, "expert_rows", *_apart(rank)))) is not None:
        learner.use_expert_rows(rows, pretrain_updates=int(cfg.policy.learn.get("pretrain_updates", 0)))


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


_MAX_STEPS = 100_000  # of all lanes, without a row that is ready


def rows_schema(fitted: Config, env: EnvManager, *, seed: int) -> Schema:
    """Return the columns that collectors send: a policy of its own acts in `env` until its first row is ready.

    `fitted` is the policy section as `fit_policy_config` returns it. `env` is launched; its episodes go on. The global
    generators are left as they were. Raises ConfigError where rows do not stack, TrainingError where none gets ready.
    """
    generators = global_rng_state()
    try:
        policy = build_policy(fitted, modes=["collect", "command"])
        give_expert(policy)
        mode = adapt_collect_mode(policy.collect_mode)
        loop = RolloutLoop(env, mode.actor, rng=make_rng(seed, "row_schema"), keeps_info=reads_info(mode))
        setting = policy.command_mode.get_setting_collect({"envstep": 0})
        while not loop.num_ready(mode.num_ready) and loop.env_steps < _MAX_STEPS:
            loop.step(setting)
        if not loop.num_ready(mode.num_ready):
            raise TrainingError(
                f"policy '{fitted.get('type')}' has made no row in {loop.env_steps:,} env steps: see its `segment` "
                "and `num_ready`."
            )
        batch = loop.take(mode.segment)
    finally:
        set_global_rng_state(generators)
    if not isinstance(batch, TransitionBatch):
        raise ConfigError(
            f"policy '{fitted.get('type')}' gives rows that do not stack; mode parallel needs equal shapes."
        )
    return Schema.of(batch.columns)
