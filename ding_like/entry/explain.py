"""`ding explain`: print what a key of a config means."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

import click

from ding_like.config.explain import Explained, Setting, all_settings, explain
from ding_like.config.legacy import OTHER_NAMES
from ding_like.entry.options import echo, sub_command
from ding_like.errors import ConfigError

_EPILOG = """\b
Examples:
  ding explain log_show_after_iter
  ding explain policy.learn.learning_rate -p sac
  ding explain other.replay_buffer
  ding explain -p dqn
"""


@sub_command("explain", epilog=_EPILOG)
@click.argument("key", required=False)
@click.option("-p", "--policy", metavar="POLICY", help="Show what holds for this policy: dqn, or my_module:MyPolicy.")
@click.pass_context
def command(context: click.Context, key: str | None, policy: str | None) -> None:
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
        echo("\n" * (number > 0) + "\n".join(_lines(entry, is_of_all=len(entry.of) == len(types[entry.part]))))


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
        raise ConfigError(
            f"no key '{key}': keys of system_config are in docs/parallel.md, docs/ray.md and docs/seed.md."
        )
    if policy is not None and (others := _named(all_settings(), key)):
        names = ", ".join(dict.fromkeys(setting.type_name for setting in others))
        raise ConfigError(
            f"policy '{policy}' has no key '{key}', which is of {names}: leave -p out, or give one of these."
        )
    paths = {setting.path for setting in settings}
    named = [
        path
        for path in OTHER_NAMES.get(key.rpartition(".")[2], ())
        if any(f"{each}.".startswith(f"{path}.") for each in paths)
    ]
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


def _lines(entry: Explained, *, is_of_all: bool) -> Iterator[str]:
    (default, _), *other_defaults = entry.defaults.items()
    (meaning, _), *other_meanings = entry.meanings.items()
    yield f"{entry.path} = {default}"
    yield f"    {meaning or 'No comment stands beside its default.'} ({next(iter(entry.accepts))})"
    yield from (f"    {', '.join(names)}: {text}" for text, names in other_meanings)
    if other_defaults:
        yield "    Other defaults: " + "; ".join(f"{text} ({', '.join(names)})" for text, names in other_defaults)
    if not is_of_all:
        yield f"    Of {entry.part.replace('_', ' ')} {', '.join(entry.of)}."
