"""What several commands share: options, and how they print."""

import click

from ding_like.errors import escape_controls

IMPORT_OPTION = click.option(
    "--import", "import_names", multiple=True, metavar="MODULE", help="Allow a module that the folder names."
)


def echo(text: str, *, err: bool = False) -> None:
    """Print a text that may hold names of a foreign folder: control characters in it are shown escaped."""
    click.echo(escape_controls(text), err=err)  # noqa: TID251  # the one place
