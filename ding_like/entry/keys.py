"""`ding keys`: make the keys of a run whose workers are on several machines."""

from __future__ import annotations

from pathlib import Path

import click

from ding_like.comm.keys import ROLES, make_keys, role_file
from ding_like.entry.options import echo, sub_command
from ding_like.errors import ConfigError


@sub_command("keys")
@click.argument("file")
@click.option("--per-role", is_flag=True, help="Also write a file for each role, with its key alone.")
@click.option("--curve", is_flag=True, help="Make CURVE keys, for `ding -m seed` over tcp.")
@click.option("--client", "clients", multiple=True, metavar="NAME", help="With --curve: a worker's name; any number.")
@click.option("--remove", multiple=True, metavar="NAME", help="With --curve: take a worker off FILE; any number.")
def command(file: str, per_role: bool, curve: bool, clients: tuple[str, ...], remove: tuple[str, ...]) -> None:
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
        raise ConfigError(
            "--per-role is about keys of a coordinator, --curve about those of `ding -m seed`: choose one."
        )
    try:
        lines = _change_curve(file, clients, remove) if curve else _make_role_keys(file, per_role)
    except FileExistsError as error:
        raise ConfigError(
            f"'{error.filename or file}' is there already: a run's keys are not overwritten. Choose another name."
        ) from error
    except OSError as error:
        raise ConfigError(f"'{file}' cannot be written: {error.strerror}.") from error
    for line in lines:
        echo(line)


def _make_role_keys(file: str, per_role: bool) -> list[str]:
    make_keys(file, per_role=per_role)
    return [f"wrote {path}" for path in (Path(file), *(role_file(file, role) for role in ROLES if per_role))]


def _change_curve(file: str, clients: tuple[str, ...], remove: tuple[str, ...]) -> list[str]:
    from ding_like.comm.zmq.keys import make_seed_keys, remove_clients, renew_clients

    if remove:
        remove_clients(file, remove)
    if clients and Path(file).exists():
        written = renew_clients(file, clients)
    elif clients or not remove:
        written = make_seed_keys(file, clients or ("worker",))
    else:
        written = [Path(file)]
    return [f"wrote {path}" for path in written]
