"""Serve a page about the runs of this process: `--page` of the command, `live_page` for programs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ding_like.entry.modes import Options, echo, load
from ding_like.errors import ConfigError

if TYPE_CHECKING:
    from ding_like.serve.run_page import RunPage

OPTION = "--page"
_ADDRESS = re.compile(r"(?:(?P<host>[^\s=]*[^\s=:]):|\[(?P<six>[0-9A-Fa-f:]+)\]:)?(?P<port>\d+)")
_LOOPBACK = "127.0.0.1"


@contextmanager
def live_page(*, port: int = 0, host: str = _LOOPBACK) -> Iterator[RunPage]:
    """Serve a page about each run that begins while the block runs, and print its address.

    Port 0 is any that is free. Requests without the token of the address are refused; see docs/live_page.md. Raises
    ConfigError for a host that is not known, and CommError for a port that is in use.
    """
    from ding_like.serve.run_page import RunPage

    with RunPage(host=host, port=port) as page:
        echo(f"page: {page.url}")
        yield page


class PageAddress(click.ParamType):
    """Address of a page: PORT, or HOST:PORT."""

    name = "address"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:  # Any: of click
        """Return (host, port); fail for anything else."""
        if isinstance(value, tuple):
            return value
        found = _ADDRESS.fullmatch(value)
        if found is None or int(found["port"]) > 65_535:
            self.fail(f"'{value}' is neither a port from 0 to 65535 nor HOST:PORT.", param, ctx)
        return found["host"] or found["six"] or _LOOPBACK, int(found["port"])


def with_page_value(arguments: Sequence[str]) -> list[str]:
    """Return the words of a command, with a port behind a `--page` that has none: click would take the next word."""
    found: list[str] = []
    for at, word in enumerate(arguments):
        following = "".join(arguments[at + 1 : at + 2])
        found += [word, "0"] if word == OPTION and not _ADDRESS.fullmatch(following) else [word]
    return found


@contextmanager
def page_of(options: Options) -> Iterator[None]:
    """Serve the page that the options of a command ask for, if they do, while the block runs."""
    if options["page"] is None:
        yield
        return
    _check(options)
    if options["mode"] == "ranks":
        load("serial_entry:adopt_launcher")()
    if (os.environ.get("RANK") or "0") != "0":  # of processes that torchrun has started, the first has the run
        yield
        return
    host, port = options["page"]
    with live_page(port=port, host=host):
        yield


def _check(options: Options) -> None:
    """Raise ConfigError for what has no page."""
    module, seeds = options["module"], options["seed"]
    if options["mode"] == "eval":
        raise ConfigError("--page is of runs that train, not of mode eval: leave it out.")
    if module not in (None, "coordinator"):
        raise ConfigError(f"--page is of the process that has the run, not of -M {module}: give it to that one.")
    if options["dry_run"]:
        raise ConfigError("--page is of a run, and --dry-run starts none: leave one of them out.")
    if len(seeds) > 1:
        raise ConfigError(f"--page shows one run, and {len(seeds)} seeds are given: give one -s.")
