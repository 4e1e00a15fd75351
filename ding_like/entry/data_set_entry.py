"""Train from a data set: `ding -m serial_offline`, or serial_bc, which collects nothing and evaluates in the env."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ding_like.entry.serial_entry import SerialMode
from ding_like.entry.training import NO_LIMIT, InputConfig, Plan, RunArguments, SystemInput, TrainingMode
from ding_like.errors import ConfigError
from ding_like.pipeline.components import Components
from ding_like.pipeline.data_set import (
    DataSetRunner,
    OnlineAfterData,
    batches_per_epoch,
    build_from_data,
    check_learns_from_rows,
    read_demonstrations,
)
from ding_like.pipeline.envs import EnvSetting
from ding_like.pipeline.learners.synced import join_policy
from ding_like.pipeline.training_loop import MakeRunner, SerialRunner
from ding_like.policy import Policy, get_policy_cls
from ding_like.policy.sharing import Share
from ding_like.report.run_console import Limits
from ding_like.report.scores import measure
from ding_like.types import Section
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
    learners: int | None = None,
    then: str | None = None,
) -> Policy:
    """Train from a data set until a limit or `env.stop_value` is reached, and return the policy.

    `data_path` stands in place of the config's `policy.collect.data_path`. `max_iter`, for which `max_train_iter` is
    another name, is a number of updates, by default that of the epochs of `policy.learn.train_epoch`. With
    `then='serial'` the run goes on after them: it collects up to `max_env_step`, and `policy.learn.data_share` of each
    batch are rows of the data set. Otherwise as `serial_pipeline`. Raises ConfigError for a limit of env steps without
    `then`: none are collected.
    """
    limit = max_iter if max_train_iter is None else max_train_iter
    arguments = RunArguments("serial_offline", seed, limit, max_env_step)
    asked = overrides if data_path is None else [*overrides, f"policy.collect.data_path={data_path}"]
    given: dict[str, Any] = {"env_setting": env_setting, "model": model, "exp_name": exp_name, "load_path": load_path}
    mode = DataSetMode.of(input_cfg, arguments, learners=learners, then=then, overrides=asked, **given)
    return mode.train().policy


serial_pipeline_bc = serial_pipeline_offline  # DI-engine's name for policy 'bc'


class DataSetMode(SerialMode):
    """Run of one process, or of several learners, that learns from a data set; with `then` it collects afterwards."""

    @classmethod
    def of(
        cls,
        input_cfg: SystemInput | None,
        arguments: RunArguments,
        *,
        learners: int | None = None,
        then: str | None = None,
        **given: Any,
    ) -> DataSetMode:
        """Return the planned run; raises ConfigError for a mode `then` that cannot follow."""
        if then not in (None, "serial"):
            raise ConfigError(f"--then is {then!r}: a run that learned from a data set goes on with `--then serial`.")
        asked = arguments if then is None else arguments._replace(then=then)
        return cast(DataSetMode, super().of(input_cfg, asked, learners=learners, **given))

    def __init__(self, plan: Plan[None]) -> None:
        run = plan.arguments
        if run.max_env_step < NO_LIMIT and not run.then:
            raise ConfigError(
                f"mode {run.mode} takes no env steps, but --env-step is {run.max_env_step:,}: give --train-iter, or "
                "policy.learn.train_epoch, or --then serial to collect afterwards."
            )
        check_learns_from_rows(plan.cfg)
        self._demonstrations = read_demonstrations(plan.cfg)
        TrainingMode.__init__(self, plan)
        if run.then:
            self._check_then()

    def _check_then(self) -> None:
        """Raise ConfigError for a run that cannot go on online."""
        cfg, run = self.plan.cfg, self.plan.arguments
        if not getattr(get_policy_cls(cfg.policy), "goes_online", True):
            raise ConfigError(f"policy '{cfg.policy.type}' learns nothing of rows that it collects: leave --then out.")
        if run.num_learners > 1:
            raise ConfigError(f"--then {run.then} is of one learner, not of {run.num_learners}: leave --learners out.")
        if self._updates >= NO_LIMIT:
            raise ConfigError(
                f"--then {run.then} begins when the updates on the data set are over, and there is no limit: give "
                "--train-iter, or policy.learn.train_epoch."
            )

    def lines(self) -> list[str]:
        """Return the lines about the data set, and about what follows."""
        found, cfg, run = self._demonstrations, self.plan.cfg, self.plan.arguments
        returns, batches = found.returns, batches_per_epoch(len(found), cfg.policy.learn.batch_size)
        text = (
            f"data        {found.source}: {len(returns)} episodes, {len(found):,} steps, mean return "
            f"{measure(float(returns.mean()))}; an epoch is {batches:,} updates"
        )
        if not run.then:
            return [*super().lines(), text]
        share = cfg.policy.learn.get("data_share", 0.0)
        after = f"then        after {self._updates:,} updates collect in {cfg.env.collector_env_num} envs; "
        return [text, after + f"{share:.0%} of each batch from the data"]

    def dry_run(self) -> tuple[list[str], bool]:
        """Return (lines that describe what would run where, True: it fits)."""
        return TrainingMode.dry_run(self)

    @property
    def _updates(self) -> int:
        """Number of updates on the data set: the run's limit, or without one the epochs of the config."""
        learn = self.plan.cfg.policy.learn
        epochs, limit = learn.get("train_epoch"), self.plan.arguments.max_train_iter
        if limit < NO_LIMIT or epochs is None:
            return limit
        return int(epochs * batches_per_epoch(len(self._demonstrations), learn.batch_size))

    def _limits(self, max_duration_s: float = math.inf) -> Limits:
        """Return the limits of the run, of env steps alone where it collects afterwards."""
        limits = super()._limits(max_duration_s)
        updates = NO_LIMIT if self.plan.arguments.then else self._updates
        return Limits(limits.max_env_step, updates, limits.stop_value, max_duration_s)

    def build(self) -> Components:
        """Return the components of this process, which has envs to collect in only for what comes afterwards."""
        plan, group = self.plan, self.group
        self._parts, self._data_set = build_from_data(
            plan.cfg,
            self._demonstrations,
            seed=plan.arguments.seed,
            env_setting=plan.env_setting,
            model=plan.model,
            share=Share() if group is None else Share(group.rank, group.world_size),
            make_reducer=None if group is None else partial(join_policy, group),
            goes_online=bool(plan.arguments.then),
        )
        return self._parts

    def loop_settings(self, parts: Components) -> Section:
        """Return the loop's config; of several learners, with what keeps them in step."""
        return {**super().loop_settings(parts), "make_runner": self.make_runner(parts)}

    def make_runner(self, parts: Components) -> MakeRunner:
        """Return the factory of the runner."""
        cfg, offline = self.plan.cfg, DataSetRunner(parts, self._data_set)
        if not self.plan.arguments.then:
            return lambda is_leaving: offline
        own_rows = max(1, round(cfg.policy.learn.batch_size * (1.0 - cfg.policy.learn.get("data_share", 0.0))))
        return lambda is_leaving: OnlineAfterData(
            offline, SerialRunner(cfg, parts, None, own_rows, is_leaving), self._updates
        )
