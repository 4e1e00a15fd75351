"""Several runs as one experiment: seeds, `ding -m serial -s 0..4 -j 2`, and studies of settings, `ding tune`."""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from ding_like.config import FrozenConfig
from ding_like.entry.modes import Options, checked_seeds, describe_seeds, limits_of
from ding_like.entry.training import (
    LIMIT_OPTIONS,
    NO_LIMIT,
    InputConfig,
    check_mode,
    limit_words,
    load_config,
    read_given,
    serial_mode_of,
)
from ding_like.errors import ConfigError, TrainingError
from ding_like.pipeline.process import StopSignal
from ding_like.report.compare import table_lines, write_scores
from ding_like.report.curve import plot_experiments
from ding_like.report.experiment import PLAN_FILE as SEEDS_FILE
from ding_like.report.experiment import Experiment, SeedsPlan, read_experiment, read_plan
from ding_like.report.run_console import Limits
from ding_like.report.summary import version_line
from ding_like.study.child_runs import command_line, text_hash
from ding_like.study.plan import PLAN_FILE, Param, StudyPlan, parse_params, read_study_plan
from ding_like.study.seeds import Failure, SeedRuns
from ding_like.types import Section
from ding_like.utils.files import FolderLock, RunFolder
from ding_like.utils.log import shown_as_by_the_command
from ding_like.utils.processes import num_cores, require_posix
from ding_like.utils.registries import pip_line

if TYPE_CHECKING:
    import optuna

logger = logging.getLogger(__name__)

SERIAL = ("serial", "serial_onpolicy")
_SHOWN = 10  # trials of the table on the console

# --- seeds


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
    seeds, is_file = checked_seeds(seeds), isinstance(input_cfg, (str, Path))
    given = [text for text in overrides if not (is_file and text.startswith("system."))]
    name = None if exp_name is None else str(exp_name)
    cfg = load_config(input_cfg, seed=seeds[0], overrides=given, exp_name=name, save=False, quiet=True)
    mode = mode or serial_mode_of(cfg)
    if mode in SERIAL:
        check_mode(cfg, mode)
    jobs = checked_jobs(jobs, mode, len(seeds), processes=_processes_of(cfg, arguments))
    base = base_name(input_cfg, given if name is None else [f"exp_name={name}"])
    with RunFolder() as held:
        cfg = load_config(input_cfg, seed=seeds[0], overrides=given, exp_name=base, folder=held)
        folder = Path(cfg.exp_name)
        config = str(input_cfg) if isinstance(input_cfg, (str, Path)) else str(folder / "total_config.py")
        limits = {"max_env_step": max_env_step, "max_train_iter": max_train_iter}
        plan = SeedsPlan(
            seeds=seeds,
            mode=mode,
            command=command or f"run_seeds(seeds={list(seeds)})",
            config=config,
            config_sha256=text_hash(config),
            overrides=tuple(overrides) if is_file else (),
            arguments=(*limit_words(limits), *arguments),
            **limits,
        )
        plan.save(folder)
        held.keep()
        return _run(folder, plan, cfg, jobs)


@shown_as_by_the_command()
def resume_seeds(
    folder: str | Path, jobs: int | None = None, *, max_train_iter: int | None = None, max_env_step: int | None = None
) -> Experiment:
    """Resume all seeds of an experiment that have not ended; with other limits, all of its seeds.

    Raises ConfigError if the folder is none of several seeds, and TrainingError at the end if a seed has failed.
    """
    folder = Path(folder)
    plan = read_plan(folder)
    if plan is None:
        raise ConfigError(f"'{folder}' is no folder of several seeds: it has no {SEEDS_FILE}.")
    cfg = load_config(folder / "total_config.py", seed=plan.seeds[0], save=False, renew_dir=False, quiet=True)
    jobs = checked_jobs(jobs, plan.mode, len(plan.seeds), processes=_processes_of(cfg, plan.arguments))
    limits = {"max_env_step": max_env_step, "max_train_iter": max_train_iter}
    changed: Section = {name: int(limit) for name, limit in limits.items() if limit is not None}
    words = list(plan.arguments)  # with the other limits also for the seeds that have not begun
    for flag in (LIMIT_OPTIONS[name] for name in changed):
        if flag in words:
            del words[words.index(flag) : words.index(flag) + 2]
    plan = replace(plan, arguments=(*words, *limit_words(changed)), **changed)
    with RunFolder() as held:
        held.hold(folder)
        return _run(folder, plan, cfg, jobs, reopens=bool(changed))


def _run(folder: Path, plan: SeedsPlan, cfg: FrozenConfig, jobs: int, *, reopens: bool = False) -> Experiment:
    """Run the seeds, write what they amount to, and return it."""
    _tell(
        version_line(),
        f"experiment  {folder}/  seeds {describe_seeds(plan.seeds)}, {jobs} at a time; each one's output is in log/",
        f"env         {cfg.env.get('env_id') or cfg.env.type}",
        f"policy      {cfg.policy.type}",
        f"until       {Limits(plan.max_env_step, plan.max_train_iter, cfg.env.stop_value).describe()}",
    )
    runs = SeedRuns(folder, plan, jobs=jobs, reopens=reopens)
    with StopSignal() as signals:
        plan.save(folder)
        runs.run(signals)
        experiment = _write(folder, runs.failures)
        if signals.received is not None:
            logger.info("interrupted: go on with  ding --resume %s", folder)
            signals.leave()
    if runs.failures:
        lines = [f"{len(runs.failures)} of {len(plan.seeds)} seeds failed."]
        for failure in runs.failures:
            lines.append(f"  seed {failure.seed} {failure.how}; {failure.log} ends with")
            lines += [f"    {line}" for line in failure.lines]
        lines.append(f"When the cause is mended, go on with those that have not ended:  ding --resume {folder}")
        raise TrainingError("\n".join(lines))
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
    _tell("", *table_lines(summary), "", f"wrote   {folder}/", f"        {'  '.join(written)}")
    if not failures:
        ended = experiment.ended or experiment.members
        best = max(ended, key=lambda member: -math.inf if member.score is None else member.score).seed
        _tell(f"next    ding report {folder}   ding compare {folder} OTHER   ding enjoy {folder}/seed{best}")
    return experiment


def _tell(*lines: str) -> None:
    for line in lines:
        logger.info("%s", line)


def base_name(input_cfg: InputConfig, overrides: Sequence[str]) -> str:
    """Return the folder that a config names, with overrides, without the seed at its end."""
    named = [text.partition("=")[2] for text in overrides if text.startswith("exp_name=")]
    name = named[-1] if named else read_given(input_cfg, has_system=False)[0].get("exp_name", "default_experiment")
    return re.sub(r"_seed\d+$", "", str(name))


def _processes_of(cfg: FrozenConfig, arguments: Sequence[str]) -> int:
    """Return how many processes compute for one seed."""
    found = [int(number) for flag, number in pairwise(arguments) if flag == "--learners" and number.isdecimal()]
    return (found or [1])[0] + ("subprocess" in str(cfg.env.manager.type))


def checked_jobs(jobs: int | None, mode: str, num_seeds: int, *, processes: int = 1) -> int:
    """Return how many seeds run at a time: as many as asked for, or as the cores can do at `processes` for each.

    Raises ConfigError for a number below 1, and for more than one in a mode that has processes of its own.
    """
    require_posix("an experiment of several runs", instead="Start each run by itself, with one -s")
    if jobs is not None and jobs < 1:
        raise ConfigError(f"-j is {jobs}; give how many seeds run at a time, from 1.")
    if mode in SERIAL:
        return min(num_seeds, max(num_cores() // processes, 1) if jobs is None else jobs)
    if jobs not in (None, 1):
        raise ConfigError(
            f"-j {jobs} is of modes {' and '.join(SERIAL)}: a run of mode {mode} has several processes of its own, "
            "so that its seeds run one after another. Leave -j out."
        )
    return 1


# What is of the experiment as a whole, or of other commands, in `ding`'s options.
_NOT_FORWARDED = frozenset(
    "mode config seed env policy query exp_name env_step train_iter resume jobs overrides di_engine "
    "ignore_missing dry_run debug".split()
)


def run_command(options: Options, config: str) -> None:
    """Run the seeds that the options of `ding -m MODE` name."""
    more = {f"--{name.replace('_', '-')}": value for name, value in options.items() if name not in _NOT_FORWARDED}
    forwarded: list[str] = []
    for flag, value in more.items():
        forwarded += [] if value in (None, False) else [flag] if value is True else [flag, str(value)]
    given = {name: options[name] for name in ("mode", "overrides", "exp_name")}
    of_all = {**given, **limits_of(options), "arguments": forwarded, "command": command_line(sys.argv[1:])}
    run_seeds(config, options["seed"], options["jobs"], **of_all)


# --- studies


def tune(
    config: str | Path,
    params: Sequence[str],
    *,
    trials: int = 20,
    jobs: int | None = None,
    seeds: int = 1,
    seed: int = 0,
    max_env_step: int | None = None,
    max_train_iter: int | None = None,
    prune: bool = False,
    mode: str | None = None,
    overrides: Sequence[str] = (),
    study: str | Path | None = None,
    command: str = "",
) -> optuna.Study:
    """Run a study of `trials` runs of a config file, each with other settings, and return it.

    `params` are texts KEY=RANGE. The value of a trial is the mean return of the fresh evaluation of its last model, the
    mean over `seeds`. Its folder `study` holds the run of each trial, `trials.md`, `best_config.py` and `study.png`; if
    it holds this very study already, it goes on. `prune` ends trials that are behind the median of the others. Raises
    ConfigError with what is wrong with the config or the ranges before anything starts, and TrainingError if the first
    trials fail.
    """
    _need_optuna()
    space = parse_params(params)
    limits = {"max_env_step": max_env_step, "max_train_iter": max_train_iter}
    given = {name: _at_least_one(LIMIT_OPTIONS[name], limit) for name, limit in limits.items() if limit is not None}
    if not given:
        raise ConfigError("a study needs to know how long each trial is: give --env-step N or --train-iter N.")
    if prune and seeds > 1:
        raise ConfigError("--prune is of trials with one seed: leave --prune or --seeds out.")
    cfg = _check_space(config, space, overrides, seed)
    fitting, unit = serial_mode_of(cfg), next(iter(given))
    if mode not in (None, fitting):
        policy = cfg.policy.type
        raise ConfigError(f"mode '{mode}' does not run policy '{policy}' in a study; leave -m out: it is {fitting}.")
    plan = StudyPlan(
        config=os.path.relpath(config),
        config_sha256=text_hash(config),
        mode=fitting,
        params=tuple(_text_of(param) for param in space),
        overrides=tuple(overrides),
        trials=_at_least_one("--trials", trials),
        seeds=_at_least_one("--seeds", seeds),
        first_seed=seed,
        limits=tuple(limit_words(given)),
        budget=given[unit],
        budget_unit=unit.removeprefix("max_"),
        prune=prune,
        sampler_seed=seed,
        command=command or f"tune({str(config)!r}, ...)",
    )
    folder = Path(study or f"{base_name(config, overrides)}_tune")
    known = read_study_plan(folder)
    if known is not None:
        plan = _same_study(folder, known, plan)
    elif folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"'{folder}' is there and holds no {PLAN_FILE}: give another folder with --study DIR.")
    return _run_study(folder, plan, jobs)


def resume_study(study: str | Path, *, trials: int | None = None, jobs: int | None = None) -> optuna.Study:
    """Resume a study that was stopped, until it has `trials` or as many as were asked for; return it.

    Raises ConfigError if the folder holds none, or its config file has changed.
    """
    _need_optuna()
    folder = Path(study)
    plan = read_study_plan(folder)
    if plan is None:
        fix = "To begin one: ding tune -c CONFIG --env-step N --param KEY=RANGE"
        if (folder / "total_config.py").is_file():
            fix = f"It is a run, which goes on with  ding --resume {shlex.quote(str(folder))}"
        found = sorted(path.parent.name for path in folder.parent.glob(f"*/{PLAN_FILE}"))
        similar = f" There are: {', '.join(found[:8])}." if found else ""
        raise ConfigError(f"'{folder}' is no folder of a study: it has no {PLAN_FILE}.{similar} {fix}")
    if not os.path.isfile(plan.config):
        raise ConfigError(f"there is no {plan.config}, which this study runs: call it from the folder where it began.")
    if text_hash(plan.config) != plan.config_sha256:
        raise ConfigError(
            f"{plan.config} is not what it was when the study began, so its trials would not be comparable: put it "
            "back, or begin another study with --study DIR."
        )
    if trials is not None:
        plan = replace(plan, trials=_at_least_one("--trials", trials))
    return _run_study(folder, plan, jobs)


def _run_study(folder: Path, plan: StudyPlan, jobs: int | None) -> optuna.Study:
    from ding_like.study.trials import TrialRuns, open_study

    jobs = checked_jobs(jobs, plan.mode, plan.trials)
    folder.mkdir(parents=True, exist_ok=True)
    with FolderLock(folder, resume=("ding", "tune", "--resume"), named_by="--study"), StopSignal() as signals:
        plan.save(folder)
        study = open_study(folder, plan)
        done = sum(each.state.is_finished() for each in study.get_trials(deepcopy=False))
        _tell(
            f"study       {folder}/  {plan.trials} trials of {plan.config}"
            f"{f', {done} of them have ended' if done else ''}, {jobs} at a time",
            f"each        {' '.join(plan.limits)}, {plan.seeds} seed{'s' * (plan.seeds > 1)}; output in {folder}/log/",
            *(f"{'varies' if not index else '':<12}{text}" for index, text in enumerate(plan.params)),
        )
        try:
            TrialRuns(folder, plan, study, jobs=jobs).run(signals)
        finally:
            _write_study(folder, plan, study)
        if signals.received is not None:
            logger.info("interrupted: go on with  ding tune --resume %s", folder)
            signals.leave()
    return study


def _write_study(folder: Path, plan: StudyPlan, study: optuna.Study) -> None:
    """Write table, picture and the best config of what there is, and show the table."""
    from ding_like.study import trials as results

    rows = results.table_rows(study, plan)
    if len(rows) == 1:
        return
    table = results.write_table(study, plan, folder)
    results.write_summary(study, plan, folder)
    drawn, best = results.save_picture(study, plan, folder), results.write_best_config(study, plan, folder)
    written = "  ".join(path.name for path in (table, drawn, best) if path is not None)
    _tell("", *results.table_lines(rows, most=_SHOWN), "", f"wrote   {folder}/", f"        {written}")
    if best is not None:
        _tell(f"next    ding -m {plan.mode} -c {best} {' '.join(plan.limits)} -s 0..4")


def _text_of(param: Param) -> str:
    if param.kind == "choice":
        return f"{param.key}=[{','.join(param.choices)}]"
    low, high = (f"{end:.0f}" if param.kind in ("int", "logint") else repr(end) for end in (param.low, param.high))
    return f"{param.key}={param.kind}:{low}..{high}" + ("" if param.step is None else f":{param.step:g}")


def _check_space(config: str | Path, space: Sequence[Param], overrides: Sequence[str], seed: int) -> FrozenConfig:
    """Return the compiled config; raises ConfigError if it does not take some value that a trial may have."""

    def compiled(*more: str) -> FrozenConfig:
        return load_config(config, seed=seed, overrides=[*overrides, *more], save=False, renew_dir=False, quiet=True)

    keys = [text.partition("=")[0].strip() for text in overrides]
    twice = [param.key for param in space if param.key in keys]
    if twice:
        raise ConfigError(f"{', '.join(twice)}: is both set and varied; leave {twice[0]}=VALUE or its --param out.")
    cfg = compiled(*(param.samples()[0] for param in space))  # all at once: every unknown key is named
    for param in space:
        others = [other.samples()[0] for other in space if other is not param]
        for sample in param.samples():
            compiled(*others, sample)
    return cfg


def _at_least_one(flag: str, value: float) -> int:
    if value != value or int(value) != value or value < 1:
        raise ConfigError(f"{flag} is {value:g}; give a whole number from 1.")
    return int(value)


def _same_study(folder: Path, known: StudyPlan, plan: StudyPlan) -> StudyPlan:
    """Return the plan by which a study goes on; raises ConfigError if it is another one."""
    before, now = asdict(replace(known, trials=plan.trials, command=plan.command)), asdict(plan)
    other = [name for name in before if before[name] != now[name]]
    if other:
        first = other[0]
        raise ConfigError(
            f"{folder}/ holds a study with other settings ({', '.join(other)}: {before[first]!r} there, {now[first]!r} "
            f"here). Go on with it by  ding tune --resume {folder}, or give this one another folder with --study DIR."
        )
    return replace(known, trials=plan.trials)


def _need_optuna() -> None:
    if importlib.util.find_spec("optuna") is None:
        raise ConfigError(f"ding tune needs optuna; install it with: {pip_line('tune')}")
