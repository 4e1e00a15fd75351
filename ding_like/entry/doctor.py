"""`ding doctor`: what is odd on this machine, in a config, or in an experiment."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ding_like.entry.commands import by_level, finding_lines
from ding_like.entry.modes import Options, config_path, echo, sub_command
from ding_like.errors import ConfigError

if TYPE_CHECKING:
    from ding_like.envs.check import Finding
    from ding_like.report.doctor.environment import Fact

_EXAMPLES = """\b
Examples:
  ding doctor
  ding doctor my_exp
  ding doctor -c my_config.py --env-step 100000
  ding doctor -e cartpole -p dqn --env-step 20000 policy.learn.batch_size=32
  ding doctor my_exp --json
"""


@sub_command("doctor", epilog=_EXAMPLES)
@click.argument("arguments", nargs=-1, metavar="[EXP] [KEY=VALUE]...")
@click.option("-c", "--config", metavar="FILE", help="Check a config file (.py).")
@click.option("-e", "--env", metavar="ENV", help="Check the shipped config of this env, with -p: cartpole.")
@click.option("-p", "--policy", metavar="POLICY", help="Check the shipped config of this policy, with -e: dqn.")
@click.option("--env-step", type=float, metavar="N", help="Of a config: env steps that the run will take.")
@click.option("--train-iter", type=float, metavar="N", help="Of a config: updates that the run will take.")
@click.option("--json", "as_json", is_flag=True, help="Print facts and findings as JSON.")
def doctor_command(arguments: tuple[str, ...], as_json: bool, **options: str | float | None) -> None:
    """Report what is odd, each with its fix: on this machine, in a config or in an experiment.

    Without arguments: versions, cores, GPU, disk, shared memory, ports, limits, clock, rendering, and each extra.
    With EXP, the folder of a run or of several seeds, ended or not: what its metrics and config show.
    With -c or -e and -p: a config before it runs; KEY=VALUE arguments change it, and --env-step is what schedules and
    evaluations are held to. The exit status is 1 if there is a fault.
    """
    overrides = [each for each in arguments if "=" in each]
    folders = [each for each in arguments if "=" not in each]
    is_config = any(options[name] is not None for name in ("config", "env", "policy"))
    _check_choice(folders, overrides, options, is_config=is_config)
    facts: list[Fact] = []
    if is_config:
        title = config_path(options)
        findings = _of_config(title, overrides, options)
    elif folders:
        from ding_like.report.doctor.run import check_run

        title, findings = folders[0], check_run(folders[0])
    else:
        from ding_like.report.doctor.environment import check_environment

        title, (facts, findings) = "this machine", check_environment()
    _show(title, facts, by_level(findings), as_json=as_json)
    # Not ctx.exit(): the caller runs click without its standalone mode, which swallows that.
    if any(each.level == "fault" for each in findings):
        sys.exit(1)


def _check_choice(folders: list[str], overrides: list[str], options: Options, *, is_config: bool) -> None:
    """Raise ConfigError for arguments that are of different things to check."""
    if len(folders) > 1 or (folders and is_config):
        given = f"'{folders[0]}' and {'a config' if is_config else repr(folders[1])}"
        raise ConfigError(f"{given} are given: check one at a time, ding doctor EXP or ding doctor -c CONFIG.")
    if folders and Path(folders[0]).suffix == ".py":
        raise ConfigError(f"'{folders[0]}' is a file; to check a config give -c {folders[0]}.")
    limits = [f"--{name.replace('_', '-')}" for name in ("env_step", "train_iter") if options[name] is not None]
    if (overrides or limits) and not is_config:
        what = " and ".join([*overrides[:1], *limits])
        raise ConfigError(f"{what} is about a config: give it with -c FILE, or -e ENV -p POLICY.")


def _of_config(path: str, overrides: list[str], options: Options) -> list[Finding]:
    from ding_like.entry.training import check_limits, load_config
    from ding_like.envs.check import Finding
    from ding_like.report.doctor.config import Subject, check_config

    limits = {name: options[name] for name in ("env_step", "train_iter")}
    check_limits(**{f"max_{name}": value for name, value in limits.items()})
    if not Path(path).is_file():
        load_config(path, seed=0)  # raises the error that names close files
    try:
        cfg = load_config(path, seed=0, overrides=overrides, save=False, renew_dir=False)
    except ConfigError as error:
        seen = str(error).replace("\n", f"\n{'':9}")
        return [Finding("fault", "config", seen, "a config that a run takes", "change the keys that are named")]
    env_step, train_iter = (math.inf if value is None else float(value) for value in limits.values())
    return check_config(Subject(cfg, env_step, train_iter))


def _show(title: str, facts: list[Fact], findings: list[Finding], *, as_json: bool) -> None:
    if as_json:
        listed = [{"topic": each.topic, "text": each.text} for each in facts]
        found = [asdict(each) for each in findings]
        echo(json.dumps({"title": title, "facts": listed, "findings": found}, indent=2))
        return
    width = max((len(each.topic) for each in facts), default=0)
    about = "".join(f"\n  {each.topic:<{width}}  {each.text}" for each in facts)
    echo("\n".join(finding_lines(f"{title}{about}", findings)))
