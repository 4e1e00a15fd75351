"""Say which columns a policy's rows have, by making a few: the rows of collectors are checked against that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ding_like.data.batch import TransitionBatch
from ding_like.data.rows import adapt_collect_mode
from ding_like.data.schema import Schema
from ding_like.errors import ConfigError, TrainingError
from ding_like.pipeline.build.policies import build_policy
from ding_like.types import EnvManager
from ding_like.utils.seeding import global_rng_state, make_rng, set_global_rng_state
from ding_like.worker.collector.base import reads_info
from ding_like.worker.collector.loop import RolloutLoop, step_until
from ding_like.worker.collector.stop_rule import EnvSteps, Rows

_MAX_STEPS = 100_000  # of all lanes, without a row that is ready


def rows_schema(fitted: Mapping[str, Any], env: EnvManager, *, seed: int) -> Schema:
    """Return the columns that collectors send: a policy of its own acts in `env` until its first row is ready.

    `fitted` is the policy section as `fit_policy_config` returns it. `env` is launched; its episodes go on. The global
    generators are left as they were. Raises ConfigError where rows do not stack, TrainingError where none gets ready.
    """
    generators = global_rng_state()
    try:
        policy = build_policy(fitted, modes=["collect", "command"])
        mode = adapt_collect_mode(policy.collect_mode)
        loop = RolloutLoop(env, mode.actor, rng=make_rng(seed, "row_schema"), keeps_info=reads_info(mode))
        setting = policy.command_mode.get_setting_collect({"envstep": 0})
        rows = Rows(1, lambda: loop.num_ready(mode.num_ready))
        for _ in step_until(loop, rows | EnvSteps(_MAX_STEPS, lambda: loop.env_steps), setting):
            pass
        if not rows.is_met:
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
