"""`ding list` and `ding info`: shipped configs, policies and envs, with what they returned and what that cost."""

from __future__ import annotations

import inspect
import math
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ding_like.config import read_config
from ding_like.config.explain import all_settings
from ding_like.config.tree import get_path, literal
from ding_like.entry.modes import MODES, close_match, echo, shipped_configs, sub_command
from ding_like.errors import ConfigError, DingError, RegistryError
from ding_like.utils.registries import POLICY_REGISTRY

if TYPE_CHECKING:
    from ding_like.report.recorded import Recorded

_KINDS = ("configs", "policies", "envs")
_WIDTH = 110
# "(Mnih et al. 2015)", "(Haarnoja et al. 2018, Christodoulou 2019)"
_PAPER = re.compile(r"\(([A-Z][^()]*?\b(?:19|20)\d\d[a-z]?\b[^()]*)\)")

_LIST_EXAMPLES = """\b
Examples:
  ding list
  ding list policies
  ding list envs
  ding list configs cartpole
"""
_INFO_EXAMPLES = """\b
Examples:
  ding info dqn
  ding info sac --keys
  ding info my_module:MyPolicy
"""


class Shipped(NamedTuple):
    """Shipped config: its name as in `-e ENV -p POLICY`, with what it names."""

    name: str
    path: Path
    policy: str
    env: str  # its id, or the registered type
    runs: list[Recorded]  # that were recorded of it, those of the plain config first

    @property
    def recorded(self) -> tuple[str, str]:
        """Return and cost of its recorded runs, "" where there are none of the plain config in one process."""
        return (self.plain.score, self.plain.cost) if self.plain else ("", "")

    @property
    def plain(self) -> Recorded | None:
        """Recorded runs of the config as it is, in one process."""
        return next((each for each in self.runs if is_plain(each)), None)


def is_plain(run: Recorded) -> bool:
    """Return whether runs were of a config as it is, in one process."""
    return not run.overrides and run.mode.startswith("serial")


def read_shipped() -> list[Shipped]:
    """Return the configs that come with the package, sorted by name."""
    from ding_like.report.recorded import read_recorded

    recorded, found = read_recorded(), []
    for name, path in sorted(shipped_configs().items()):
        main, create = read_config(path)
        policy = get_path(create, "policy.type") or get_path(main, "policy.type")
        section = {**create.get("env", {}), **{key: main["env"][key] for key in ("env_id",) if key in main["env"]}}
        found.append(Shipped(name, path, str(policy), _env_of(section), recorded.get(name, [])))
    return found


def _env_of(section: dict[str, Any]) -> str:
    """Return the id of an env section, that of its class where it names none, else its type."""
    from ding_like.config.schema import class_defaults
    from ding_like.envs.factory import env_class

    if section.get("env_id"):
        return str(section["env_id"])
    with suppress(DingError, ImportError):  # of a package that is not installed
        env_id = class_defaults(env_class(section)).get("env_id")  # type: ignore[arg-type]  # a function has none
        return str(env_id or section["type"])
    return str(section.get("type"))


# --- ding list


@sub_command("list", epilog=_LIST_EXAMPLES)
@click.argument("kind", default="configs", metavar="[configs|policies|envs]")
@click.argument("words", nargs=-1, metavar="[WORD]...")
def list_command(kind: str, words: tuple[str, ...]) -> None:
    """List shipped configs, policies or envs, with recorded returns and what they cost.

    A return is the median of several seeds [the lowest, the highest], each a fresh evaluation of the last model; the
    cost is the median of their env steps and of their time, h:mm:ss. WORDs keep the lines that have all of them.
    `ding -q REGISTRY` lists what else is registered.
    """
    from ding_like.report.compare import aligned

    if kind not in _KINDS:
        raise ConfigError(f"there is no list of '{kind}'; there are: {', '.join(_KINDS)}.{close_match(kind, _KINDS)}")
    shipped = read_shipped()
    head, rows = {"configs": _config_rows, "policies": _policy_rows, "envs": _env_rows}[kind](shipped)
    shown = [row for row in rows if all(word.lower() in " ".join(row).lower() for word in words)]
    if not shown:
        near = close_match(words[0], [cell for row in rows for cell in row[:3]])
        raise ConfigError(f"none of {len(rows)} {kind} has {' and '.join(map(repr, words))}.{near}")
    echo("\n".join(aligned([head, *shown])))
    more = "`ding info POLICY` shows a policy, `ding list configs WORD` its configs"
    if kind == "configs":
        more = "`ding -m serial -e cartpole -p dqn` runs cartpole_dqn; `ding info POLICY` names the modes of a policy"
    echo(f"\n{len(shown)} {kind}. {more}")


_Table = tuple[Sequence[str], list[Sequence[str]]]


def _config_rows(shipped: Sequence[Shipped]) -> _Table:
    rows = [(each.name, each.policy, each.env, *each.recorded) for each in shipped]
    return ("config", "policy", "env", "return", "cost"), list(rows)


def _policy_rows(shipped: Sequence[Shipped]) -> _Table:
    rows: list[Sequence[str]] = []
    for name in POLICY_REGISTRY.names():
        cls = POLICY_REGISTRY.get(name)
        if cls.__module__.startswith("ding_like."):
            own = [each for each in shipped if each.policy == name]
            actions = ", ".join(getattr(cls, "action_spaces", None) or ("any",))
            example = next((each for each in own if each.plain), None)
            rows.append((name, modes_of(cls)[0], actions, str(len(own)), *_cells(example)))
    return ("policy", "mode", "actions", "configs", "for instance", "return", "cost"), rows


def _env_rows(shipped: Sequence[Shipped]) -> _Table:
    rows: list[Sequence[str]] = []
    for env in sorted({each.env for each in shipped}, key=str.lower):
        own = [each for each in shipped if each.env == env]
        best = max(own, key=lambda it: it.plain.median if it.plain else -math.inf)
        policies = textwrap.shorten(", ".join(sorted({each.policy for each in own})), 60, placeholder=" ...")
        rows.append((env, policies, *_cells(best if best.plain else None)))
    return ("env", "policies with a config", "best", "return", "cost"), rows


def _cells(shipped: Shipped | None) -> tuple[str, str, str]:
    return ("", "", "") if shipped is None else (shipped.name, *shipped.recorded)


def modes_of(cls: type[Any]) -> list[str]:
    """Return the modes of `ding -m` that train a policy, that of one process first."""
    own = getattr(cls, "run_mode", "")
    if own:
        return [name for name, mode in MODES.items() if mode == MODES[own]]
    if bool(getattr(cls, "config", {}) and cls.default_config().get("on_policy")):
        return ["serial_onpolicy", "parallel", "dist", "ray", "ranks"]
    return ["serial", "parallel", "dist", "ray", "seed", "ranks"]


# --- ding info


@sub_command("info", epilog=_INFO_EXAMPLES)
@click.argument("policy", metavar="POLICY")
@click.option("--keys", "all_keys", is_flag=True, help="Show every key, not only those of the policy's own.")
def info_command(policy: str, all_keys: bool) -> None:
    """Show a policy: what it is, its paper, actions and modes, its configs with recorded returns, its keys.

    POLICY is a registered name (`ding list policies`) or the import path of your own, module:Class.
    """
    try:
        cls = POLICY_REGISTRY.get(policy)
    except RegistryError as error:
        raise ConfigError(f"{error}\n  `ding list policies` shows all with their results") from error
    echo("\n".join(_info_lines(POLICY_REGISTRY.canonical(policy), cls, all_keys=all_keys)))


def _info_lines(name: str, cls: type[Any], *, all_keys: bool) -> Iterator[str]:
    from ding_like.report.compare import aligned

    yield f"{name}: {(inspect.getdoc(cls) or 'no description').splitlines()[0]}"
    yield from _labelled("paper", "; ".join(papers_of(cls)))
    yield from _labelled("actions", ", ".join(getattr(cls, "action_spaces", None) or ("any",)))
    yield from _labelled("learns from", _source_of(cls))
    yield from _labelled("modes", ", ".join(modes_of(cls)))
    yield from _labelled("code", f"{cls.__module__}:{cls.__name__}")
    own = [each for each in read_shipped() if each.policy == name]
    if own:
        yield "\nconfigs"
        rows = [(f"  {each.name}", each.env, *each.recorded) for each in own]
        yield from aligned([("  name", "env", "return", "cost"), *rows])
    runs = [run for each in own for run in each.runs if not is_plain(run)]
    if runs:
        yield "\nrecorded in other modes, or with other values"
        yield from aligned(
            [(f"  {run.config}", f"-m {run.mode}", run.score, run.cost, " ".join(run.overrides)) for run in runs]
        )
    yield from _key_lines(name, cls, all_keys=all_keys)


def _labelled(label: str, text: str) -> Iterator[str]:
    if text:
        yield from textwrap.wrap(text, _WIDTH, initial_indent=f"  {label:<12} ", subsequent_indent=" " * 15)


def _source_of(cls: type[Any]) -> str:
    mode = modes_of(cls)[0]
    if mode == "serial_offline":
        return "a data set (policy.collect.data_path)"
    from ding_like.policy.base import Policy

    more = ", and demonstrations" if getattr(cls, "expert_rows", Policy.expert_rows) is not Policy.expert_rows else ""
    unit = {"row": "", "window": ", in windows", "episode": ", in whole episodes"}[getattr(cls, "sample_unit", "row")]
    return ("what it has just collected" if mode == "serial_onpolicy" else "a replay buffer") + unit + more


def papers_of(cls: type[Any]) -> list[str]:
    """Return the papers that a policy's docstrings name: of the class, else of the paragraph of its module about it."""
    module = inspect.getdoc(sys.modules[cls.__module__]) or ""
    first, *paragraphs = [" ".join(text.split()) for text in module.split("\n\n")]
    name = _letters(re.sub(r"Policy$", "", cls.__name__))
    about = [text for text in paragraphs if name in _subjects(text)]
    for text in (" ".join((inspect.getdoc(cls) or "").split()), *about, first):
        if found := _PAPER.findall(text):
            return list(dict.fromkeys(re.sub(r"^[A-Z][A-Z0-9-]+, ", "", each) for each in found))
    return []


def _subjects(paragraph: str) -> set[str]:
    """Return what a paragraph may be about: "C51 (Bellemare...", "DDPG (TD3, Fujimoto...", "policy 'pg', ..."."""
    head, _, rest = paragraph.partition(" (")
    named = re.findall(r"policy '(\w+)'", paragraph.split(". ")[0])
    return {_letters(each) for each in (head, rest.partition(",")[0], *named)}


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _key_lines(name: str, cls: type[Any], *, all_keys: bool) -> Iterator[str]:
    """Yield the keys: all with their meanings, or those whose default is the policy's own."""
    settings = [each for each in all_settings(name) if each.part == "policy"]
    yield f"\nkeys ({len(settings)}; ding explain KEY -p {name} shows one, --keys all)"
    own = _own_paths(cls)
    for each in settings:
        if all_keys or each.path.removeprefix("policy.") in own:
            yield f"  {each.path} = {literal(each.default)}"
            if each.meaning:
                yield from textwrap.wrap(each.meaning, _WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)


def _own_paths(cls: type[Any]) -> set[str]:
    """Return the keys that a policy's class, or a base beside the common one, declares."""
    from ding_like.config.tree import leaves
    from ding_like.policy.base import Policy

    bases = [base for base in cls.__mro__ if base not in Policy.__mro__ and "config" in vars(base)]
    return {path for base in bases for path, _ in leaves(vars(base)["config"]) if path != "type"}
