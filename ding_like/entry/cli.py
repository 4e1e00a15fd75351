"""The `ding` command."""

from __future__ import annotations

import errno
import io
import logging
import re
import sys
from collections.abc import Sequence
from typing import Any

import click

from ding_like import __version__
from ding_like.entry.modes import MODES, OnceCommand, check_options, close_match, echo, load, parse_seeds, resume, run
from ding_like.entry.page import PageAddress, page_of, with_page_value
from ding_like.errors import ConfigError, DingError
from ding_like.utils.bounds import FROM_0, FROM_1, Bounds

_EPILOG = """\b
Examples:
  ding -m serial -c cartpole_dqn_config.py
  ding -m serial -e cartpole -p dqn -s 0..4 -j 2
  ding -m serial -c my_config.py policy.learn.batch_size=128 env.collector_env_num=4
  ding -m eval -c my_config.py --load-path my_exp/ckpt/ckpt_best.pth.tar
  ding -m serial -c my_config.py --learners 2
  ding --resume my_exp
  ding plot my_exp
  ding compare my_exp other_exp
  ding report my_exp --watch
  ding tb my_exp
  ding enjoy my_exp
  ding collect my_exp --episodes 20
  ding serve my_exp --port 8000
  ding export my_exp --to onnx
  ding check-env CartPole-v1
  ding doctor
  ding doctor my_exp
  ding list policies
  ding info dqn
  ding diff my_exp other_exp
  ding explain policy.learn.learning_rate
  ding tune -c my_config.py --env-step 20000 --param policy.learn.learning_rate=log:1e-5..1e-2
  ding -m parallel -c my_config.py --page
  ding profile -m parallel -c my_config.py
  ding -m ray -c my_config.py --workers 4
  ding -m ray -c my_config.py --address HOST:6379 --dry-run
  ding -m seed -c my_config.py system.seed.actor_processes=4
  ding -m ranks -c my_config.py --collect-ranks 4
  torchrun --nproc-per-node 5 -m ding_like.entry.cli -m ranks -c my_config.py
  ding keys --curve keys.json
  ding -m seed -c my_config.py --host 0.0.0.0 --port 7000 --key-file keys.json
  ding -m seed -M actor -c my_config.py --address HOST:7000 --key-file keys.worker.json
  ding keys keys.json
  ding -m dist -M coordinator -c my_config.py --host 0.0.0.0 --port 7000 --key-file keys.json
  ding -m dist -M collector -c my_config.py --coordinator http://HOST:7000 --key-file keys.json
  ding -q policy
"""


_BOUNDS = {
    **dict.fromkeys(("env_step", "train_iter", "learners", "jobs"), FROM_1),
    "port": Bounds(0, 65535),
    "retry_s": FROM_0,
}

# Of a list or dict that a shell has cut at its spaces.
_BRACKETS = re.compile(r"[\[\]{}]")
_QUOTES = " Put an argument with spaces into quotes: \"env.wrappers=[{'type': 'obs_norm'}]\"."

# Options of other frameworks' commands, and what to give here.
_ALIASES = {
    **dict.fromkeys(("--total-timesteps", "--timesteps", "--n-timesteps", "--total-steps"), "--env-step N"),
    **dict.fromkeys(("--n-envs", "--num-envs"), "env.collector_env_num=N"),
    **dict.fromkeys(("--algo", "--agent"), "-p POLICY"),
    **dict.fromkeys(("--lr", "--learning-rate"), "policy.learn.learning_rate=X"),
    "--env-id": "-e ENV",
    "--batch-size": "policy.learn.batch_size=N",
    "--gamma": "policy.discount_factor=X",
}


class _Steps(click.ParamType):
    """Number of steps, which may be written as 1e4."""

    name = "steps"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            steps = float(value)
        except ValueError:
            self.fail(f"'{value}' is not a number; expected a whole number, such as 10000 or 1e4.", param, ctx)
        if steps % 1 > 0:  # nan is refused later, as a number out of range
            self.fail(f"{value} is not a whole number, such as 10000 or 1e4.", param, ctx)
        return steps


@click.command(cls=OnceCommand, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    *("-m", "--mode"),
    metavar="MODE",
    help="How to run: serial, serial_onpolicy, serial_bc, serial_offline, parallel, ray, seed, ranks, dist, eval.",
)
@click.option("-c", "--config", metavar="FILE", help="Config file (.py) with main_config and create_config.")
@click.option(
    "-s",
    "--seed",
    multiple=True,
    metavar="SEEDS",
    help="Seed, or several as one experiment: 0..4, or 0,2,5, or several -s. [0]",
)
@click.option("-j", "--jobs", type=int, metavar="N", help="Train N of several seeds at a time. [as the cores can do]")
@click.option("-e", "--env", metavar="ENV", help="Take the shipped config of this env, with -p: cartpole.")
@click.option("-p", "--policy", metavar="POLICY", help="Take the shipped config of this policy, with -e: dqn.")
@click.option("-q", "--query", metavar="REGISTRY", help="List what is registered: policy, env, buffer, ...")
@click.option("--exp-name", metavar="DIR", help="Folder of the experiment, in place of the config's exp_name.")
@click.option("--env-step", type=_Steps(), metavar="N", help="Stop after so many env steps.")
@click.option("--train-iter", type=_Steps(), metavar="N", help="Stop after so many updates.")
@click.option("--load-path", metavar="FILE", help="Checkpoint to start from, or to evaluate.")
@click.option("--replay-path", metavar="DIR", help="Folder for a video of the evaluation (mode eval).")
@click.option(
    "--learners",
    type=int,
    metavar="N",
    help="Learn in N processes as one (modes serial, serial_..., parallel). [1, or as many as torchrun starts]",
)
@click.option(
    "--then",
    metavar="MODE",
    help="Mode in which a run of serial_offline goes on once its updates are over: serial collects in the env.",
)
@click.option(
    "--workers", type=int, metavar="N", help="Collect with N workers (mode ray). [2, or what the config says]"
)
@click.option(
    "--collect-ranks",
    type=int,
    metavar="N",
    help="Collect in N ranks (mode ranks). [2, or what the config says, or all but the first that a launcher starts]",
)
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="Use the Ray cluster whose head is there (mode ray; without it one on this machine), or join the run whose "
    "driver is there (mode seed, with -M).",
)
@click.option("--dry-run", is_flag=True, help="Show what would run where, and whether it fits; start nothing.")
@click.option("--resume", metavar="EXP", help="Go on with an interrupted run; EXP is its folder.")
@click.option(
    "-M",
    "--module",
    type=click.Choice(["coordinator", "collector", "learner", "actor", "inference"]),
    help="What to be (mode dist: the first three; mode seed: join a run as one of the others).",
)
@click.option("--coordinator", metavar="URL", help="Where the coordinator is (mode dist).")
@click.option(
    "--key-file",
    metavar="FILE",
    help="Keys by which strangers are refused; `ding keys FILE` makes those of mode dist, with --curve those of mode "
    "seed.",
)
@click.option("--host", metavar="HOST", help="Where a coordinator, or the driver of mode seed, listens. [127.0.0.1]")
@click.option(
    "--port", type=int, metavar="PORT", help="Where a coordinator, or the driver of mode seed, listens; 0: any. [0]"
)
@click.option(
    "--retry-s",
    type=float,
    metavar="S",
    help="How long a worker tries to reach its coordinator or driver. [30 at the start, 600 once it was found]",
)
@click.option("--di-engine", is_flag=True, help="Take DI-engine's defaults where ours differ; KEY=VALUE still wins.")
@click.option(
    "--ignore-missing", is_flag=True, help="Train the plain policy of a DI-engine config whose method is not here."
)
@click.option(
    "--page",
    type=PageAddress(),
    metavar="[PORT]",
    help="Show the run on a page of its own, at 127.0.0.1 or at HOST:PORT; the address is printed. [any free port]",
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, "-v", "--version", prog_name="ding", message="%(prog)s-like %(version)s")
def ding(**options: Any) -> None:
    """Train and evaluate reinforcement-learning agents from a config file.

    KEY=VALUE arguments change the config: policy.learn.learning_rate=3e-4. In modes ray, seed and ranks those that
    begin with system. change its system_config: system.ray.grad.workers=2.
    """
    if options["query"] is not None:
        _query(options["query"])
        return
    _check_numbers(options)
    options["seed"] = parse_seeds(options["seed"]) if options["seed"] else ()
    if options["resume"] is not None:
        with page_of(options):
            resume(options)
        return
    _check_overrides(options["overrides"])
    if options["di_engine"]:
        options["overrides"] = ("create.defaults=di_engine", *options["overrides"])
    if options["ignore_missing"]:
        options["overrides"] = ("create.ignore_missing=True", *options["overrides"])
    check_options(options)
    with page_of(options):
        run(options)


def _check_numbers(options: dict[str, Any]) -> None:
    """Raise ConfigError for an option whose number is out of range."""
    for name, bounds in _BOUNDS.items():
        if not bounds.hold(value := options[name]):
            raise ConfigError(f"--{name.replace('_', '-')} is {value:g}; give {bounds}.")


def _check_overrides(overrides: Sequence[str]) -> None:
    """Raise ConfigError for an argument that is not KEY=VALUE."""
    for at, override in enumerate(overrides):
        fix, value = "", "".join(overrides[at + 1 : at + 2])
        if "=" in override.rstrip("=") or (override.endswith("=") and (not value or "=" in value)):
            continue
        if value == "=" or (value.startswith("=") and "." in override):  # K = V, K =V
            value = "".join(overrides[at + 1 : at + 3]).removeprefix("=")
        if _BRACKETS.search(override):
            fix = _QUOTES
        elif override in ("train", "run", "learn"):
            fix = " To train: `ding -m serial -e cartpole -p dqn`, or `ding -m serial -c CONFIG`."
        elif override in MODES:
            fix = f" For mode {override} write -m {override}."
        elif "." in override and value and "=" not in value:
            fix = f" Write {override.rstrip('=')}={value}."
        raise ConfigError(
            f"'{override}' is neither a sub-command ({', '.join(SUB_COMMANDS)}, which come first) nor KEY=VALUE.{fix} "
            "`ding --help` shows the options."
        )


def _query(name: str) -> None:
    """Print what a registry holds: name, class, file and line."""
    from ding_like.utils.registries import REGISTRIES

    if name not in REGISTRIES:
        close = close_match(name, list(REGISTRIES))
        raise ConfigError(f"no registry '{name}'; there are: {', '.join(REGISTRIES)}.{close}")
    for row in REGISTRIES[name].describe():
        echo("  ".join(row))


# Sub-command -> its click command in this package, imported on use.
SUB_COMMANDS = {
    **{
        name: f"results:{name}_command"
        for name in ("plot", "compare", "report", "tb", "enjoy", "collect", "export", "serve")
    },
    **{name: f"commands:{name.replace('-', '_')}_command" for name in ("check-env", "explain", "keys", "tune")},
    "profile": "profile_run:profile_command",
    "doctor": "doctor:doctor_command",
    "list": "catalogue:list_command",
    "info": "catalogue:info_command",
    "diff": "differences:diff_command",
}


def _with_hint(error: click.NoSuchOption) -> click.NoSuchOption:
    """Return the error with the options of a sub-command, or the option here for one of another framework."""
    assert error.ctx is not None, "click sets it where it parses"
    name, command = error.option_name, error.ctx.command
    alias = _ALIASES.get(name.lower().replace("_", "-"))
    if command is not ding:
        hint = f" It takes {', '.join(each.opts[-1] for each in command.params if isinstance(each, click.Option))}."
    elif name.split(".")[0] in ("--policy", "--env", "--create_config", "--system") and "." in name:
        hint = f" Give it without dashes: {name.removeprefix('--')}=VALUE."
    elif alias:
        hint = f" Give {alias}."
    else:
        return error
    return click.NoSuchOption(name, f"{error.message}{hint}", ctx=error.ctx)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command; an expected error is one message and exit status 1, `--debug` shows its traceback."""
    from ding_like.utils.processes import end_process

    try:
        _main(argv)
    except BaseException as error:
        end_process(error)
        raise
    end_process(None)


def _main(argv: Sequence[str] | None) -> None:
    from ding_like.errors import raised_at
    from ding_like.utils.log import close_console, setup_console

    arguments = list(sys.argv[1:] if argv is None else argv)
    # `import_names` may name modules of the folder that the command is run in, as with `python -m`.
    if "" not in sys.path:
        sys.path.insert(0, "")
    setup_console(logging.INFO)
    try:
        if arguments and arguments[0] in SUB_COMMANDS:
            command = load(SUB_COMMANDS[arguments[0]])
            command(args=arguments[1:], prog_name=f"ding {arguments[0]}", standalone_mode=False)
        else:
            ding(args=with_page_value(arguments), prog_name="ding", standalone_mode=False)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        said = io.StringIO()
        (_with_hint(error) if isinstance(error, click.NoSuchOption) else error).show(said)
        echo(said.getvalue().rstrip("\n"), err=True)
        sys.exit(error.exit_code)
    except SystemExit as error:
        if error.code or not (place := raised_at(error)):
            raise
        echo(f"TrainingError: {place} calls exit(): let it raise an error, or end the episode.", err=True)
        sys.exit(1)
    except (KeyboardInterrupt, click.Abort):
        echo("interrupted", err=True)
        sys.exit(130)
    except DingError as error:
        if "--debug" in arguments:
            raise
        echo(f"{type(error).__name__}: {error}", err=True)
        sys.exit(1)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG or "--debug" in arguments:
            raise
        given = f"'{str(error.filename)[:40]}...' ({len(str(error.filename))} characters)"
        echo(f"ConfigError: {given} is too long: give names of 240 bytes or fewer, in a path below 4,000.", err=True)
        sys.exit(1)
    finally:
        close_console()


if __name__ == "__main__":
    main()
