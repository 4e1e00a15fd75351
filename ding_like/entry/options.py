"""Options of several commands, the seeds that `-s` names, and how commands print."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import click

from ding_like.errors import ConfigError, escape_controls

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
    click.echo(escape_controls(text), err=err)  # noqa: TID251  # the one place


def checked_seeds(seeds: Iterable[int]) -> tuple[int, ...]:
    """Return seeds as a tuple. Raises ConfigError where there are none, and for one that is given twice or negative."""
    found = tuple(int(seed) for seed in seeds)
    if not found:
        raise ConfigError("no seed is given; expected one at least, such as seeds=range(5).")
    twice = sorted({seed for seed in found if found.count(seed) > 1})
    if twice:
        raise ConfigError(f"seed {twice[0]} is given {found.count(twice[0])} times; give each seed once.")
    if min(found) < 0 or max(found) > _LARGEST:
        bad = next(seed for seed in found if not 0 <= seed <= _LARGEST)
        raise ConfigError(f"seed {bad} is not from 0 to {_LARGEST:,}.")
    return found


def parse_seeds(texts: Iterable[str]) -> tuple[int, ...]:
    """Return the seeds that `-s` options name: a number, a range `0..4` with both ends, or a list `0,2,5..7`.

    Raises ConfigError for what is none of these.
    """
    found: list[int] = []
    for text in texts:
        for part in text.split(","):
            found += _range_of(part.strip(), text)
    return checked_seeds(found)


def _range_of(part: str, text: str) -> Iterable[int]:
    match = re.fullmatch(r"(\d+)(?:\.\.\.?(\d+))?", part)
    if match is None:
        raise ConfigError(
            f"-s {text} names no seeds; expected a whole number, 0 or more, a range such as 0..4 or a list 0,2,5."
        )
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
