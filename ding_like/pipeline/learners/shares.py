"""Shares of several learners in the config of one, and checks of what cannot be shared equally."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from ding_like.comm.learner_group import MOST_TIMEOUT_S
from ding_like.config import FrozenConfig, deep_merge
from ding_like.config.report import Fault, config_error
from ding_like.config.tree import Tree, get_path, set_path
from ding_like.errors import ConfigError
from ding_like.pipeline.checks import has_league
from ding_like.policy import get_policy_cls
from ding_like.policy.sharing import Share

if TYPE_CHECKING:
    from ding_like.pipeline.envs import EnvSetting

_ENVS = "env.collector_env_num"
_BATCH_SIZE = "policy.learn.batch_size"
# What each learner of a serial run has its share of, beside the envs.
_COLLECTED = ("policy.collect.n_sample", "policy.collect.n_episode", "policy.random_collect_size")
_LEAST_TIMEOUT_S = 2.0
_NO_LIMIT = {"min": 0, "max": float("inf")}
_STORED = (_BATCH_SIZE, "policy.other.replay_buffer.replay_buffer_size")


def check_shares(policy: FrozenConfig, world_size: int) -> None:
    """Raise ConfigError where `world_size` learners cannot share the batches of a policy, a section of a config."""
    for fault in _faults_of_policy(policy):
        if fault.path == "policy.type":
            raise ConfigError(f"{fault.path} {fault.message} (system.num_learners=1).")
    if takes_whole_batches(policy):
        return  # each takes its share of every minibatch, of whatever size
    if int(policy.learn.batch_size) % world_size:
        raise ConfigError(
            f"policy.learn.batch_size is {policy.learn.batch_size}, which {world_size} learners cannot share equally: "
            f"give a multiple of {world_size}."
        )


def timeout_fault(timeout_s: float) -> str:
    """Return what is wrong with `learners.timeout_s`; "" if nothing is."""
    if not timeout_s >= _LEAST_TIMEOUT_S:
        return f"is {timeout_s:g}, give at least {_LEAST_TIMEOUT_S:g}: learners say once a second that they live"
    return f"is {timeout_s:g}, give at most {MOST_TIMEOUT_S:.0f}, a year" if timeout_s > MOST_TIMEOUT_S else ""


def takes_whole_batches(policy: FrozenConfig) -> bool:
    """Tell whether each learner of a policy, a section of a config, is given whole batches."""
    return bool(getattr(get_policy_cls(policy), "takes_whole_batches", False))


def share_config(cfg: FrozenConfig, num_learners: int) -> FrozenConfig:
    """Return the config of one of `num_learners` learners, each of which runs a whole serial loop with its share.

    Envs, what is collected at a time, random rows, the replay buffer and its batches are divided; what each learns from
    stays a whole batch for a policy with `takes_whole_batches`. Raises ConfigError with everything that cannot be
    divided.
    """
    faults = list(_faults(cfg, num_learners))
    if faults:
        raise config_error(faults, f"the config of {num_learners} learners", {})
    keeps_batch_size = takes_whole_batches(cfg.policy)
    changes: Tree = {}
    for path in (_ENVS, *_COLLECTED, *_stored(cfg)):
        value = get_path(cfg, path)
        if value and not (path == _BATCH_SIZE and keeps_batch_size):
            set_path(changes, path, int(value) // num_learners)
    return FrozenConfig(deep_merge(cfg, changes))


def share_envs(setting: EnvSetting, share: Share) -> EnvSetting:
    """Return the env configs of one learner's collector; every learner has those of evaluations.

    Raises ConfigError if there are not as many for each.
    """
    env_fn, collect, evaluate = setting
    if len(collect) % share.num_learners or not collect:
        raise ConfigError(
            f"{len(collect)} envs to collect in cannot be shared equally by {share.num_learners} learners: make a "
            f"multiple of {share.num_learners}."
        )
    return env_fn, collect[share.of(len(collect))], evaluate


def share_of_batch(cfg: FrozenConfig, num_learners: int) -> int | None:
    """Return the rows that a learner with the config of `share_config` draws from its own buffer for an update.

    None where batches are not of a size: on-policy, they are what was collected.
    """
    batch_size = cfg.policy.learn.batch_size
    if cfg.policy.on_policy or batch_size is None:
        return None
    return int(batch_size) // num_learners if takes_whole_batches(cfg.policy) else int(batch_size)


def may_refuse(cfg: FrozenConfig) -> bool:
    """Tell whether a buffer may have too few rows for an update although it had enough for an earlier one."""
    buffer = cfg.policy.other.get("replay_buffer") or {}
    limits = buffer.get("thruput_controller") or {}
    has_limit = (limits.get("push_sample_rate_limit") or _NO_LIMIT) != _NO_LIMIT
    return has_limit or any(buffer.get(key) not in (None, float("inf")) for key in ("max_use", "max_staleness"))


def _stored(cfg: FrozenConfig) -> tuple[str, ...]:
    """Return the paths of what is divided where rows are stored; on-policy, none are."""
    return () if cfg.policy.on_policy else _STORED


def _faults(cfg: FrozenConfig, num_learners: int) -> Iterator[Fault]:
    policy = cfg.policy
    envs = int(get_path(cfg, _ENVS))
    if envs < num_learners:
        yield Fault(_ENVS, f"is {envs}, fewer than the {num_learners} learners: give each at least one env")
    for path in (_ENVS, *_COLLECTED, *_stored(cfg)):
        value = int(get_path(cfg, path) or 0)
        if value % num_learners and not (path == _ENVS and envs < num_learners):
            near = max(value - value % num_learners, num_learners)
            yield Fault(
                path,
                f"is {value}, which {num_learners} learners cannot share equally: give {near}, or another multiple "
                f"of {num_learners}",
            )
    yield from _faults_of_policy(policy)
    if fault := timeout_fault(cfg.learners.timeout_s):
        yield Fault("learners.timeout_s", fault)
    if has_league(cfg):
        yield Fault(
            "policy.other.league",
            "chooses opponents by the games of one learner, and several would choose apart: start one learner",
        )
    if policy.cuda and not torch.cuda.is_available():
        yield Fault("policy.cuda", "is True, but torch finds no GPU here: set it to False to learn on the CPU")


def _faults_of_policy(policy: FrozenConfig) -> Iterator[Fault]:
    is_whole = takes_whole_batches(policy)
    if callable(getattr(get_policy_cls(policy), "_forward_learn", None)):
        yield Fault(
            "policy.type",
            f"'{policy.type}' learns in DI-engine's style (_forward_learn), which gives no gradients to average: "
            "give it grad() and apply(), or start one learner",
        )
    elif policy.on_policy and not is_whole:
        yield Fault(
            "policy.type",
            f"'{policy.type}' is on-policy and does not say how several learners share its rows "
            "(takes_whole_batches): start one learner",
        )
    if is_whole and policy.priority:
        yield Fault("policy.priority", "is True, but this policy's learners share whole batches: set it to False")
