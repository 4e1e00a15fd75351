"""Say whether several learners can share a policy's batches."""

from __future__ import annotations

from typing import Any

from ding_like.errors import ConfigError


def check_shares(policy: Any, world_size: int) -> None:
    """Raise ConfigError where `world_size` learners cannot share the batches of a policy."""
    if int(policy.learn.batch_size) % world_size:
        raise ConfigError(
            f"policy.learn.batch_size is {policy.learn.batch_size}, which {world_size} learners cannot share equally: "
            f"give a multiple of {world_size}."
        )
    if policy.on_policy:
        raise ConfigError("several learners share the batches of off-policy runs only; give system.num_learners=1.")
