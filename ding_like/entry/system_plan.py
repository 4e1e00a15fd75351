"""Plan a run whose config has a `system_config`: read and check it, and save what it says with the run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from ding_like.config import FrozenConfig, compile_config, read_config, save_system, to_plain
from ding_like.config.override import Override, take_overrides
from ding_like.config.read import given_configs
from ding_like.config.report import Fault, config_error
from ding_like.config.tree import Tree
from ding_like.entry.learners import RunArguments
from ding_like.entry.limits import check_limits, check_nstep, refuse_in_child
from ding_like.entry.serial_entry import InputConfig, limited
from ding_like.report.summary import env_name
from ding_like.utils.files import when_there_is_room
from ding_like.utils.run_folder import RunFolder

logger = logging.getLogger(__name__)

# A config file, its (main_config, create_config), or these and its system_config.
SystemConfig = InputConfig | tuple[Any, Any, Any]

Settings = TypeVar("Settings")


@dataclass(frozen=True)
class SystemPlan(Generic[Settings]):
    """Hold what a run is made from, checked."""

    config: tuple[Any, Any]  # (main_config, create_config)
    source: str  # the file that they are from
    overrides: Sequence[str]  # of these
    exp_name: str | None  # that was asked for
    cfg: FrozenConfig  # compiled of them
    settings: Settings  # of the `system_config`
    arguments: RunArguments  # with the `system_config` that is saved
    given: Sequence[str]  # all overrides, as they were given

    def claimed(self, folder: RunFolder) -> SystemPlan[Settings]:
        """Make the run's folder and save its config there; return the plan with the config that says so.

        `folder` holds it from then on.
        """
        main, create = self.config
        cfg = compile_config(
            main, create, seed=self.arguments.seed, overrides=self.overrides, source=self.source,
            exp_name=self.exp_name, quiet=True, folder=folder,
        )  # fmt: skip
        when_there_is_room(
            lambda: save_system(cfg.exp_name, self.arguments.system or {}, mode=self.arguments.mode),
            tell=logger.warning,
        )
        return replace(self, cfg=cfg)


def plan_system(
    input_cfg: SystemConfig,
    arguments: RunArguments,
    *,
    read: Callable[[Mapping[str, Any], FrozenConfig, str, Mapping[str, Override]], tuple[Settings, dict[str, Any]]],
    overrides: Sequence[str] = (),
    exp_name: str | None = None,
    source: str | None = None,
    resumes: bool = False,
) -> SystemPlan[Settings]:
    """Return what a run is made from; nothing is written or started. Raises ConfigError with the faults.

    `read` returns, of the `system_config`, the compiled config, where both are from and the overrides, the settings
    and what is to be saved of them; it raises ConfigError with the faults. `overrides` are `section.key=value` strings,
    also `system.section.key=value`.
    """
    refuse_in_child()
    check_limits(max_env_step=arguments.max_env_step, max_train_iter=arguments.max_train_iter)
    main, create, system, named = read_given(input_cfg)
    source = source or named
    tree: Tree = {"system": to_plain(system or {})}
    faults: list[Fault] = []
    others, applied = take_overrides(overrides, tree, faults, section="system")
    if faults:
        raise config_error(faults, source, {})
    cfg = compile_config(
        main, create, seed=arguments.seed, overrides=others, source=source, exp_name=exp_name, save=False,
        renew_dir=not resumes,
    )  # fmt: skip
    check_nstep(cfg, arguments.max_env_step)
    settings, saved = read(tree["system"], cfg, source, applied)
    arguments = limited(cfg, arguments)._replace(system=saved)
    return SystemPlan((main, create), source, others, exp_name, cfg, settings, arguments, overrides)


def read_given(input_cfg: SystemConfig) -> tuple[Any, Any, Any, str]:
    """Return main_config, create_config, system_config (None: there is none) and where they are from."""
    if isinstance(input_cfg, (str, Path)):
        file = read_config(input_cfg)
        return *file, file.system_config, str(input_cfg)
    main, create, *system = given_configs(input_cfg, has_system=True)
    return main, create, system[0] if system else None, "the given config"


def plan_line(plan: SystemPlan[Any]) -> str:  # Any: of any mode's settings
    """Return the line of a dry run that says what would be trained."""
    what = f"{plan.cfg.policy.type} on {env_name(plan.cfg.env)}"
    return f"plan        {what}, seed {plan.arguments.seed}, as {plan.cfg.exp_name}/"
