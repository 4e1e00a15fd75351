"""Train in one process from a config."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ding_like.config import compile_config, read_config
from ding_like.errors import ConfigError
from ding_like.pipeline.build import EnvSetting, build_serial, training_process
from ding_like.pipeline.checkpoint import Checkpointer, resume_store
from ding_like.pipeline.report.pictures import write_pictures
from ding_like.pipeline.report.progress import Limits
from ding_like.pipeline.report.run_console import RunConsole
from ding_like.pipeline.report.summary import closing_lines, opening_lines
from ding_like.pipeline.serial import SerialRun
from ding_like.policy import Policy
from ding_like.utils.resume import Saved
from ding_like.worker import BaseLearner

if TYPE_CHECKING:
    import torch

# A config file, or its (main_config, create_config).
InputConfig = str | Path | tuple[Any, Any]
# Stands for "no limit", as in DI-engine's signatures.
NO_LIMIT = int(1e10)


def load_config(
    input_cfg: InputConfig, *, seed: int, overrides: Sequence[str] = (), exp_name: str | None = None, **kwargs: Any
) -> Any:
    """Return the compiled config of a file or of (main_config, create_config)."""
    if isinstance(input_cfg, (str, Path)):
        file = read_config(input_cfg)
        main, create, source = file.main_config, file.create_config, str(input_cfg)
    else:
        (main, create), source = input_cfg, "the given config"
    return compile_config(main, create, seed=seed, overrides=overrides, source=source, exp_name=exp_name, **kwargs)


def serial_pipeline(
    input_cfg: InputConfig,
    seed: int = 0,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    max_train_iter: int = NO_LIMIT,
    max_env_step: int = NO_LIMIT,
    dynamic_seed: bool = True,
    *,
    overrides: Sequence[str] = (),
    exp_name: str | None = None,
    load_path: str | None = None,
) -> Policy:
    """Train off-policy until a limit or `env.stop_value` is reached, and return the policy.

    `input_cfg` is a config file or (main_config, create_config). `env_setting` is (env_fn, collector env configs,
    evaluator env configs) in place of the config's env; `model` replaces the policy's. With `dynamic_seed=False` every
    episode of an env starts from the same seed. `overrides` are `section.key=value` strings; `load_path` is a
    checkpoint to start from. Raises ConfigError with every fault of the config at once.
    """
    if load_path is not None:
        overrides = [*overrides, f"policy.learn.learner.hook.load_ckpt_before_run={load_path}"]
    cfg = load_config(input_cfg, seed=seed, overrides=overrides, exp_name=exp_name)
    arguments = RunArguments("serial", seed, max_train_iter, max_env_step, dynamic_seed)
    return _train(cfg, arguments, env_setting=env_setting, model=model, overrides=overrides)


def serial_pipeline_onpolicy(
    input_cfg: InputConfig,
    seed: int = 0,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    max_train_iter: int = NO_LIMIT,
    max_env_step: int = NO_LIMIT,
    dynamic_seed: bool = True,
    *,
    overrides: Sequence[str] = (),
    exp_name: str | None = None,
    load_path: str | None = None,
) -> Policy:
    """Train on-policy: every batch is trained on once, by the policy that made it. Otherwise as `serial_pipeline`."""
    if load_path is not None:
        overrides = [*overrides, f"policy.learn.learner.hook.load_ckpt_before_run={load_path}"]
    cfg = load_config(input_cfg, seed=seed, overrides=overrides, exp_name=exp_name)
    arguments = RunArguments("serial_onpolicy", seed, max_train_iter, max_env_step, dynamic_seed)
    return _train(cfg, arguments, env_setting=env_setting, model=model, overrides=overrides)


def resume_pipeline(
    exp_name: str,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    max_train_iter: int | None = None,
    max_env_step: int | None = None,
) -> Policy:
    """Go on with an interrupted run from its newest valid saved point, and return the policy.

    `exp_name` is the run's folder. `env_setting` and `model` must be given again if the run was started with them; the
    limits are those it was started with unless others are given. Raises CheckpointError if there is nothing to resume.
    """
    saved = resume_store(exp_name).load_newest()
    arguments = RunArguments(**saved.meta["arguments"])
    if max_train_iter is not None:
        arguments = arguments._replace(max_train_iter=max_train_iter)
    if max_env_step is not None:
        arguments = arguments._replace(max_env_step=max_env_step)
    config_file = Path(exp_name) / "total_config.py"
    cfg = load_config(config_file, seed=arguments.seed, exp_name=exp_name, save=False, renew_dir=False)
    return _train(cfg, arguments, env_setting=env_setting, model=model, saved=saved)


class RunArguments(NamedTuple):
    """Hold what a run is started with beside its config; saved with every point to resume from."""

    mode: str
    seed: int
    max_train_iter: int
    max_env_step: int
    dynamic_seed: bool


def _train(
    cfg: Any,
    arguments: RunArguments,
    *,
    env_setting: EnvSetting | None,
    model: torch.nn.Module | None,
    saved: Saved | None = None,
    overrides: Sequence[str] = (),
) -> Policy:
    on_policy = {"serial": False, "serial_onpolicy": True}[arguments.mode]
    if bool(cfg.policy.on_policy) != on_policy:
        kind, mode = ("on-policy", "serial_onpolicy") if cfg.policy.on_policy else ("off-policy", "serial")
        raise ConfigError(f"policy '{cfg.policy.type}' is {kind}: run it with `ding -m {mode}`.")
    limit = cfg.policy.learn.learner.get("train_iterations", NO_LIMIT)
    if arguments.max_train_iter == NO_LIMIT and limit != BaseLearner.config["train_iterations"]:
        arguments = arguments._replace(max_train_iter=limit)
    with training_process():
        parts = build_serial(
            cfg,
            seed=arguments.seed,
            env_setting=env_setting,
            model=model,
            dynamic_seed=arguments.dynamic_seed,
            with_buffer=not on_policy,
        )
        limits = Limits(arguments.max_env_step, arguments.max_train_iter, cfg.env.stop_value)
        opening = opening_lines(
            cfg,
            collector_env=parts.collector_env,
            evaluator_env=parts.evaluator_env,
            policy=parts.policy,
            limits=limits,
            overrides=overrides,
        )
        try:
            with RunConsole(cfg.exp_name, limits, opening=opening) as console:
                SerialRun(
                    cfg,
                    parts,
                    limits=limits,
                    console=console,
                    checkpointer=Checkpointer(cfg, parts, arguments=arguments._asdict()),
                    saved=saved,
                ).run()
                write_pictures(cfg, parts.policy, seed=arguments.seed, env_setting=env_setting)
                console.close_summary(closing_lines(cfg.exp_name, mode=arguments.mode))
        finally:
            parts.close()
    return parts.policy
