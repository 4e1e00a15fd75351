"""Check that a config's buffer samples what its policy learns from, before anything runs."""

from __future__ import annotations

from typing import Any

from ding_like.policy import get_policy_cls
from ding_like.types import SampleUnit
from ding_like.worker.replay_buffer.interface import check_sample_unit


def check_buffer(
    policy_cfg: Any,  # the `policy` section of a config
    *,
    pipeline: str = "mode serial",
    offered: tuple[SampleUnit, ...] = ("row", "window"),
) -> None:
    """Raise ConfigError unless the config's buffer samples what its policy learns from.

    `offered` are the units of which the pipeline can fill a buffer.
    """
    name = policy_cfg.get("type", "")
    # A policy of another style than ours says nothing: it gets rows.
    unit: SampleUnit = getattr(get_policy_cls(policy_cfg), "sample_unit", "row") if name else "row"
    check_sample_unit(policy_cfg.other.replay_buffer, unit, policy=name, pipeline=pipeline, offered=offered)
