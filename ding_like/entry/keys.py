"""`ding keys`: make the keys of a run whose workers are on several machines."""

from __future__ import annotations

from pathlib import Path

import click

from ding_like.comm.keys import make_keys
from ding_like.errors import ConfigError


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def command(file: str, debug: bool) -> None:
    """Make a key for each role (collector, learner, admin) and write them to FILE, which only you can read.

    Start the coordinator with --key-file FILE, and copy the file to the hosts of its workers.
    """
    if Path(file).exists():
        raise ConfigError(f"'{file}' is there already: a run's keys are not overwritten. Choose another name.")
    try:
        make_keys(file)
    except OSError as error:
        raise ConfigError(f"'{file}' cannot be written: {error.strerror}.") from error
    click.echo(f"wrote {file}")
