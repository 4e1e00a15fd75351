"""Commands beside training: `ding check-env`, `ding explain`, `ding keys`, `ding tune`."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ding_like.config.explain import Explained, Setting, all_settings, explain
from ding_like.config.report import OTHER_NAMES
from ding_like.entry.modes import WholeNumber, echo, sub_command
from ding_like.errors import ConfigError, RegistryError
from ding_like.study.plan import FORMS
from ding_like.types import Config

if TYPE_CHECKING:
    from ding_like.envs import EnvFactory
    from ding_like.envs.check import Finding


# --- ding check-env

_GYMNASIUM_ID = re.compile(r"-v\d+$")

_CHECK_EXAMPLES = """\b
Examples:
  ding check-env CartPole-v1
  ding check-env my_module:MyEnv size=8
  ding check-env my_env --import my_module
  ding check-env Pendulum-v1 "wrappers=[{'type': 'rescale_action'}]"
"""


def env_factory(env_id: str, arguments: Config, import_names: Sequence[str] = ()) -> EnvFactory:
    """Return what makes the env of a gymnasium id, a registered type or an import path `module:Class`.

    `arguments` are the env's own; `wrappers` and, of a gymnasium id, `max_episode_steps` and `render_mode` mean what
    they do in a config's env section. Raises ConfigError for a type that is not known.
    """
    from ding_like.envs import BaseEnv, EnvFactory, GymnasiumEnv
    from ding_like.envs.factory import env_class

    cfg: dict[str, Any] = {"type": env_id, "import_names": list(import_names)}
    if _GYMNASIUM_ID.search(env_id):
        cfg.update(type="gymnasium", env_id=env_id)
    try:
        made = env_class(cfg)
    except RegistryError as error:
        fix = "a gymnasium id ends in its version (CartPole-v1), a path is module:Class"
        raise ConfigError(f"{error}\n  {fix}") from error
    keys = ["wrappers"] if ":" in cfg["type"] else ["wrappers", "max_episode_steps", "render_mode"]
    base = BaseEnv if ":" in cfg["type"] else GymnasiumEnv
    is_ours = isinstance(made, type) and issubclass(made, base)
    own = {key: value for key, value in arguments.items() if key not in keys}
    cfg.update({key: value for key, value in arguments.items() if key in keys})
    # A BaseEnv by path and a registered class that is no GymnasiumEnv read the section itself.
    cfg.update(own if is_ours is (base is BaseEnv) else {"kwargs": own})
    return EnvFactory(cfg)


@sub_command("check-env", epilog=_CHECK_EXAMPLES)
@click.argument("env_id", metavar="ID")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--steps", type=WholeNumber(min=1), default=1000, metavar="N", help="Random steps to play. [1000]")
@click.option("-s", "--seed", type=int, default=0, metavar="SEED", help="Seed of the first episode. [0]")
@click.option("--import", "import_names", multiple=True, metavar="MODULE", help="Import a module that registers envs.")
def check_env_command(
    env_id: str, arguments: tuple[str, ...], steps: int, seed: int, import_names: tuple[str, ...]
) -> None:
    """Run an env and report every fault with its fix; exit status 1 if there is one.

    ID is a gymnasium id, a registered env type, or module:Class. KEY=VALUE are arguments of the env.
    """
    from ding_like.envs.check import check_env

    make = env_factory(env_id, _parse(arguments), import_names)
    findings = check_env(make, num_steps=steps, seed=seed)
    policies = _policy_findings(make) if not any(each.level == "fault" for each in findings) else []
    findings = by_level([*findings, *policies])
    echo("\n".join(finding_lines(env_id, findings)))
    # Not ctx.exit(): the caller runs click without its standalone mode, which swallows that.
    if any(each.level == "fault" for each in findings):
        sys.exit(1)


def _parse(arguments: Sequence[str]) -> dict[str, Any]:
    from ding_like.config.read import parse_value

    parsed = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or not key.isidentifier():
            raise ConfigError(f"'{argument}' is not an argument of the env; expected KEY=VALUE, such as size=8.")
        parsed[key] = parse_value(value)
    return parsed


def _policy_findings(make: EnvFactory) -> Iterator[Finding]:
    """Say which policies take the env's actions, and which of its spaces none takes."""
    from ding_like.envs.check import Finding
    from ding_like.envs.spaces import ActionLayout, ObsLayout
    from ding_like.pipeline.envs import action_shape, obs_shape
    from ding_like.utils.registries import POLICY_REGISTRY

    with closing(make()) as env:
        obs_space, action_space = ObsLayout(env.observation_space).space, ActionLayout(env.action_space).space
    for read, space in ((obs_shape, obs_space), (action_shape, action_space)):
        try:
            read(space)
        except ConfigError as error:
            seen, _, fix = str(error).rpartition(": ")
            yield Finding("warning", "policies", seen, "a space that a policy takes", fix)
    kind = type(action_space).__name__
    # A policy that declares nothing takes all.
    declared = {name: getattr(POLICY_REGISTRY.get(name), "action_spaces", None) for name in POLICY_REGISTRY.names()}
    takers = [name for name, kinds in declared.items() if kinds is None or kind in kinds]
    yield Finding("note", "policies", f"{kind} actions are taken by {', '.join(takers) or 'none'}")


def by_level(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings, faults first and notes last."""
    return sorted(findings, key=lambda each: ("fault", "warning", "note").index(each.level))


def finding_lines(title: str, findings: Sequence[Finding]) -> Iterator[str]:
    """Yield findings, and their number, as lines of a terminal."""
    yield title
    for each in findings:
        times = f"  ({each.count} times)" if each.count > 1 else ""
        yield f"\n  {each.level:<8} {each.topic}: {each.seen}{times}"
        if each.expected:
            yield f"{'':11}expected  {each.expected}"
        if each.fix:
            yield f"{'':11}{'fix' if each.level != 'note' else 'hint':10}{each.fix}"
    yield ""
    yield ", ".join(_count(findings, level) for level in ("fault", "warning", "note"))


def _count(findings: Sequence[Finding], level: str) -> str:
    number = sum(each.level == level for each in findings)
    return f"{number or 'no'} {level}{'s' if number > 1 else ''}"


# --- ding explain

_EXPLAIN_EXAMPLES = """\b
Examples:
  ding explain log_show_after_iter
  ding explain policy.learn.learning_rate -p sac
  ding explain other.replay_buffer
  ding explain -p dqn
"""


@sub_command("explain", epilog=_EXPLAIN_EXAMPLES)
@click.argument("key", required=False)
@click.option("-p", "--policy", metavar="POLICY", help="Show what holds for this policy: dqn, or my_module:MyPolicy.")
@click.pass_context
def explain_command(context: click.Context, key: str | None, policy: str | None) -> None:
    """Print what a KEY of a config means: its path, its default, what it accepts.

    KEY is a path (policy.learn.batch_size), its end (batch_size) or a section (policy.learn). With -p and no KEY, all
    keys of the policy are printed.
    """
    if key is None and policy is None:
        echo(context.get_help())
        return
    settings = all_settings(policy)
    types: dict[str, set[str]] = {}
    for setting in settings:
        types.setdefault(setting.part, set()).add(setting.type_name)
    for number, entry in enumerate(explain(_chosen(settings, key, policy))):
        echo("\n" * (number > 0) + "\n".join(_setting_lines(entry, is_of_all=len(entry.of) == len(types[entry.part]))))


def _chosen(settings: list[Setting], key: str | None, policy: str | None) -> list[Setting]:
    """Return the settings that a key and a policy ask for. Raises ConfigError if there are none."""
    if key is None:
        return [setting for setting in settings if setting.part == "policy"]
    if policy is not None:  # whose own defaults for its parts count
        own = {setting.path for setting in settings if setting.part == "policy"}
        settings = [setting for setting in settings if setting.part == "policy" or setting.path not in own]
    found = _named(settings, key)
    if found:
        return found
    if key.split(".")[0] == "system":
        pages = "docs/parallel.md, docs/ray.md and docs/seed.md"
        raise ConfigError(f"no key '{key}': keys of system_config are in {pages}.")
    if policy is not None and (others := _named(all_settings(), key)):
        names = ", ".join(dict.fromkeys(setting.type_name for setting in others))
        fix = "leave -p out, or give one of these"
        raise ConfigError(f"policy '{policy}' has no key '{key}', which is of {names}: {fix}.")
    paths = {setting.path for setting in settings}
    others_have = OTHER_NAMES.get(key.rpartition(".")[2], ())
    named = [path for path in others_have if any(f"{each}.".startswith(f"{path}.") for each in paths)]
    meant = f" Did you mean {' or '.join(named)}?" if named else _close(paths, key)
    raise ConfigError(f"no key '{key}'.{meant}")


def _named(settings: list[Setting], key: str) -> list[Setting]:
    return [setting for setting in settings if f".{key}." in f".{setting.path}."]


def _close(paths: Iterable[str], key: str) -> str:
    """Return which keys may have been meant: those whose ends, of as many names, are close."""
    ends: dict[str, list[str]] = {}
    for path in sorted(paths):
        ends.setdefault(".".join(path.split(".")[-key.count(".") - 1 :]), []).append(path)
    close = [path for end in difflib.get_close_matches(key, ends, n=3) for path in ends[end]]
    return f" Did you mean {' or '.join(close[:5])}?" if close else " docs/settings.md lists all keys."


def _setting_lines(entry: Explained, *, is_of_all: bool) -> Iterator[str]:
    (default, _), *other_defaults = entry.defaults.items()
    (meaning, _), *other_meanings = entry.meanings.items()
    yield f"{entry.path} = {default}"
    yield f"    {meaning or 'No comment stands beside its default.'} ({next(iter(entry.accepts))})"
    yield from (f"    {', '.join(names)}: {text}" for text, names in other_meanings)
    if other_defaults:
        yield "    Other defaults: " + "; ".join(f"{text} ({', '.join(names)})" for text, names in other_defaults)
    if not is_of_all:
        yield f"    Of {entry.part.replace('_', ' ')} {', '.join(entry.of)}."


# --- ding keys


@sub_command("keys")
@click.argument("file")
@click.option("--per-role", is_flag=True, help="Also write a file for each role, with its key alone.")
@click.option("--curve", is_flag=True, help="Make CURVE keys, for `ding -m seed` over tcp.")
@click.option("--client", "clients", multiple=True, metavar="NAME", help="With --curve: a worker's name; any number.")
@click.option("--remove", multiple=True, metavar="NAME", help="With --curve: take a worker off FILE; any number.")
def keys_command(file: str, per_role: bool, curve: bool, clients: tuple[str, ...], remove: tuple[str, ...]) -> None:
    """Make a key for each role (collector, learner, admin) and write them to FILE, which only you can read.

    Start the coordinator with --key-file FILE. A worker needs its own role's key only: with --per-role, copy
    FILE.collector or FILE.learner (before the ending, if FILE has one) to its host, as a file that only you can read.

    With --curve FILE is for the driver of `ding -m seed`, and FILE.NAME (before the ending) for each --client, "worker"
    where none is named. On a FILE that is there, --client gives NAME a new key and --remove takes NAME off and
    deletes its file: the old keys are refused from then on, also by a run under way. A worker that is
    connected stays until its connection ends.
    """
    if (clients or remove) and not curve:
        raise ConfigError("--client and --remove are about CURVE keys: add --curve.")
    if per_role and curve:
        raise ConfigError("--per-role is of keys of a coordinator, --curve of those of `ding -m seed`: choose one.")
    try:
        written = _change_curve(file, clients, remove) if curve else _make_role_keys(file, per_role)
    except FileExistsError as error:
        seen = f"'{error.filename or file}' is there already"
        raise ConfigError(f"{seen}: a run's keys are not overwritten. Choose another name.") from error
    except OSError as error:
        raise ConfigError(f"'{file}' cannot be written: {error.strerror}.") from error
    for path in written:
        echo(f"wrote {path}")


def _make_role_keys(file: str, per_role: bool) -> list[Path]:
    from ding_like.comm.keys import ROLES, make_keys, role_file

    make_keys(file, per_role=per_role)
    return [Path(file), *(role_file(file, role) for role in ROLES if per_role)]


def _change_curve(file: str, clients: tuple[str, ...], remove: tuple[str, ...]) -> list[Path]:
    from ding_like.comm.keys import make_seed_keys, remove_clients, renew_clients

    if remove:
        remove_clients(file, remove)
    if clients and Path(file).exists():
        return renew_clients(file, clients)
    return make_seed_keys(file, clients or ("worker",)) if clients or not remove else [Path(file)]


# --- ding tune

_TUNE_EXAMPLES = f"""\b
A RANGE is {FORMS}.

\b
Examples:
  ding tune -c CONFIG --env-step 20000 --param policy.learn.learning_rate=log:1e-5..1e-2
  ding tune -c CONFIG --env-step 20000 --param policy.nstep=int:1..5 --param policy.model.dueling=[True,False] -j 2
  ding tune --resume STUDY
"""


@sub_command("tune", epilog=_TUNE_EXAMPLES)
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
def tune_command(resume: str | None, **options: Any) -> None:
    """Search for settings: a study of trials, each an ordinary run; KEY=VALUE arguments are of all of them."""
    from ding_like.entry.studies import resume_study, tune
    from ding_like.study.child_runs import command_line

    if resume is not None:
        if options["config"] is not None or options["params"] or options["overrides"]:
            raise ConfigError("--resume takes the study's own config and ranges; beside it give --trials and -j alone.")
        resume_study(resume, trials=options["trials"], jobs=options["jobs"])
        return
    if options["config"] is None:
        raise ConfigError("no config given; use -c FILE, or --resume STUDY. `ding tune --help` shows the options.")
    given = {name: value for name, value in options.items() if value is not None}
    tune(**given, command=command_line(sys.argv[1:]))
