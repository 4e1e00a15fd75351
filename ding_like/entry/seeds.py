"""Train several seeds as one experiment: `ding -m serial -c CONFIG -s 0..4 -j 2`, `run_seeds()`."""

from __future__ import annotations

import logging
import math
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ding_like.config import FrozenConfig
from ding_like.entry.options import Options, checked_seeds, describe_seeds
from ding_like.entry.plan import NO_LIMIT, InputConfig, check_mode, load_config, read_given
from ding_like.errors import ConfigError, TrainingError
from ding_like.pipeline.process import StopSignal
from ding_like.report.compare import table_lines, write_scores
from ding_like.report.curve import plot_experiments
from ding_like.report.experiment import PLAN_FILE, Experiment, SeedsPlan, read_experiment, read_plan
from ding_like.report.run_console import Limits
from ding_like.report.summary import version_line
from ding_like.study.child_runs import command_line, text_hash
from ding_like.study.seeds import Failure, SeedRuns
from ding_like.types import Section
from ding_like.utils.log import shown_as_by_the_command
from ding_like.utils.machine import num_cores
from ding_like.utils.run_folder import RunFolder

logger = logging.getLogger(__name__)

SERIAL = ("serial", "serial_onpolicy")


@shown_as_by_the_command()
def run_seeds(
    input_cfg: InputConfig,
    seeds: Iterable[int] = range(5),
    jobs: int | None = None,
    *,
    mode: str | None = None,
    max_train_iter: int = NO_LIMIT,
    max_env_step: int = NO_LIMIT,
    overrides: Sequence[str] = (),
    exp_name: str | None = None,
    arguments: Sequence[str] = (),
    command: str = "",
) -> Experiment:
    """Train a config with several seeds, `jobs` at a time in processes of their own, and return the experiment.

    Its folder holds `seed<N>` for each, `log/seed<N>.txt`, `curve.png`, `scores.json` and `scores.md`. `mode` is by
    default serial or serial_onpolicy, whichever the policy is of; other modes run one seed after another. `arguments`
    are more of the `ding` command, for every seed; `jobs` is by default as many as the cores can do. A script calls
    this under `if __name__ == "__main__":` or anywhere else: the processes do not import it. Raises ConfigError with
    the config's faults before anything starts, and TrainingError at the end if a seed has failed.
    """
    seeds = checked_seeds(seeds)
    is_file = isinstance(input_cfg, (str, Path))
    own = [text for text in overrides if is_file and not text.startswith("system.")]
    given = own if is_file else list(overrides)
    name = None if exp_name is None else str(exp_name)
    cfg = load_config(input_cfg, seed=seeds[0], overrides=given, exp_name=name, save=False, quiet=True)
    mode = mode or ("serial_onpolicy" if cfg.policy.on_policy else "serial")
    if mode in SERIAL:
        check_mode(cfg, mode)
    jobs = checked_jobs(jobs, mode, len(seeds), processes=_processes_of(cfg, arguments))
    base = base_name(input_cfg, given if name is None else [f"exp_name={name}"])
    with RunFolder() as held:
        cfg = load_config(input_cfg, seed=seeds[0], overrides=given, exp_name=base, folder=held)
        folder = Path(cfg.exp_name)
        config = str(input_cfg) if isinstance(input_cfg, (str, Path)) else str(folder / "total_config.py")
        limits = [("--env-step", max_env_step), ("--train-iter", max_train_iter)]
        plan = SeedsPlan(
            seeds=seeds,
            mode=mode,
            command=command or f"run_seeds(seeds={list(seeds)})",
            config=config,
            config_sha256=text_hash(config),
            overrides=tuple(overrides) if is_file else (),
            arguments=(*(word for flag, at in limits if at != NO_LIMIT for word in (flag, str(at))), *arguments),
            max_env_step=max_env_step,
            max_train_iter=max_train_iter,
        )
        plan.save(folder)
        held.keep()
        _tell(_opening(folder, plan, cfg, jobs))
        return _run(folder, plan, SeedRuns(folder, plan, jobs=jobs))


@shown_as_by_the_command()
def resume_seeds(
    folder: str | Path,
    jobs: int | None = None,
    *,
    max_train_iter: int | None = None,
    max_env_step: int | None = None,
) -> Experiment:
    """Resume all seeds of an experiment that have not ended; with other limits, all of its seeds.

    Raises ConfigError if the folder is none of several seeds, and TrainingError at the end if a seed has failed.
    """
    folder = Path(folder)
    plan = read_plan(folder)
    if plan is None:
        raise ConfigError(f"'{folder}' is no folder of several seeds: it has no {PLAN_FILE}.")
    cfg = load_config(folder / "total_config.py", seed=plan.seeds[0], save=False, renew_dir=False, quiet=True)
    jobs = checked_jobs(jobs, plan.mode, len(plan.seeds), processes=_processes_of(cfg, plan.arguments))
    limits = {"max_env_step": max_env_step, "max_train_iter": max_train_iter}
    changed: Section = {name: int(limit) for name, limit in limits.items() if limit is not None}
    if changed:
        plan = _with_limits(plan, changed)
    with RunFolder() as held:
        held.hold(folder)
        _tell(_opening(folder, plan, cfg, jobs))
        return _run(folder, plan, SeedRuns(folder, plan, jobs=jobs, reopens=bool(changed)))


def _with_limits(plan: SeedsPlan, changed: Section) -> SeedsPlan:
    """Return the plan with other limits, also for the seeds that have not begun."""
    words = list(plan.arguments)
    for name, limit in changed.items():
        flag = {"max_env_step": "--env-step", "max_train_iter": "--train-iter"}[name]
        if flag in words:
            del words[words.index(flag) : words.index(flag) + 2]
        words += [flag, str(limit)]
    return replace(plan, arguments=tuple(words), **changed)


def _run(folder: Path, plan: SeedsPlan, runs: SeedRuns) -> Experiment:
    """Run the seeds, write what they amount to, and return it."""
    with StopSignal() as signals:
        plan.save(folder)
        runs.run(signals)
        experiment = _write(folder, runs.failures)
        if signals.received is not None:
            logger.info("interrupted: go on with  ding --resume %s", folder)
            signals.leave()
    if runs.failures:
        raise TrainingError(_failed(folder, plan, runs.failures))
    return experiment or read_experiment(folder)  # which says what is missing


def _write(folder: Path, failures: Sequence[Failure]) -> Experiment | None:
    """Write curve and scores of what there is, and show the table; None where no seed has returns yet."""
    try:
        experiment = read_experiment(folder)
    except ConfigError as error:
        logger.info("%s", error)
        return None
    summary, written = write_scores(experiment), ["scores.md", "scores.json"]
    try:
        from ding_like.report.drawing import save_plot

        written.insert(0, save_plot(plot_experiments([experiment]), folder / "curve.png").name)
    except ConfigError as error:  # matplotlib is not installed
        logger.info("no curve: %s", error)
    _tell(["", *table_lines(summary), "", f"wrote   {folder}/", f"        {'  '.join(written)}"])
    if not failures:
        ended = experiment.ended or experiment.members
        best = max(ended, key=lambda member: -math.inf if member.score is None else member.score).seed
        _tell([f"next    ding report {folder}   ding compare {folder} OTHER   ding enjoy {folder}/seed{best}"])
    return experiment


def _failed(folder: Path, plan: SeedsPlan, failures: Sequence[Failure]) -> str:
    lines = [f"{len(failures)} of {len(plan.seeds)} seeds failed."]
    for failure in failures:
        lines.append(f"  seed {failure.seed} {failure.how}; {failure.log} ends with")
        lines += [f"    {line}" for line in failure.lines]
    lines.append(f"When the cause is mended, go on with those that have not ended:  ding --resume {folder}")
    return "\n".join(lines)


def _opening(folder: Path, plan: SeedsPlan, cfg: FrozenConfig, jobs: int) -> list[str]:
    """Return the first lines of the console."""
    until = Limits(plan.max_env_step, plan.max_train_iter, cfg.env.stop_value).describe()
    return [
        version_line(),
        f"experiment  {folder}/  seeds {describe_seeds(plan.seeds)}, {jobs} at a time; each one's output is in log/",
        f"env         {cfg.env.get('env_id') or cfg.env.type}",
        f"policy      {cfg.policy.type}",
        f"until       {until}",
    ]


def _tell(lines: Iterable[str]) -> None:
    for line in lines:
        logger.info("%s", line)


def base_name(input_cfg: InputConfig, overrides: Sequence[str]) -> str:
    """Return the folder that a config names, with overrides, without the seed at its end."""
    named = [text.partition("=")[2] for text in overrides if text.startswith("exp_name=")]
    name = named[-1] if named else read_given(input_cfg, has_system=False)[0].get("exp_name", "default_experiment")
    return re.sub(r"_seed\d+$", "", str(name))


def _processes_of(cfg: FrozenConfig, arguments: Sequence[str]) -> int:
    """Return how many processes compute for one seed."""
    learners = 1
    with suppress(ValueError, IndexError):
        learners = int(arguments[list(arguments).index("--learners") + 1])
    envs = 1 if "subprocess" in str(cfg.env.manager.type) else 0
    return learners + envs


def checked_jobs(jobs: int | None, mode: str, num_seeds: int, *, processes: int = 1) -> int:
    """Return how many seeds run at a time: as many as asked for, or as the cores can do at `processes` for each.

    Raises ConfigError for a number below 1, and for more than one in a mode that has processes of its own.
    """
    if jobs is not None and jobs < 1:
        raise ConfigError(f"-j is {jobs}; give how many seeds run at a time, from 1.")
    if mode not in SERIAL:
        if jobs not in (None, 1):
            raise ConfigError(
                f"-j {jobs} is of modes {' and '.join(SERIAL)}: a run of mode {mode} has several processes of its own, "
                "so that its seeds run one after another. Leave -j out."
            )
        return 1
    return min(num_seeds, max(num_cores() // processes, 1) if jobs is None else jobs)


# What is of the experiment as a whole, or of other commands, in `ding`'s options.
_NOT_FORWARDED = frozenset(
    "mode config seed env policy query exp_name env_step train_iter resume jobs overrides di_engine "
    "ignore_missing dry_run debug".split()
)


def run_command(options: Options, config: str) -> None:
    """Run the seeds that the options of `ding -m MODE` name."""
    forwarded: list[str] = []
    for name, value in options.items():
        if name not in _NOT_FORWARDED and value not in (None, False):
            flag = f"--{name.replace('_', '-')}"
            forwarded += [flag] if value is True else [flag, str(value)]
    limits = {"max_env_step": options["env_step"], "max_train_iter": options["train_iter"]}
    run_seeds(
        config,
        options["seed"],
        options["jobs"],
        mode=options["mode"],
        overrides=options["overrides"],
        exp_name=options["exp_name"],
        arguments=forwarded,
        command=command_line(sys.argv[1:]),
        **{name: int(limit) for name, limit in limits.items() if limit is not None},
    )
