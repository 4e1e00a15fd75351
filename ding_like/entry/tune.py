"""Search for settings of a config: `ding tune -c CONFIG --param KEY=RANGE`, `tune()`."""

from __future__ import annotations

import importlib.util
import logging
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ding_like.config import FrozenConfig
from ding_like.entry.options import sub_command
from ding_like.errors import ConfigError
from ding_like.study.plan import FORMS, PLAN_FILE, Param, StudyPlan, parse_params, read_study_plan
from ding_like.utils.imports import pip_line

if TYPE_CHECKING:
    import optuna

logger = logging.getLogger(__name__)

_SHOWN = 10  # trials of the table on the console
_EPILOG = f"""\b
A RANGE is {FORMS}.

\b
Examples:
  ding tune -c CONFIG --env-step 20000 --param policy.learn.learning_rate=log:1e-5..1e-2
  ding tune -c CONFIG --env-step 20000 --param policy.nstep=int:1..5 --param policy.model.dueling=[True,False] -j 2
  ding tune --resume STUDY
"""


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
    from ding_like.entry.seeds import base_name
    from ding_like.study.child_runs import text_hash

    _need_optuna()
    space = parse_params(params)
    budgets = [("--env-step", "env_step", max_env_step), ("--train-iter", "train_iter", max_train_iter)]
    given = [(flag, unit, _at_least_one(flag, limit)) for flag, unit, limit in budgets if limit is not None]
    if not given:
        raise ConfigError("a study needs to know how long each trial is: give --env-step N or --train-iter N.")
    if prune and seeds > 1:
        raise ConfigError("--prune is of trials with one seed: leave --prune or --seeds out.")
    _, unit, budget = given[0]
    plan = StudyPlan(
        config=os.path.relpath(config),
        config_sha256=text_hash(config),
        mode=_mode_of(_check_space(config, space, overrides, seed), mode),
        params=tuple(_text_of(param) for param in space),
        overrides=tuple(overrides),
        trials=_at_least_one("--trials", trials),
        seeds=_at_least_one("--seeds", seeds),
        first_seed=seed,
        limits=tuple(word for flag, _, limit in given for word in (flag, str(limit))),
        budget=budget,
        budget_unit=unit,
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
    return _run(folder, plan, jobs)


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
        raise ConfigError(f"'{folder}' is no folder of a study: it has no {PLAN_FILE}.{_similar(folder)} {fix}")
    _check_config(plan)
    if trials is not None:
        plan = replace(plan, trials=_at_least_one("--trials", trials))
    return _run(folder, plan, jobs)


def _run(folder: Path, plan: StudyPlan, jobs: int | None) -> optuna.Study:
    from ding_like.entry.seeds import checked_jobs
    from ding_like.pipeline.process import StopSignal
    from ding_like.study.trials import TrialRuns, open_study
    from ding_like.utils.run_folder import FolderLock

    jobs = checked_jobs(jobs, plan.mode, plan.trials)
    folder.mkdir(parents=True, exist_ok=True)
    with FolderLock(folder, resume=("ding", "tune", "--resume"), named_by="--study"), StopSignal() as signals:
        plan.save(folder)
        study = open_study(folder, plan)
        for line in _opening(folder, plan, study, jobs):
            logger.info("%s", line)
        try:
            TrialRuns(folder, plan, study, jobs=jobs).run(signals)
        finally:
            _write(folder, plan, study)
        if signals.received is not None:
            logger.info("interrupted: go on with  ding tune --resume %s", folder)
            signals.leave()
    return study


def _opening(folder: Path, plan: StudyPlan, study: optuna.Study, jobs: int) -> list[str]:
    """Return the first lines of the console."""
    done = sum(each.state.is_finished() for each in study.get_trials(deepcopy=False))
    goes_on = f", {done} of them have ended" if done else ""
    lines = [
        f"study       {folder}/  {plan.trials} trials of {plan.config}{goes_on}, {jobs} at a time",
        f"each        {' '.join(plan.limits)}, {plan.seeds} seed{'s' * (plan.seeds > 1)}; output in {folder}/log/",
    ]
    return lines + [f"{'varies' if not index else '':<12}{text}" for index, text in enumerate(plan.params)]


def _write(folder: Path, plan: StudyPlan, study: optuna.Study) -> None:
    """Write table, picture and the best config of what there is, and show the table."""
    from ding_like.study import trials as results

    rows = results.table_rows(study, plan)
    if len(rows) == 1:
        return
    written = [results.write_table(study, plan, folder).name]
    results.write_summary(study, plan, folder)
    drawn = results.save_picture(study, plan, folder)
    written += [] if drawn is None else [drawn.name]
    best = results.write_best_config(study, plan, folder)
    written += [] if best is None else [best.name]
    lines = ["", *results.table_lines(rows, most=_SHOWN), "", f"wrote   {folder}/", f"        {'  '.join(written)}"]
    if best is not None:
        lines.append(f"next    ding -m {plan.mode} -c {best} {' '.join(plan.limits)} -s 0..4")
    for line in lines:
        logger.info("%s", line)


# --- what is to be run


def _mode_of(cfg: FrozenConfig, asked: str | None) -> str:
    """Return the mode of a config's policy. Raises ConfigError if another one is asked for."""
    mode = "serial_onpolicy" if cfg.policy.on_policy else "serial"
    if asked not in (None, mode):
        raise ConfigError(
            f"mode '{asked}' does not run policy '{cfg.policy.type}' in a study; leave -m out: it is {mode}."
        )
    return mode


def _text_of(param: Param) -> str:
    if param.kind == "choice":
        return f"{param.key}=[{','.join(param.choices)}]"
    low, high = (f"{end:.0f}" if param.kind in ("int", "logint") else repr(end) for end in (param.low, param.high))
    return f"{param.key}={param.kind}:{low}..{high}" + ("" if param.step is None else f":{param.step:g}")


def _check_space(config: str | Path, space: Sequence[Param], overrides: Sequence[str], seed: int) -> Any:
    """Return the compiled config; raises ConfigError if it does not take some value that a trial may have."""
    from ding_like.entry.plan import load_config

    def compiled(more: Sequence[str]) -> Any:
        return load_config(config, seed=seed, overrides=[*overrides, *more], save=False, renew_dir=False, quiet=True)

    keys = [text.partition("=")[0].strip() for text in overrides]
    twice = [param.key for param in space if param.key in keys]
    if twice:
        raise ConfigError(f"{', '.join(twice)}: is both set and varied; leave {twice[0]}=VALUE or its --param out.")
    cfg = compiled([param.samples()[0] for param in space])  # all at once: every unknown key is named
    for param in space:
        for sample in param.samples():
            compiled([*(other.samples()[0] for other in space if other is not param), sample])
    return cfg


def _at_least_one(flag: str, value: float) -> int:
    if value != value or int(value) != value or value < 1:
        raise ConfigError(f"{flag} is {value:g}; give a whole number from 1.")
    return int(value)


# What may change when a study goes on.
_FREE = ("trials", "command")


def _same_study(folder: Path, known: StudyPlan, plan: StudyPlan) -> StudyPlan:
    """Return the plan by which a study goes on; raises ConfigError if it is another one."""
    before, now = asdict(known), asdict(plan)
    other = [name for name in before if name not in _FREE and before[name] != now[name]]
    if other:
        first = other[0]
        raise ConfigError(
            f"{folder}/ holds a study with other settings ({', '.join(other)}: {before[first]!r} there, {now[first]!r} "
            f"here). Go on with it by  ding tune --resume {folder}, or give this one another folder with --study DIR."
        )
    return replace(known, trials=plan.trials)


def _check_config(plan: StudyPlan) -> None:
    if not os.path.isfile(plan.config):
        raise ConfigError(f"there is no {plan.config}, which this study runs: call it from the folder where it began.")
    from ding_like.study.child_runs import text_hash

    if text_hash(plan.config) != plan.config_sha256:
        raise ConfigError(
            f"{plan.config} is not what it was when the study began, so its trials would not be comparable: put it "
            "back, or begin another study with --study DIR."
        )


def _similar(folder: Path) -> str:
    parent = folder.parent
    found = sorted(path.parent.name for path in parent.glob(f"*/{PLAN_FILE}")) if parent.is_dir() else []
    return f" There are: {', '.join(found[:8])}." if found else ""


def _need_optuna() -> None:
    if importlib.util.find_spec("optuna") is None:
        raise ConfigError(f"ding tune needs optuna; install it with: {pip_line('tune')}")


@sub_command("tune", epilog=_EPILOG)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("-c", "--config", metavar="FILE", help="Config file (.py) that every trial runs.")
@click.option("-p", "--param", "params", multiple=True, metavar="KEY=RANGE", help="A setting to vary; give several.")
@click.option("--trials", type=int, metavar="N", help="How many trials there are. [20]")
@click.option("-j", "--jobs", type=int, metavar="N", help="How many trials run at a time. [as many as there are cores]")
@click.option("--seeds", type=int, default=1, metavar="N", help="Seeds of each trial; its value is their mean. [1]")
@click.option("-s", "--seed", type=int, default=0, metavar="SEED", help="Of the sampler and the first of a trial. [0]")
@click.option("--env-step", "max_env_step", type=float, metavar="N", help="End each trial after so many env steps.")
@click.option("--train-iter", "max_train_iter", type=float, metavar="N", help="End each trial after so many updates.")
@click.option("--prune", is_flag=True, help="End trials early that are behind the median of the others.")
@click.option("-m", "--mode", metavar="MODE", help="serial or serial_onpolicy. [whichever the policy is of]")
@click.option("--study", metavar="DIR", help="Folder of the study. [the config's exp_name, with _tune]")
@click.option("--resume", metavar="STUDY", help="Go on with a study that was stopped; STUDY is its folder.")
def command(resume: str | None, **options: Any) -> None:
    """Search for settings: a study of trials, each an ordinary run; KEY=VALUE arguments are of all of them."""
    if resume is not None:
        if options["config"] is not None or options["params"] or options["overrides"]:
            raise ConfigError("--resume takes the study's own config and ranges; beside it give --trials and -j alone.")
        resume_study(resume, trials=options["trials"], jobs=options["jobs"])
        return
    if options["config"] is None:
        raise ConfigError("no config given; use -c FILE, or --resume STUDY. `ding tune --help` shows the options.")
    from ding_like.study.child_runs import command_line

    given = {name: value for name, value in options.items() if value is not None}
    tune(**given, command=command_line(sys.argv[1:]))
