"""Tell users once which of the keys that they set change nothing, and what to use instead.

A class declares such keys beside its `config`, as `without_effect = {"key": "what does it, or why nothing needs to"}`;
they are there so that configs written for DI-engine run as they are. Parts that are no class of a config's schema have
theirs here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from ding_like.config.tree import get_path, join

_logger = logging.getLogger(__name__)
_NOT_SET = object()

# Of the commander of a parallel run, which reads a section that takes any key.
COMMANDER: Mapping[str, str] = {
    "policy.other.commander.eval_interval": "policy.eval.evaluator.eval_freq says how often, in learner iterations",
    "policy.other.commander.eval_freq": "it is a copy of policy.eval.evaluator.eval_freq",
    "policy.other.commander.n_episode": "it is a copy of env.n_evaluator_episode",
    "policy.other.commander.stop_value": "it is a copy of env.stop_value",
    "policy.other.commander.max_env_step": "give --env-step on the command line",
}
# Of `system_config`.
SYSTEM: Mapping[str, str] = {
    "learner_gpu_num": "policy.cuda says whether a GPU is used",
    "coordinator.collector_task_timeout": "coordinator.lease_ttl_s says when a silent worker's task is given away",
    "coordinator.learner_task_timeout": "coordinator.lease_ttl_s says when a silent worker's task is given away",
    "coordinator.operator_server": "workers dial in; `ding -m dist` starts them",
}
# Of the section of a parallel collector in create_config.
PARALLEL_COLLECTOR: Mapping[str, str] = {
    "compressor": "rows travel as they are",
    "update_policy_second": "weights are taken over whenever newer ones are known",
    "print_freq": "a collector writes a line every five seconds",
}


def of_buffer(cfg: Mapping[str, Any]) -> Mapping[str, str]:
    """Return what the replay buffer of a config makes of no effect."""
    if get_path(cfg, "policy.other.replay_buffer.type") != "naive":
        return {}
    return {"policy.priority": "buffer 'naive' samples evenly: set policy.other.replay_buffer.type='advanced'"}


def set_without_effect(
    user: Mapping[str, Any], defaults: Mapping[str, Any], reasons: Mapping[str, str]
) -> dict[str, str]:
    """Return those keys of `reasons`, with them, that a user set to something else than the default."""
    return {
        path: reason
        for path, reason in reasons.items()
        if (value := get_path(user, path, _NOT_SET)) is not _NOT_SET and value != get_path(defaults, path)
    }


def say_without_effect(
    user: Mapping[str, Any],
    defaults: Mapping[str, Any],
    reasons: Mapping[str, str],
    *,
    source: str,
    section: str = "",
) -> None:
    """Say in one INFO message which keys of `reasons` a user set without effect; nothing if there are none."""
    found = set_without_effect(user, defaults, reasons)
    if found:
        named = {join(section, path): reason for path, reason in found.items()}
        _logger.info("%s", listed(named, f"{os.path.basename(source)}: these keys have no effect"))


def listed(reasons: Mapping[str, str], title: str) -> str:
    """Return one message about some keys: a line for each, with its path and the reason."""
    width = max(map(len, reasons))
    return title + "".join(f"\n  {path:<{width}}   {reason}" for path, reason in reasons.items())
