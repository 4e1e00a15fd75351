"""Train from a config in one process, or in several learners that act as one."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ding_like.agent.description import write_description
from ding_like.agent.pictures import write_pictures
from ding_like.comm.learner_group import LearnerGroup
from ding_like.config import compile_config, read_config
from ding_like.config.override import check_overrides
from ding_like.config.read import given_configs
from ding_like.entry.learners import RunArguments, is_first, joined, number_of_learners, opening_line
from ding_like.entry.limits import check_limits, check_nstep, refuse_in_child
from ding_like.envs import get_vec_env_setting
from ding_like.errors import CommError, ConfigError
from ding_like.pipeline.build.envs import EnvSetting, check_env_setting
from ding_like.pipeline.build.process import training_process
from ding_like.pipeline.build.serial import Components, build_serial
from ding_like.pipeline.checkpoint import Checkpointer, resume_store
from ding_like.pipeline.learners.joined import join_policy
from ding_like.pipeline.learners.lock_step import InStep, newest_of_all
from ding_like.pipeline.learners.shares import may_refuse, share_config, share_envs, share_of_batch
from ding_like.pipeline.roles.record import origin_of
from ding_like.pipeline.training_loop import TrainingLoop
from ding_like.policy import Policy
from ding_like.policy.sharing import Share
from ding_like.report.progress import Limits
from ding_like.report.run_console import NoConsole, RunConsole
from ding_like.report.summary import closing_lines, opening_lines
from ding_like.utils.log import shown_as_by_the_command
from ding_like.utils.resume import Saved
from ding_like.utils.run_folder import RunFolder
from ding_like.utils.trackers import tracked
from ding_like.worker import BaseLearner

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

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
        (main, create), source = given_configs(input_cfg), "the given config"
    return compile_config(main, create, seed=seed, overrides=overrides, source=source, exp_name=exp_name, **kwargs)


@shown_as_by_the_command()
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
    learners: int | None = None,
) -> Policy:
    """Train off-policy until a limit or `env.stop_value` is reached, and return the policy.

    `input_cfg` is a config file or (main_config, create_config). `env_setting` is (env_fn, collector env configs,
    evaluator env configs) in place of the config's env; `model` replaces the policy's. With `dynamic_seed=False` every
    episode of an env starts from the same seed. `overrides` are `section.key=value` strings; `load_path` is a
    checkpoint to start from. `learners` processes, of which this one is the first and starts the others, each run the
    loop with their share and learn as one; below torchrun they are its ranks. Raises ConfigError with every fault of
    the config at once.
    """
    arguments = RunArguments("serial", seed, max_train_iter, max_env_step, dynamic_seed, number_of_learners(learners))
    return _start(input_cfg, arguments, env_setting, model, overrides, exp_name, load_path)


@shown_as_by_the_command()
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
    learners: int | None = None,
) -> Policy:
    """Train on-policy: every batch is trained on once, by the policy that made it. Otherwise as `serial_pipeline`."""
    num_learners = number_of_learners(learners)
    arguments = RunArguments("serial_onpolicy", seed, max_train_iter, max_env_step, dynamic_seed, num_learners)
    return _start(input_cfg, arguments, env_setting, model, overrides, exp_name, load_path)


def resume_serial(
    exp_name: str,
    arguments: RunArguments,
    *,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    learners: int | None = None,
) -> Policy:
    """Go on with an interrupted run from its newest valid saved point, and return the policy.

    `arguments` are those that were saved with the point; see `resume_pipeline`.
    """
    asked = number_of_learners(learners, default=arguments.num_learners)
    if asked != arguments.num_learners:
        had = "one learner" if arguments.num_learners == 1 else f"{arguments.num_learners} learners"
        raise ConfigError(
            f"{exp_name} is a run of {had}, each with envs and rows of its own: it goes on with as many, not with "
            f"{asked}."
        )
    config_file = Path(exp_name) / "total_config.py"
    cfg = load_config(config_file, seed=arguments.seed, exp_name=exp_name, save=False, renew_dir=False)
    return _train(cfg, arguments, env_setting=env_setting, model=model, resumes=True)


def _start(
    input_cfg: InputConfig,
    arguments: RunArguments,
    env_setting: EnvSetting | None,
    model: torch.nn.Module | None,
    overrides: Sequence[str],
    exp_name: str | None,
    load_path: str | None,
) -> Policy:
    refuse_in_child()
    check_limits(max_env_step=arguments.max_env_step, max_train_iter=arguments.max_train_iter)
    check_overrides(overrides)
    check_env_setting(env_setting)
    overrides = [*overrides, *load_overrides(load_path)]
    with RunFolder() as folder:
        # Of the ranks of torchrun, the first one makes the folder and holds it for all.
        first: dict[str, Any] = {"folder": folder} if is_first() else {"save": False, "renew_dir": False}
        source = str(input_cfg) if isinstance(input_cfg, (str, Path)) else ""
        cfg = load_config(
            input_cfg, seed=arguments.seed, overrides=overrides, exp_name=exp_name, builds_model=model is None, **first
        )
        check_nstep(cfg, arguments.max_env_step)
        return _train(
            cfg, arguments, env_setting=env_setting, model=model, overrides=overrides, source=source,
            on_begin=folder.keep,
        )  # fmt: skip


def train_compiled(
    cfg: Any, arguments: RunArguments, *, overrides: Sequence[str] = (), on_begin: Callable[[], None] | None = None
) -> Policy:
    """Train as a compiled config says, whose folder has been made; return the policy. See `run_learner`."""
    return _train(cfg, arguments, env_setting=None, model=None, overrides=overrides, on_begin=on_begin)


def load_overrides(load_path: str | None) -> list[str]:
    """Return the override by which a run starts from a checkpoint, if there is one to start from."""
    return [] if load_path is None else [f"policy.learn.learner.hook.load_ckpt_before_run={load_path}"]


def _train(
    cfg: Any,
    arguments: RunArguments,
    *,
    env_setting: EnvSetting | None,
    model: torch.nn.Module | None,
    resumes: bool = False,
    overrides: Sequence[str] = (),
    source: str = "",
    on_begin: Callable[[], None] | None = None,
) -> Policy:
    """Train alone, or with other learners, which are started unless they have been; return the policy."""
    check_mode(cfg, arguments.mode)
    arguments = limited(cfg, arguments)
    has_objects = env_setting is not None or model is not None
    with joined(cfg, arguments, resumes=resumes, has_objects=has_objects) as (named, group):
        return run_learner(
            named, arguments, group=group, env_setting=env_setting, model=model, resumes=resumes, overrides=overrides,
            on_begin=on_begin,
            source=source,
        )  # fmt: skip


def check_mode(cfg: Any, mode: str) -> None:
    """Raise ConfigError if a config's policy is not of a mode, serial or serial_onpolicy."""
    on_policy = {"serial": False, "serial_onpolicy": True}[mode]
    if bool(cfg.policy.on_policy) != on_policy:
        kind, other = ("on-policy", "serial_onpolicy") if cfg.policy.on_policy else ("off-policy", "serial")
        raise ConfigError(f"policy '{cfg.policy.type}' is {kind}: run it with `ding -m {other}`.")


def limited(cfg: Any, arguments: RunArguments) -> RunArguments:
    """Return the arguments with the config's own number of updates, where the caller gives none."""
    limit = cfg.policy.learn.learner.get("train_iterations", NO_LIMIT)
    if arguments.max_train_iter == NO_LIMIT and limit != BaseLearner.config["train_iterations"]:
        return arguments._replace(max_train_iter=limit)
    return arguments


def run_learner(
    cfg: Any,
    arguments: RunArguments,
    *,
    group: LearnerGroup | None = None,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    resumes: bool = False,
    overrides: Sequence[str] = (),
    source: str = "",  # the config's file, if it has one
    on_begin: Callable[[], None] | None = None,
) -> Policy:
    """Train in this process, which is one of the learners of `group`, or alone; return the policy.

    `on_begin` is called when the first turn of the loop is done.
    """
    env_fn = None if env_setting is None else env_setting[0]
    share = Share() if group is None else Share(group.rank, group.world_size)
    own = cfg
    if share.num_learners > 1:
        own, env_setting = share_config(cfg, share.num_learners), share_envs(env_setting or _envs_of(cfg), share)
    limits = Limits(arguments.max_env_step, arguments.max_train_iter, cfg.env.stop_value)
    console = NoConsole() if share.rank else RunConsole(cfg.exp_name, limits)
    with training_process(), console, tracked(cfg, is_first=share.rank == 0) as trackers:
        with console.phase("building envs and policy"):
            parts = build_serial(
                own,
                seed=arguments.seed,
                env_setting=env_setting,
                model=model,
                dynamic_seed=arguments.dynamic_seed,
                with_buffer=arguments.mode == "serial",
                share=share,
                make_reducer=None if group is None else partial(join_policy, group),
            )
        try:
            trackers.follow(parts.metrics)
            if share.rank == 0:
                write_description(cfg, env_setting=env_setting, has_own_model=model is not None)
            _open(console, cfg, parts, limits, overrides, env_fn)
            with _weights_kept(cfg.exp_name, parts):
                TrainingLoop(
                    own,
                    parts,
                    limits=limits,
                    console=console,
                    checkpointer=Checkpointer(own, parts, arguments=arguments._asdict()),
                    saved=_saved_point(cfg, group) if resumes else None,
                    lock_step=None if group is None else InStep(group, parts, may_refuse=may_refuse(own)),
                    batch_size=share_of_batch(own, share.num_learners),
                    on_begin=on_begin,
                    origin=origin_of(cfg, mode=arguments.mode, source=source, env_fn=env_fn),
                ).run()
            if share.rank == 0:
                with console.phase("drawing the curve, filming the best model"):
                    write_pictures(cfg, parts.policy, seed=arguments.seed, env_setting=env_setting)
                console.close_summary(closing_lines(cfg.exp_name, mode=arguments.mode))
        finally:
            parts.close()
    return parts.policy


@contextmanager
def _weights_kept(exp_name: str, parts: Components) -> Iterator[None]:
    """Save the first learner's weights where another one is lost, and add to the error how to start from them."""
    try:
        yield
    except CommError as error:
        num_updates = parts.learner.train_iter
        if parts.share.num_learners == 1 or parts.share.rank or not num_updates:
            raise
        name = f"iteration_{num_updates}.pth.tar"
        parts.learner.save_checkpoint(name)
        start = shlex.join(["--load-path", str(Path(exp_name) / "ckpt" / name)])
        raise CommError(
            f"{str(error).rstrip('.')}; a new run starts from the weights learned so far with  {start}"
        ) from error


def _envs_of(cfg: Any) -> EnvSetting:
    """Return the envs of a config: all of them, to collect and to evaluate in."""
    return get_vec_env_setting(cfg.env)


def _saved_point(cfg: Any, group: LearnerGroup | None) -> Saved:
    if group is None:
        return resume_store(cfg.exp_name).load_newest()
    return newest_of_all(group, resume_store(cfg.exp_name, rank=group.rank))


def _open(
    console: RunConsole,
    cfg: Any,
    parts: Components,
    limits: Limits,
    overrides: Sequence[str],
    env_fn: Callable[..., Any] | None,
) -> None:
    """Say what the run is; of several learners the first does."""
    if parts.share.rank:
        logger.info(
            "learner rank %d of %d, process %d: it collects in %d envs",
            *parts.share,
            os.getpid(),
            parts.own_env.num_lanes,
        )
    if parts.evaluator_env is None:
        return
    learners = [opening_line(cfg, parts.share.num_learners)] if parts.share.num_learners > 1 else []
    console.tell(
        opening_lines(
            cfg,
            collector_env=parts.own_env,
            evaluator_env=parts.evaluator_env,
            policy=parts.policy,
            limits=limits,
            overrides=overrides,
            learners=learners,
            env_fn=env_fn,
        )
    )
