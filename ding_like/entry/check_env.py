"""Check an environment: `ding check-env ID`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from ding_like.entry.options import WholeNumber, echo, sub_command
from ding_like.errors import ConfigError, RegistryError
from ding_like.types import Config

if TYPE_CHECKING:
    from ding_like.envs import EnvFactory
    from ding_like.envs.check import Finding

_GYMNASIUM_ID = re.compile(r"-v\d+$")

_EPILOG = """\b
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
        raise ConfigError(
            f"{error}\n  a gymnasium id ends in its version (CartPole-v1), a path is module:Class"
        ) from error
    keys = ["wrappers"] if ":" in cfg["type"] else ["wrappers", "max_episode_steps", "render_mode"]
    base = BaseEnv if ":" in cfg["type"] else GymnasiumEnv
    is_ours = isinstance(made, type) and issubclass(made, base)
    own = {key: value for key, value in arguments.items() if key not in keys}
    cfg.update({key: value for key, value in arguments.items() if key in keys})
    # A BaseEnv by path and a registered class that is no GymnasiumEnv read the section itself.
    cfg.update(own if is_ours is (base is BaseEnv) else {"kwargs": own})
    return EnvFactory(cfg)


@sub_command("check-env", epilog=_EPILOG)
@click.argument("env_id", metavar="ID")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--steps", type=WholeNumber(min=1), default=1000, metavar="N", help="Random steps to play. [1000]")
@click.option("-s", "--seed", type=int, default=0, metavar="SEED", help="Seed of the first episode. [0]")
@click.option("--import", "import_names", multiple=True, metavar="MODULE", help="Import a module that registers envs.")
def command(env_id: str, arguments: tuple[str, ...], steps: int, seed: int, import_names: tuple[str, ...]) -> None:
    """Run an env and report every fault with its fix; exit status 1 if there is one.

    ID is a gymnasium id, a registered env type, or module:Class. KEY=VALUE are arguments of the env.
    """
    from ding_like.envs.check import check_env

    make = env_factory(env_id, _parse(arguments), import_names)
    findings = check_env(make, num_steps=steps, seed=seed)
    policies = _policy_findings(make) if not any(each.level == "fault" for each in findings) else []
    findings = sorted([*findings, *policies], key=lambda each: ("fault", "warning", "note").index(each.level))
    echo("\n".join(_lines(env_id, findings)))
    # Not ctx.exit(): the caller runs click without its standalone mode, which swallows that.
    if any(each.level == "fault" for each in findings):
        sys.exit(1)


def _parse(arguments: Sequence[str]) -> dict[str, Any]:
    from ding_like.config.override import parse_value

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

    env = make()
    try:
        obs_space, action_space = ObsLayout(env.observation_space).space, ActionLayout(env.action_space).space
    finally:
        env.close()
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


def _lines(env_id: str, findings: Sequence[Finding]) -> Iterator[str]:
    yield f"{env_id}"
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
