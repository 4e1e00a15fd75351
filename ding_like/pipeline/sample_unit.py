"""Say what a row of a policy is, and check that a config's buffer samples what it learns from."""

from __future__ import annotations

from typing import Any

from ding_like.errors import ConfigError
from ding_like.policy import Policy, get_policy_cls
from ding_like.types import SampleUnit
from ding_like.utils.registries import SERIAL_COLLECTOR_REGISTRY
from ding_like.worker.replay_buffer.buffer import check_sample_unit, get_buffer_cls


def check_buffer(
    policy_cfg: Any,  # the `policy` section of a config
    *,
    pipeline: str = "mode serial",
    offered: tuple[SampleUnit, ...] = ("row", "window", "episode"),
    holds_rows: bool = True,
) -> None:
    """Raise ConfigError unless the config's buffer samples what its policy learns from.

    `offered` are the units of which the pipeline can fill a buffer, with the rows themselves if it `holds_rows`.
    """
    name = policy_cfg.get("type", "")
    # A policy of another style than ours says nothing: it gets rows.
    unit: SampleUnit = getattr(get_policy_cls(policy_cfg), "sample_unit", "row") if name else "row"
    buffer = policy_cfg.other.replay_buffer
    check_sample_unit(buffer, unit, policy=name, pipeline=pipeline, offered=offered, holds_rows=holds_rows)
    if get_buffer_cls({"type": "naive", **buffer}).unit == "episode" and not plays_episodes(policy_cfg):
        raise ConfigError(
            f"policy.other.replay_buffer.type is '{buffer.type}', which keeps whole episodes, but collector "
            f"'{policy_cfg.collect.collector.type}' cuts them. Set create_config.collector.type to 'episode', with "
            "policy.collect.collector.get_train_sample=True."
        )


def plays_episodes(policy_cfg: Any) -> bool:
    """Tell whether a config's collector plays whole episodes, and so is asked for a number of them."""
    collector = policy_cfg.collect.collector
    cls = SERIAL_COLLECTOR_REGISTRY.get(collector.type, collector.get("import_names") or ())
    return bool(getattr(cls, "unit", "rows") == "episodes")


def steps_per_row(policy_cfg: Any) -> int:
    """Return the env steps of one row of a policy: more than 1 where rows are sequences."""
    cls = get_policy_cls(policy_cfg) if policy_cfg.get("type") else Policy
    # A policy of DI-engine's style may be any class.
    return int(getattr(cls, "env_steps_per_row", Policy.env_steps_per_row)(policy_cfg))


def warmup_steps(policy_cfg: Any) -> int:
    """Return the env steps at whose begin collectors act at random: those of `random_collect_size` rows."""
    return int(policy_cfg.random_collect_size) * steps_per_row(policy_cfg)
