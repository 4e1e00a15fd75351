"""Command-line options that several commands share."""

import click

IMPORT_OPTION = click.option(
    "--import", "import_names", multiple=True, metavar="MODULE", help="Allow a module that the folder names."
)
