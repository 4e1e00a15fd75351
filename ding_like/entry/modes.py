"""Modes of `ding -m MODE`: the table of what each one calls and which options it takes, and what runs them."""

from __future__ import annotations

import difflib
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import click

from ding_like.errors import ConfigError, escape_controls
from ding_like.utils import fork_server
from ding_like.utils.fork_server import ForkServer


class Mode(NamedTuple):
    """Way to run a config: what `ding -m MODE` calls, and the options that not every mode takes."""

    pipeline: str  # module and function of this package
    home: str = ""  # module and class that plans, dry-runs and resumes, if the mode trains in one command
    passes: tuple[str, ...] = ()  # options that are arguments of the pipeline
    takes: tuple[str, ...] = ()  # other options of this mode
    modules: tuple[str, ...] = ()  # what -M may be
    has_experiments: bool = True  # several seeds are one experiment

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options that not every mode takes."""
        return (*self.passes, *self.takes, *(["dry_run"] if self.home else []))


_SOCKETS = ("module", "key_file", "host", "port", "retry_s")
# Modes that make what is missing before the policy learns from it: demonstrations, and the expert that plays them.
_STAGED = {
    "gail": "serial_pipeline_gail",
    "sqil": "serial_pipeline_sqil",
    "dqfd": "serial_pipeline_dqfd",
    "r2d3": "serial_pipeline_r2d3",
    "ngu": "serial_pipeline_ngu",
    "trex": "serial_pipeline_preference_based_irl",
    "trex_onpolicy": "serial_pipeline_preference_based_irl_onpolicy",
    "reward_model": "serial_pipeline_reward_model",
}
MODES = {
    "serial": Mode("serial_entry:serial_pipeline", "serial_entry:SerialMode", ("load_path", "learners")),
    "serial_onpolicy": Mode(
        "serial_entry:serial_pipeline_onpolicy", "serial_entry:SerialMode", ("load_path", "learners")
    ),
    **dict.fromkeys(
        ("serial_offline", "serial_bc"),
        Mode("data_set_entry:serial_pipeline_offline", "data_set_entry:DataSetMode", ("load_path", "learners", "then")),
    ),
    "parallel": Mode("parallel_entry:parallel_pipeline", "parallel_entry:ParallelMode", ("learners",)),
    "ray": Mode("ray_entry:ray_pipeline", "ray_entry:RayMode", ("load_path", "workers", "address")),
    "seed": Mode(
        *("seed_entry:seed_pipeline", "seed_entry:SeedMode", ("load_path",), ("address", *_SOCKETS)),
        modules=("actor", "inference"),
    ),
    "ranks": Mode("serial_entry:ranks_pipeline", "serial_entry:RankMode", ("load_path", "collect_ranks")),
    "dist": Mode(
        "dist_entry:launch_learner",
        takes=("coordinator", *_SOCKETS),
        modules=("coordinator", "collector", "learner"),
        has_experiments=False,
    ),
    **{
        f"serial_{name}": Mode(f"stages:{function}", passes=("load_path", "learners"), has_experiments=False)
        for name, function in _STAGED.items()
    },
    "eval": Mode("eval_entry:eval", passes=("load_path", "replay_path"), has_experiments=False),
}
_LEARNERS = "; a learner of mode dist shares its batches with as many others as system.num_learners says"
# (option, mode that does not take it; "" is any) -> how to do it.
_FIXES = {
    ("learners", "ray"): ": system.ray.grad.workers=N shares each batch among N workers",
    **{("learners", mode): _LEARNERS for mode in ("dist", "eval", "seed", "ranks")},
    ("replay_path", ""): ": ding -m eval -c FILE --load-path EXP/ckpt/ckpt_best.pth.tar --replay-path DIR films a "
    "checkpoint",
    ("workers", "parallel"): ". Put system_config = dict(num_collectors=N) into the config file",
    ("workers", "seed"): ". Set system.seed.actor_processes and actor_threads",
}


def check_options(options: Options) -> None:
    """Raise ConfigError for a mode that does not exist, and for an option that is not of the mode."""
    mode, module = options["mode"], options["module"]
    if mode is None:
        raise ConfigError("no mode given; try `ding -m serial -c CONFIG`. `ding --help` shows the options.")
    if mode not in MODES:
        raise ConfigError(f"unknown mode '{mode}'; known modes: {', '.join(MODES)}.{close_match(mode, [*MODES])}")
    if module is not None and module not in MODES[mode].modules:
        modes = ", ".join(f"{name} ({', '.join(each.modules)})" for name, each in MODES.items() if each.modules)
        raise ConfigError(f"-M {module} is not of mode {mode}; -M is of the modes {modes}.")
    for name in dict.fromkeys(name for each in MODES.values() for name in each.options):
        takers = [other for other, each in MODES.items() if name in each.options]
        if options[name] in (None, False) or mode in takers:
            continue
        of = f"mode {takers[0]}" if len(takers) == 1 else f"modes {', '.join(takers[:-1])} and {takers[-1]}"
        fix = _FIXES.get((name, mode)) or _FIXES.get((name, ""), "")
        raise ConfigError(f"--{name.replace('_', '-')} is of {of}, not of mode {mode}{fix}.")
    if options["replay_path"] is not None and os.path.isfile(options["replay_path"]):
        raise ConfigError(f"--replay-path '{options['replay_path']}' is a file: give a folder, which gets agent.gif.")
    if mode == "seed":
        _check_joining(options)


def _check_joining(options: Options) -> None:
    """Refuse what only a worker of mode seed that joins a run takes, and what only its driver does."""
    module = options["module"]
    if (module is None) != (options["address"] is None):
        raise ConfigError("to join a run give both: -M actor or -M inference, and --address HOST:PORT of its driver.")
    if module is None and options["retry_s"] is not None:
        raise ConfigError("--retry-s is of workers that join a run, with -M actor or -M inference.")
    if module is not None and (options["host"], options["port"]) != (None, None):
        raise ConfigError("--host and --port are the driver's; workers that join it give --address HOST:PORT.")


def run(options: Options) -> None:
    """Run what the options of `ding -m MODE` ask for."""
    mode = options["mode"]
    if _run_several(options):
        return
    if mode == "eval":
        _evaluate(options)
        return
    if mode == "dist":
        _launch(options)
        return
    path, overrides = config_path(options), [*options["overrides"]]
    of_mode = {name: options[name] for name in MODES[mode].passes if name != "load_path"}
    if mode == "ranks":
        # Waits for the store are repeated, and libtorch would warn of each; it reads this when it is imported.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if mode == "seed" and options["module"] is not None:
        where = {name: options[name] for name in ("address", "key_file", "retry_s")}
        join = load("seed_entry:join_run")
        join(path, options["module"], seed=_seeds(options)[0], overrides=overrides, **where)
        return
    if mode == "seed":  # with any of these the run is over tcp
        given = {name: options[name] for name in ("host", "port", "key_file") if options[name] is not None}
        sockets = {"transport": "tcp", **given} if given else {}
        overrides += [f"system.seed.{name}={value!r}" for name, value in sockets.items()]
    if "load_path" in MODES[mode].passes:
        of_mode["load_path"] = _existing(options["load_path"])
    if not options["dry_run"]:
        if mode == "parallel" and fork_server.IS_POSSIBLE:
            ForkServer.begin(*fork_server.WORKERS)  # it imports while this process does
        try:
            load(MODES[mode].pipeline)(path, **_run_of(options), overrides=overrides, **of_mode)
        finally:
            ForkServer.end_early()
        return
    arguments = load("training:RunArguments")(mode, _seeds(options)[0])._replace(**limits_of(options))
    planned = load(MODES[mode].home).of(path, arguments, overrides=overrides, exp_name=options["exp_name"], **of_mode)
    lines, fits = planned.dry_run()
    echo("\n".join(lines))
    sys.exit(0 if fits else 1)


def load(place: str) -> Any:  # Any: a function, a class or a command
    """Import what "module:name" of this package is."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f"ding_like.entry.{module}"), name)


def _evaluate(options: Options) -> None:
    if options["load_path"] is None:
        raise ConfigError("mode eval needs a checkpoint: --load-path EXP/ckpt/ckpt_best.pth.tar.")
    path, checkpoint = config_path(options), _existing(options["load_path"])
    evaluate, file_of = load("eval_entry:eval"), load("eval_entry:evaluation_file")
    asked = {"overrides": options["overrides"], "replay_path": options["replay_path"]}
    for seed in _seeds(options):
        evaluate(path, seed=seed, load_path=checkpoint, out=file_of(checkpoint, seed=seed), **asked)


def _launch(options: Options) -> None:
    """Run the coordinator, a collector or a learner of mode dist."""
    module = options["module"]
    if module is None or (module != "coordinator" and options["coordinator"] is None):
        raise ConfigError("mode dist needs to know what to be: -M coordinator, or -M collector --coordinator URL.")
    given, path = {"key_file": options["key_file"], "overrides": options["overrides"]}, config_path(options)
    if module == "coordinator":
        given |= {**_run_of(options), "host": options["host"], "port": options["port"]}
        load("parallel_entry:launch_coordinator")(path, **given)
        return
    given |= {"seed": _seeds(options)[0], "coordinator": options["coordinator"], "retry_s": options["retry_s"]}
    if module == "learner" and options["train_iter"] is not None:
        given["max_train_iter"] = int(options["train_iter"])
    load(f"dist_entry:launch_{module}")(path, **given)


def _seeds(options: Options) -> tuple[int, ...]:
    return options["seed"] or (0,)


def _run_of(options: Options) -> dict[str, Any]:
    """Return the arguments of every pipeline that trains: the seed, the limits that are given, and the folder."""
    return {"seed": _seeds(options)[0], "exp_name": options["exp_name"], **limits_of(options)}


def limits_of(options: Options) -> dict[str, Any]:
    given = {name: options[name] for name in ("env_step", "train_iter") if options[name] is not None}
    return {f"max_{name}": int(value) for name, value in given.items()}


def _run_several(options: Options) -> bool:
    """Run several seeds as one experiment, if the options name several; return whether they do."""
    seeds, mode, module = options["seed"], options["mode"], options["module"]
    if len(seeds) < 2:
        if options["jobs"] is not None:
            raise ConfigError(f"-j {options['jobs']} is of several seeds: -s 0..4 -j {max(options['jobs'], 1)}.")
        return False
    if mode == "eval":
        return False
    if not MODES[mode].has_experiments or module is not None or options["dry_run"]:
        what = "--dry-run" if options["dry_run"] else f"-M {module}" if module else f"mode {mode}"
        fix = "give one -s"
        if mode.removeprefix("serial_") in _STAGED:
            fix += ", then run `ding -m serial` with all of them and the data_path of its demonstrations"
        raise ConfigError(f"{len(seeds)} seeds are given, but {what} is of one: {fix}.")
    from ding_like.comm.learner_group import in_environment

    if in_environment():
        raise ConfigError(f"torchrun started the learners of one run, but {len(seeds)} seeds are given: give one -s.")
    _existing(options["load_path"])
    load("studies:run_command")(options, config_path(options))
    return True


def resume(options: Options) -> None:
    """Resume the run, or the experiment of several seeds, in the folder that --resume names."""
    folder = Path(options["resume"])
    has_seeds = (folder / "experiment.json").is_file()
    if options["jobs"] is not None and not has_seeds:
        raise ConfigError(f"-j is of experiments of several seeds; '{folder}' has no experiment.json.")
    from ding_like.report.experiment import check_experiment

    check_experiment(folder)
    if options["dry_run"]:
        raise ConfigError("--dry-run is of new runs, not of --resume.")
    if any(options[name] for name in ("overrides", "di_engine", "ignore_missing", "config", "env", "policy", "seed")):
        raise ConfigError("--resume takes the run's own config; start a new run with --load-path to change it.")
    of_one = {name: options[name] for name in ("learners", "workers", "address")}
    if not has_seeds:
        load("train:resume_pipeline")(str(folder), **limits_of(options), **of_one)
        return
    for name, value in of_one.items():
        if value is not None:
            raise ConfigError(
                f"--{name} is of one run: resume a seed with it by its folder, ding --resume {folder}/seed0 "
                f"--{name} {value}."
            )
    load("studies:resume_seeds")(folder, options["jobs"], **limits_of(options))


def _existing(path: str | None) -> str | None:
    """Refuse a checkpoint that is not there before anything is built."""
    if path is not None and not Path(path).is_file():
        from ding_like.utils.checkpoint import load_state

        load_state(path)  # raises the error that names close files
    return path


def config_path(options: Options) -> str:
    env, policy = options["env"], options["policy"]
    if options["config"] is not None:
        if (env, policy) != (None, None):
            raise ConfigError("-c FILE and -e ENV -p POLICY both name a config; give one.")
        return str(options["config"])
    if env is None or policy is None:
        raise ConfigError("no config given; use -c FILE, or -e ENV -p POLICY for a shipped one.")
    found = shipped_configs().get(f"{env}_{policy}")
    if found is None:
        raise ConfigError(f"no shipped config for env '{env}' and policy '{policy}'; {_close_configs(env, policy)}")
    return str(found)


def _close_configs(env: str, policy: str) -> str:
    """Return what to give in place of a name that no shipped config has."""
    names = sorted(shipped_configs())
    env = re.sub(r"-v\d+$", "", env.rpartition("/")[2].lower())  # as in CartPole-v1 and ALE/Pong-v5
    of_env = [name for name in names if name.startswith(f"{env}_")]
    wanted = f"{env}_{policy.lower()}"
    close = [wanted] if wanted in names else []
    if not of_env:
        close = difflib.get_close_matches(wanted, names, n=3, cutoff=0.75)
    if close:
        return f"did you mean {' or '.join('-e {} -p {}'.format(*name.rsplit('_', 1)) for name in close)}?"
    of_policy = [name for name in names if name.endswith(f"_{policy.lower()}")]
    return f"there are: {', '.join(of_env or of_policy or difflib.get_close_matches(wanted, names, n=8, cutoff=0))}"


def shipped_configs() -> dict[str, Path]:
    """Return the configs that come with the package by name: `<env>_<policy>`."""
    from ding_like.config.report import shipped_folders

    found = (path for folder in shipped_folders() for path in folder.rglob("*_config.py"))
    return {path.stem.removesuffix("_config"): path for path in found}


def close_match(word: str, words: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, words, n=1)
    return f" Did you mean '{close[0]}'?" if close else ""


# Options of the command line by name, as click has read them.
Options: TypeAlias = dict[str, Any]

_LARGEST = 2**31 - 1
_MOST = 10_000  # seeds of one range: more is a slip of the keyboard

IMPORT_OPTION = click.option(
    "--import", "import_names", multiple=True, metavar="MODULE", help="Allow a module that the folder names."
)


class OnceCommand(click.Command):
    """Command that refuses an option given twice, of which click silently takes the last."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, after the check."""
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for param in given:
            if isinstance(param, click.Option) and not (param.multiple or param.is_flag) and given.count(param) > 1:
                raise ConfigError(f"{' / '.join(param.opts)} is given {given.count(param)} times; give it once.")
        return super().parse_args(ctx, args)


def sub_command(name: str, *, epilog: str | None = None) -> Callable[[Callable[..., None]], click.Command]:
    """Return a decorator that makes a sub-command of `ding`, with -h and --debug, of a function."""

    def make(function: Callable[..., None]) -> click.Command:
        settings = {"help_option_names": ["-h", "--help"]}
        made = click.command(name, cls=OnceCommand, epilog=epilog, context_settings=settings)(function)
        # `main` reads it from the arguments.
        text = "Show the traceback of an error."
        made.params.append(click.Option(["--debug"], is_flag=True, expose_value=False, help=text))
        return made

    return make


class WholeNumber(click.IntRange):
    """Whole number whose error names the range."""

    def convert(self, value: int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number; fail for anything else."""
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            high = "" if self.max is None else f" to {self.max}"
            self.fail(f"'{value}' is not a whole number from {self.min}{high}.", param, ctx)


def echo(text: str, *, err: bool = False) -> None:
    """Print a text that may hold names of a foreign folder: control characters in it are shown escaped."""
    click.echo(escape_controls(text), err=err)  # the one place


def checked_seeds(seeds: Iterable[int]) -> tuple[int, ...]:
    """Return seeds as a tuple. Raises ConfigError where there are none, and for one that is given twice or negative."""
    found = tuple(int(seed) for seed in seeds)
    if not found:
        raise ConfigError("no seed is given; expected one at least, such as seeds=range(5).")
    twice = sorted({seed for seed in found if found.count(seed) > 1})
    if twice:
        raise ConfigError(f"seed {twice[0]} is given {found.count(twice[0])} times; give each seed once.")
    for seed in found:
        if not 0 <= seed <= _LARGEST:
            raise ConfigError(f"seed {seed} is not from 0 to {_LARGEST:,}.")
    return found


def parse_seeds(texts: Iterable[str]) -> tuple[int, ...]:
    """Return the seeds that `-s` options name: a number, a range `0..4` with both ends, or a list `0,2,5..7`.

    Raises ConfigError for what is none of these.
    """
    return checked_seeds(seed for text in texts for part in text.split(",") for seed in _range_of(part.strip(), text))


def _range_of(part: str, text: str) -> Iterable[int]:
    match = re.fullmatch(r"(\d+)(?:\.\.\.?(\d+))?", part)
    if match is None:
        fix = "expected a whole number, 0 or more, a range such as 0..4 or a list 0,2,5"
        raise ConfigError(f"-s {text} names no seeds; {fix}.")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ConfigError(f"-s {text} is an empty range: {first} is more than {last}. Did you mean {last}..{first}?")
    if last - first >= _MOST:
        raise ConfigError(f"-s {text} is {last - first + 1:,} seeds; at most {_MOST:,} are one experiment.")
    return range(first, last + 1)


def describe_seeds(seeds: Sequence[int]) -> str:
    """Return seeds as they are typed: 0..4, or 0,2,5."""
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]}..{seeds[-1]}"
    return ",".join(map(str, seeds))
