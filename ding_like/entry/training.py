"""Plan of a run: the arguments that it is started with, its checked config, and its `system_config`."""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from ding_like.agent.description import write_description
from ding_like.agent.video import write_pictures
from ding_like.comm.learner_group import LearnerGroup
from ding_like.comm.workers.failures import place_raised, worker_of
from ding_like.config import FrozenConfig, compile_config, read_config, save_system, to_plain
from ding_like.config.di_engine import DATA_PATHS
from ding_like.config.read import Override, check_overrides, given_configs, take_overrides
from ding_like.config.report import Fault, config_error
from ding_like.config.tree import Tree, get_path
from ding_like.data.data_files import MINARI
from ding_like.entry.modes import MODES
from ding_like.errors import ConfigError, DingError, TrainingError
from ding_like.pipeline.components import Components
from ding_like.pipeline.envs import EnvSetting, check_env_setting
from ding_like.pipeline.learners.synced import newest_of_all
from ding_like.pipeline.process import training_process
from ding_like.pipeline.record import Checkpointer, RunResult, origin_of, resume_store
from ding_like.pipeline.training_loop import MakeRunner, TrainingLoop
from ding_like.policy import Policy, get_policy_cls
from ding_like.report.run_console import Limits, RunConsole
from ding_like.report.summary import closing_lines, env_name, opening_lines
from ding_like.types import Config, Section
from ding_like.utils.files import RunFolder, when_there_is_room
from ding_like.utils.processes import require_posix
from ding_like.utils.trackers import Tracked
from ding_like.worker import BaseLearner

if TYPE_CHECKING:
    import torch


logger = logging.getLogger(__name__)

# A config file, or its (main_config, create_config).
InputConfig = str | Path | tuple[Any, Any]
# The same, or these and its system_config.
SystemInput = InputConfig | tuple[Any, Any, Any]
# Stands for "no limit", as in DI-engine's signatures.
NO_LIMIT = int(1e10)
LIMIT_OPTIONS = {"max_env_step": "--env-step", "max_train_iter": "--train-iter"}

Settings = TypeVar("Settings", covariant=True)


_OF_PROCESSES = ("parallel", "dist", "ray", "seed", "ranks")

# Check of a `system_config` for a compiled config, which returns its settings: (system, cfg, *, source, overrides).
# Raises ConfigError with every fault; messages name `source`.
ReadSettings = Callable[..., Settings]


class RunArguments(NamedTuple):
    """Arguments of a run beside its config; saved with every point to resume from."""

    mode: str
    seed: int
    max_train_iter: int = NO_LIMIT
    max_env_step: int = NO_LIMIT
    dynamic_seed: bool = True
    num_learners: int = 1
    then: str = ""  # mode in which a run goes on that learned from a data set
    system: dict[str, Any] | None = None  # the checked `system_config` of modes ray, seed and ranks


@dataclass(frozen=True)
class Plan(Generic[Settings]):
    """Checked config and arguments of a run whose training loop is in this process."""

    cfg: FrozenConfig
    arguments: RunArguments
    settings: Settings  # of the `system_config`; None without one
    source: str = ""  # the config's file, if it has one
    overrides: Sequence[str] = ()  # as they were given
    given: Config = field(default_factory=dict)  # the `system_config` as it was given
    resumes: bool = False
    env_setting: EnvSetting | None = None
    model: torch.nn.Module | None = None
    compile_in: Callable[[RunFolder], FrozenConfig] | None = None  # compiles the config and makes the run's folder

    def claimed(self, folder: RunFolder) -> Plan[Settings]:
        """Make the folder of a new run, which `folder` holds from then on, and save its config there."""
        if self.resumes or self.compile_in is None:
            return self
        cfg, system, mode = self.compile_in(folder), self.arguments.system, self.arguments.mode
        if system is not None:
            when_there_is_room(lambda: save_system(cfg.exp_name, system, mode=mode), report=logger.warning)
        return replace(self, cfg=cfg)


def make_plan(
    input_cfg: SystemInput | None,
    arguments: RunArguments,
    read: ReadSettings[Settings] | None = None,
    *,
    overrides: Sequence[str] = (),
    exp_name: str | None = None,
    load_path: str | None = None,
    renew_dir: bool = True,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
) -> Plan[Settings]:
    """Return the plan of a run; nothing is written or started.

    Without `input_cfg` the run in the folder `exp_name` is resumed. `overrides` are `section.key=value` strings, with
    `read`, of a mode that has a `system_config`, also `system.section.key=value`; `load_path` is a checkpoint to start
    from. Raises ConfigError with the faults.
    """
    refuse_in_child()
    check_system(arguments.mode, arguments.num_learners)
    check_limits(max_env_step=arguments.max_env_step, max_train_iter=arguments.max_train_iter)
    check_overrides(overrides)
    check_env_setting(env_setting)
    resumes = input_cfg is None
    config = Path(exp_name or "") / "total_config.py" if resumes else input_cfg
    main, create, system, source = read_given(config, has_system=read is not None)
    if load_path is not None:
        overrides = [*overrides, f"policy.learn.learner.hook.load_ckpt_before_run={load_path}"]
    tree: Tree = {"system": to_plain((arguments.system if resumes else system) or {})}
    others, applied, faults = [*overrides], dict[str, Override](), list[Fault]()
    if read is not None:
        others, applied = take_overrides(overrides, tree, faults, section="system")
    if faults:
        raise config_error(faults, source, {})
    given: dict[str, Any] = {"seed": arguments.seed, "overrides": others, "source": source, "exp_name": exp_name}
    compiled = partial(compile_config, main, create, **given, builds_model=model is None)
    cfg = compiled(save=False, renew_dir=renew_dir and not resumes)
    check_nstep(cfg, arguments.max_env_step)
    check_own_mode(cfg, arguments.mode)
    check_demonstrations(cfg)
    limit = cfg.policy.learn.learner.get("train_iterations", NO_LIMIT)
    if arguments.max_train_iter == NO_LIMIT and limit != BaseLearner.config["train_iterations"]:
        arguments = arguments._replace(max_train_iter=limit)  # the config's own
    settings: Any = None  # Any: a dataclass
    if read is not None:
        settings = read(tree["system"], cfg, source=source, overrides=applied)
        arguments = arguments._replace(system={arguments.mode: asdict(settings)})
    return Plan(
        *(cfg, arguments, settings, source if isinstance(input_cfg, (str, Path)) else "", overrides),
        given=tree["system"],
        resumes=resumes,
        env_setting=env_setting,
        model=model,
        compile_in=lambda folder: compiled(quiet=True, folder=folder, renew_dir=renew_dir),
    )


def read_given(input_cfg: object, *, has_system: bool = True) -> tuple[Config, Config, Config | None, str]:
    """Return main_config, create_config, system_config (None: there is none) and where they are from."""
    if isinstance(input_cfg, (str, Path)):
        file = read_config(input_cfg)
        return *file, file.system_config, str(input_cfg)
    main, create, *system = given_configs(input_cfg, has_system=has_system)
    return main, create, system[0] if system else None, "the given config"


def load_config(
    input_cfg: InputConfig,
    *,
    seed: int | None,
    overrides: Sequence[str] = (),
    exp_name: str | None = None,
    **kwargs: Any,
) -> FrozenConfig:
    """Return the compiled config of a file or of (main_config, create_config)."""
    main, create, _, source = read_given(input_cfg, has_system=False)
    return compile_config(main, create, seed=seed, overrides=overrides, source=source, exp_name=exp_name, **kwargs)


def number(count: int, what: str, plural: str = "s") -> str:
    """Return a count with its noun: 1 worker, 2 workers."""
    return f"{count} {what}{'' if count == 1 else plural}"


# --- checks of the arguments


def refuse_in_child() -> None:
    """Raise ConfigError in a worker process that imports the caller's script, which would train there once more."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        # What multiprocessing calls the main module of the parent while a child imports it.
        if frame.f_globals.get("__name__") == "__mp_main__" and frame.f_code.co_name == "<module>":
            raise ConfigError(
                f"line {frame.f_lineno} of {frame.f_code.co_filename} also runs in each worker process, which imports "
                "the script: put it under  if __name__ == '__main__':"
            )
        frame = frame.f_back


def check_system(mode: str, num_learners: int = 1) -> None:
    """Raise ConfigError on Windows for a run of several processes."""
    if mode in _OF_PROCESSES:
        require_posix(f"ding -m {mode}", instead="Use ding -m serial, with all collector envs in one process")
    if num_learners > 1:
        require_posix("a run with several learners", instead="Leave --learners out")


def limit_words(limits: Mapping[str, float | None]) -> list[str]:
    """Return the words of the command line for limits by name (`max_env_step`, `max_train_iter`), if they are given."""
    given = {name: limit for name, limit in limits.items() if limit not in (None, NO_LIMIT)}
    return [word for name, limit in given.items() for word in (LIMIT_OPTIONS[name], str(limit))]


def check_limits(**limits: object) -> None:
    """Raise ConfigError for a limit that is no number of steps; None is no limit."""
    for name, value in limits.items():
        if value is not None:
            checked_limit(name, value)


def checked_limit(name: str, value: object) -> int:
    """Return a number of steps as a whole one. Raises ConfigError for what is none."""
    numbers = (int, float, np.integer, np.floating)
    if isinstance(value, numbers) and not isinstance(value, bool) and 1 <= value < math.inf and not value % 1:
        return int(value)
    kind = "the text " if isinstance(value, str) else ""
    raise ConfigError(
        f"{name} is {kind}{value!r}, expected a number from 1 without a fraction, such as {name}=20_000; or leave it "
        "out."
    )


def check_nstep(cfg: FrozenConfig, max_env_step: int) -> None:
    """Raise ConfigError for rows of more steps than the whole run has."""
    nstep = cfg.policy.get("nstep", 1)
    if nstep > max_env_step:
        raise ConfigError(
            f"policy.nstep is {nstep:,}, more than the {max_env_step:,} env steps of the run: no such return could be "
            f"summed. Give policy.nstep from 1 to {max_env_step:,} (1 to 5 is usual), or --env-step {nstep} or more."
        )


def demonstrations_of(cfg: FrozenConfig) -> tuple[str, list[str]] | None:
    """Return the key of a config that names demonstrations, and their files; None where it learns from none."""
    for key in DATA_PATHS:
        if given := get_path(cfg, key):
            return key, [str(each) for each in ([given] if isinstance(given, str) else given)]
    return None


def has_expert(cfg: FrozenConfig) -> bool:
    """Return whether a config describes an expert that plays its demonstrations."""
    return bool(cfg.expert.config) or cfg.expert.checkpoint not in ("best", "last")


def check_demonstrations(cfg: FrozenConfig) -> None:
    """Raise ConfigError for demonstrations that are not there, with what makes them."""
    key, files = demonstrations_of(cfg) or ("", [])
    missing = next((file for file in files if not (file.startswith(MINARI) or Path(file).exists())), None)
    if missing is None:
        return
    mode = stage_mode_of(cfg)
    if getattr(get_policy_cls(cfg.policy), "run_mode", ""):
        fix = f"`ding collect EXP --out {missing}` plays the agent of a run, and `ding collect EXP --levels medium "
        fix += "--steps 50000 --out FOLDER` writes data sets of its progress"
    elif has_expert(cfg):
        fix = f"`ding -m {mode}` with this config has the expert play them"
    else:
        fix = f"`ding collect EXP --out {missing}` plays them with the agent of a run, and `ding -m {mode} ... "
        fix += "expert.config=cartpole_dqn` trains an expert first, here that of a shipped config"
    raise ConfigError(f"there is no file of demonstrations '{missing}', which {key} names: {fix}.")


def stage_mode_of(cfg: FrozenConfig) -> str:
    """Return the mode that makes the demonstrations of a config and learns from them."""
    types = [str(section.type) for section in (cfg.get("reward_model"), cfg.policy) if section and section.get("type")]
    named = [f"serial_{kind.partition('_')[0]}" for kind in types]
    return next((mode for mode in named if mode in MODES), "serial_reward_model")


def serial_mode_of(cfg: FrozenConfig) -> str:
    """Return the mode of one process, serial or serial_onpolicy or the policy's own, of a config's policy."""
    own = getattr(get_policy_cls(cfg.policy), "run_mode", "")
    return own or ("serial_onpolicy" if cfg.policy.on_policy else "serial")


def check_mode(cfg: FrozenConfig, mode: str) -> None:
    """Raise ConfigError if a config's policy is not of a mode of one process."""
    if MODES[mode] != MODES[fitting := serial_mode_of(cfg)]:
        kinds = {"serial": "off-policy", "serial_onpolicy": "on-policy"}
        kind = kinds.get(fitting, "trained by a mode of its own")
        raise ConfigError(f"policy '{cfg.policy.type}' is {kind}: run it with `ding -m {fitting}`.")


def check_own_mode(cfg: FrozenConfig, mode: str) -> None:
    """Raise ConfigError for another mode than the policy's own, where it has one."""
    if getattr(get_policy_cls(cfg.policy), "run_mode", ""):
        check_mode(cfg, mode)


def refuse_to_resume(exp_name: str, env_step: int, train_iter: int) -> None:
    """Raise ConfigError for a run that is over, with the option by which it is resumed."""
    further = f"--env-step {2 * env_step}" if env_step else f"--train-iter {2 * max(train_iter, 1)}"
    raise ConfigError(
        f"the run in {exp_name}/ is over, at env step {env_step:,} and iteration {train_iter:,}: to go on "
        f"give --env-step or --train-iter above that, as in  ding --resume {exp_name} {further}"
    )


Mode = TypeVar("Mode", bound="TrainingMode[Any]")


class Trained(NamedTuple):
    """Outcome of a training; `seconds` are those from the first iteration to the last."""

    policy: Policy
    exp_name: str
    result: RunResult | None  # None in a process that does not evaluate
    seconds: float


class TrainingMode(Generic[Settings]):
    """Way to run a planned training loop in this process; a subclass adds its workers."""

    read: ClassVar[ReadSettings[Any] | None] = None  # checks the mode's `system_config`, if it has one
    group: LearnerGroup | None = None  # learners that run the loop together, where there are several

    def __init__(self, plan: Plan[Settings]) -> None:
        self.plan = plan

    @classmethod
    def of(cls: type[Mode], input_cfg: SystemInput | None, arguments: RunArguments, **given: Any) -> Mode:
        """Return the planned run of a config, or without one of the run in `exp_name`; nothing is written or started.

        `given` are further arguments of `make_plan`, and options of the mode. Raises ConfigError with every fault.
        """
        return cls(make_plan(input_cfg, arguments, cls.read, **given))

    def lines(self) -> list[str]:
        """Return lines for the console that describe the workers."""
        return []

    def dry_run(self) -> tuple[list[str], bool]:
        """Return (lines that describe what would run where, whether it fits); nothing is started."""
        cfg, what = self.plan.cfg, f"{self.plan.cfg.policy.type} on {env_name(self.plan.cfg.env)}"
        first = f"plan        {what}, seed {self.plan.arguments.seed}, as {cfg.exp_name}/"
        return [first, *self.lines(), f"until       {self._limits().describe()}"], True

    def _limits(self, max_duration_s: float = math.inf) -> Limits:
        """Return the limits of the run."""
        cfg, run = self.plan.cfg, self.plan.arguments
        return Limits(run.max_env_step, run.max_train_iter, cfg.env.stop_value, max_duration_s)

    @contextmanager
    def opened(self, folder: RunFolder) -> Iterator[None]:
        """Claim the run's folder, and start what the workers need until the block ends."""
        self.plan = self.plan.claimed(folder)
        yield

    def build(self) -> Components:
        """Return the components of this process."""
        raise NotImplementedError

    def loop_settings(self, parts: Components) -> Section:
        """Return further arguments of the training loop."""
        return {"make_runner": self.make_runner(parts)}

    def make_runner(self, parts: Components) -> MakeRunner:
        """Return the factory of the runner."""
        raise NotImplementedError

    def start(self) -> Policy | None:
        """Train to the end, and return the policy."""
        return self.train().policy

    def train(self, *, max_duration_s: float = math.inf) -> Trained:
        """Train until a limit or `env.stop_value` is reached, and write the result."""
        with clear_errors(), RunFolder() as folder, self.opened(folder), training_process():
            plan, cfg, arguments = self.plan, self.plan.cfg, self.plan.arguments
            is_shown = self.group is None or self.group.rank == 0
            limits = self._limits(max_duration_s)
            console = RunConsole(cfg.exp_name, limits, is_shown=is_shown)
            with console, Tracked(cfg, is_first=is_shown) as trackers:
                with console.phase("building envs and policy"):
                    parts = self.build()
                with closing(parts):
                    trackers.follow(parts.metrics)
                    self._introduce(console, parts, limits)
                    loop = self._make_loop(parts, limits=limits, console=console, on_begin=folder.keep)
                    result = loop.run()
                    if is_shown:
                        with console.phase("drawing the curve, filming the best model"):
                            write_pictures(cfg, parts.policy, seed=arguments.seed, env_setting=plan.env_setting)
                        console.close_summary(closing_lines(cfg.exp_name, mode=arguments.mode))
        return Trained(parts.policy, cfg.exp_name, result, loop.training_s)

    def _introduce(self, console: RunConsole, parts: Components, limits: Limits) -> None:
        """Show the opening lines, and write what the agent is; another learner than the first logs its share."""
        plan, env_fn = self.plan, self.plan.env_setting and self.plan.env_setting[0]
        if parts.share.rank:
            where = "learns from data" if parts.collector_env is None else f"collects in {parts.own_env.num_lanes} envs"
            logger.info("learner rank %d of %d, process %d: it %s", *parts.share, os.getpid(), where)
            return
        write_description(plan.cfg, env_setting=plan.env_setting, has_own_model=plan.model is not None)
        assert parts.evaluator_env is not None, "the first learner evaluates"
        opening = opening_lines(
            plan.cfg,
            collector_env=parts.collector_env,
            evaluator_env=parts.evaluator_env,
            policy=parts.policy,
            limits=limits,
            overrides=plan.overrides,
            learners=self.lines(),
            env_fn=env_fn,
        )
        console.print(opening)

    def _make_loop(self, parts: Components, **given: Any) -> TrainingLoop:
        plan, saved, env_fn = self.plan, None, self.plan.env_setting and self.plan.env_setting[0]
        settings = {"cfg": plan.cfg, **self.loop_settings(parts), **given}
        if plan.resumes:
            store = resume_store(plan.cfg.exp_name, rank=parts.share.rank)
            saved = store.load_newest() if self.group is None else newest_of_all(self.group, store)
        return TrainingLoop(
            parts=parts,
            checkpointer=Checkpointer(settings["cfg"], parts, arguments=plan.arguments._asdict()),
            saved=saved,
            origin=origin_of(plan.cfg, mode=plan.arguments.mode, source=plan.source, env_fn=env_fn),
            **settings,
        )


@contextmanager
def clear_errors() -> Iterator[None]:
    """Add to an error of a worker where it was raised; an error of the worker's own code becomes a TrainingError."""
    try:
        yield
    except Exception as error:  # a worker's code may raise anything; it is raised again with its place
        where = worker_of(error)
        if where is None:
            raise
        is_ours = isinstance(error, DingError)
        text, kind = (str(error), type(error)) if is_ours else (f"{type(error).__name__}: {error}", TrainingError)
        raise kind(f"{text}\n  raised {where}, at {place_raised(error)}") from error
