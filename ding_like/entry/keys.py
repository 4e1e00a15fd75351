"""`ding keys`: make the keys of a run whose workers are on several machines."""

from __future__ import annotations

from pathlib import Path

import click

from ding_like.comm.rest.keys import ROLES, make_keys, role_file
from ding_like.errors import ConfigError


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file")
@click.option("--per-role", is_flag=True, help="Also write a file for each role, with its key alone.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def command(file: str, per_role: bool, debug: bool) -> None:
    """Make a key for each role (collector, learner, admin) and write them to FILE, which only you can read.

    Start the coordinator with --key-file FILE. A worker needs its own role's key only: with --per-role, copy
    FILE.collector or FILE.learner (before the ending, if FILE has one) to its host, as a file that only you can read.
    """
    files = [Path(file), *(role_file(file, role) for role in ROLES if per_role)]
    try:
        make_keys(file, per_role=per_role)
    except FileExistsError as error:
        there = next((path for path in files if path.exists()), files[0])
        raise ConfigError(
            f"'{there}' is there already: a run's keys are not overwritten. Choose another name."
        ) from error
    except OSError as error:
        raise ConfigError(f"'{file}' cannot be written: {error.strerror}.") from error
    for path in files:
        click.echo(f"wrote {path}")
