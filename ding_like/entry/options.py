"""What several commands share: options, and how they print."""

from __future__ import annotations

from typing import Any

import click

from ding_like.errors import ConfigError, escape_controls

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


class WholeNumber(click.IntRange):
    """Whole number whose error names the range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number; fail for anything else."""
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            high = "" if self.max is None else f" to {self.max}"
            self.fail(f"'{value}' is not a whole number from {self.min}{high}.", param, ctx)


def echo(text: str, *, err: bool = False) -> None:
    """Print a text that may hold names of a foreign folder: control characters in it are shown escaped."""
    click.echo(escape_controls(text), err=err)  # noqa: TID251  # the one place
