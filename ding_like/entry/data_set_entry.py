"""Train from a data set: `ding -m serial_offline`, or serial_bc, which collects nothing and evaluates in the env."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ding_like.entry.training import NO_LIMIT, InputConfig, Plan, RunArguments, SystemInput, TrainingMode, make_plan
from ding_like.errors import ConfigError
from ding_like.pipeline.components import Components
from ding_like.pipeline.data_set import (
    DataSetRunner,
    batches_per_epoch,
    build_from_data,
    check_learns_from_rows,
    read_demonstrations,
)
from ding_like.pipeline.envs import EnvSetting
from ding_like.pipeline.training_loop import MakeRunner
from ding_like.policy import Policy
from ding_like.report.run_console import Limits
from ding_like.report.scores import measure
from ding_like.utils.log import shown_as_by_the_command

if TYPE_CHECKING:
    import torch


@shown_as_by_the_command()
def serial_pipeline_offline(
    input_cfg: InputConfig,
    seed: int = 0,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    max_iter: int = NO_LIMIT,
    *,
    max_train_iter: int | None = None,
    max_env_step: int = NO_LIMIT,
    data_path: str | None = None,
    overrides: Sequence[str] = (),
    exp_name: str | None = None,
    load_path: str | None = None,
) -> Policy:
    """Train from a data set until a limit or `env.stop_value` is reached, and return the policy.

    `data_path` stands in place of the config's `policy.collect.data_path`. `max_iter`, for which `max_train_iter` is
    another name, is a number of updates, by default that of the epochs of `policy.learn.train_epoch`. Otherwise as
    `serial_pipeline`. Raises ConfigError for a limit of env steps: none are collected.
    """
    limit = max_iter if max_train_iter is None else max_train_iter
    arguments = RunArguments("serial_offline", seed, limit, max_env_step)
    asked = overrides if data_path is None else [*overrides, f"policy.collect.data_path={data_path}"]
    given: dict[str, Any] = {"env_setting": env_setting, "model": model, "exp_name": exp_name, "load_path": load_path}
    return DataSetMode.of(input_cfg, arguments, overrides=asked, **given).train().policy


serial_pipeline_bc = serial_pipeline_offline  # DI-engine's name for policy 'bc'


class DataSetMode(TrainingMode[None]):
    """Run of one process that learns from a file and collects nothing; any policy that learns from rows will do."""

    @classmethod
    def of(
        cls, input_cfg: SystemInput | None, arguments: RunArguments, *, learners: int | None = None, **given: Any
    ) -> DataSetMode:
        """Return the planned run; raises ConfigError for `learners`, of which it has one."""
        if learners not in (None, 1):
            raise ConfigError(f"--learners is of modes serial and serial_onpolicy, not of mode {arguments.mode}.")
        return cls(make_plan(input_cfg, arguments, **given))

    def __init__(self, plan: Plan[None]) -> None:
        if plan.arguments.max_env_step < NO_LIMIT:
            raise ConfigError(
                f"mode {plan.arguments.mode} takes no env steps, but --env-step is {plan.arguments.max_env_step:,}: "
                "give --train-iter, or policy.learn.train_epoch."
            )
        check_learns_from_rows(plan.cfg)
        self._demonstrations = read_demonstrations(plan.cfg)
        super().__init__(plan)

    def lines(self) -> list[str]:
        """Return the line about the data set."""
        found, cfg = self._demonstrations, self.plan.cfg
        returns, batches = found.returns, batches_per_epoch(len(found), cfg.policy.learn.batch_size)
        return [
            f"data        {found.source}: {len(returns)} episodes, {len(found):,} steps, mean return "
            f"{measure(float(returns.mean()))}; an epoch is {batches:,} updates"
        ]

    def _limits(self, max_duration_s: float = math.inf) -> Limits:
        """Return the limits of the run: without one of updates, the epochs of the config."""
        limits, learn = super()._limits(max_duration_s), self.plan.cfg.policy.learn
        epochs = learn.get("train_epoch")
        if self.plan.arguments.max_train_iter < NO_LIMIT or epochs is None:
            return limits
        updates = epochs * batches_per_epoch(len(self._demonstrations), learn.batch_size)
        return Limits(limits.max_env_step, updates, limits.stop_value, max_duration_s)

    def build(self) -> Components:
        """Return the components of this process, which has no envs to collect in."""
        plan = self.plan
        given: dict[str, Any] = dict(seed=plan.arguments.seed, env_setting=plan.env_setting, model=plan.model)
        parts, self._data_set = build_from_data(plan.cfg, self._demonstrations, **given)
        return parts

    def make_runner(self, parts: Components) -> MakeRunner:
        """Return the factory of the runner."""
        return lambda is_leaving: DataSetRunner(parts, self._data_set)
