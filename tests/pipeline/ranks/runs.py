"""Small runs whose first rank is this process."""

from __future__ import annotations

from typing import Any

from ding_like.entry.serial_entry import ranks_pipeline
from ding_like.policy import Policy


def ranks(configs: Any, *, collect_ranks: int = 1, exp_name: str = "ranks", **arguments: Any) -> Policy:
    """Train by ranks; settings of `system.ranks` are given as `system`."""
    system = {"ranks": {"timeout_s": 30.0, **arguments.pop("system", {})}}
    policy = ranks_pipeline((*configs, system), collect_ranks=collect_ranks, exp_name=exp_name, **arguments)
    assert policy is not None
    return policy
