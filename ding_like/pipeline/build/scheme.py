"""Build the parts of a run whose collectors are elsewhere: what its driver has."""

from __future__ import annotations

from contextlib import ExitStack

import torch

from ding_like.config import FrozenConfig, deep_merge
from ding_like.errors import ConfigError
from ding_like.pipeline.build.envs import EnvSetting, build_eval_env
from ding_like.pipeline.build.opponents import Opponents, evaluated_env
from ding_like.pipeline.build.parts import build_buffer, build_evaluator, build_learner
from ding_like.pipeline.build.policies import build_policy
from ding_like.pipeline.build.serial import Components, build_serial, check_run
from ding_like.pipeline.build.spaces import fit_policy_config
from ding_like.pipeline.roles.remote_collectors import RemoteCollectors
from ding_like.pipeline.self_play import has_league
from ding_like.pipeline.statistics import ENV_WRAPPERS, MergedStatistics
from ding_like.policy.device import device_named
from ding_like.utils.metrics import MetricsSink
from ding_like.worker import BaseSerialCommander


def build_driver(
    cfg: FrozenConfig,
    *,
    seed: int,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    dynamic_seed: bool = True,
    collects: bool = False,
    device: str | None = None,
) -> Components:
    """Return the parts of a run whose collectors are elsewhere: as a serial run's, but for envs to collect in.

    The policy, the learner and the buffer draw what those of a serial run draw. With `collects` the run's driver
    collects by itself, and the parts are a serial run's. `device` stands in place of what `policy.cuda` says. Raises
    ConfigError for a league, whose games are played where the player learns, and for a device that is absent.
    """
    if device is not None:
        named = device_named(device)
        cfg = FrozenConfig(deep_merge(cfg, {"policy": {"cuda": False if named.type == "cpu" else str(named)}}))
    with_buffer = not cfg.policy.on_policy
    if collects:
        return build_serial(
            cfg, seed=seed, env_setting=env_setting, model=model, dynamic_seed=dynamic_seed, with_buffer=with_buffer
        )
    check_run(cfg, with_buffer=with_buffer)
    if has_league(cfg):
        raise ConfigError("policy.other.league needs its games where its player learns: run it with `ding -m serial`.")
    with ExitStack() as opened:
        envs = build_eval_env(cfg, seed=seed, env_setting=env_setting)
        opened.callback(envs.close)
        metrics = MetricsSink(cfg.exp_name)
        opened.callback(metrics.close)
        buffer = None
        if with_buffer:  # early: it may refuse the env
            buffer = build_buffer(cfg, seed=seed, metrics=metrics, env_setting=env_setting)
            opened.callback(buffer.close)
        fitted = fit_policy_config(cfg.policy, envs)
        policy = build_policy(fitted, seed=seed, model=model)
        statistics = MergedStatistics(envs)
        evaluator_env = evaluated_env(cfg, envs, Opponents(fitted, policy), seed=seed)
        learner = build_learner(cfg, policy, seed=seed, metrics=metrics)
        learner.checkpoint_parts[ENV_WRAPPERS] = statistics
        collector = RemoteCollectors(metrics)
        evaluator = build_evaluator(cfg, evaluator_env, policy, seed=seed, metrics=metrics)
        commander = BaseSerialCommander(
            cfg.policy.other.commander, learner, collector, evaluator, buffer, policy.command_mode
        )
        opened.pop_all()
    parts = None, evaluator_env, policy, learner, collector, evaluator, buffer, commander, metrics
    return Components(*parts, statistics=statistics)
