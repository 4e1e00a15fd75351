"""Say whether several learners can share a policy's batches."""

from __future__ import annotations

from typing import Any

from ding_like.errors import ConfigError
from ding_like.policy import get_policy_cls


def check_shares(policy: Any, world_size: int) -> None:
    """Raise ConfigError where `world_size` learners cannot share the batches of a policy, a section of a config."""
    if getattr(get_policy_cls(policy), "takes_whole_batches", False):
        return  # each takes its share of every minibatch, of whatever size
    if policy.on_policy:
        raise ConfigError(
            f"several learners cannot share the rows of policy '{policy.type}', which is on-policy and does not say "
            "how (takes_whole_batches); give system.num_learners=1."
        )
    if int(policy.learn.batch_size) % world_size:
        raise ConfigError(
            f"policy.learn.batch_size is {policy.learn.batch_size}, which {world_size} learners cannot share equally: "
            f"give a multiple of {world_size}."
        )
