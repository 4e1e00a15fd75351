"""Commands of `ding`, run in this process."""

from __future__ import annotations

from ding_like.entry import cli


def status_of(*arguments: str) -> int:
    """Return the exit status of `ding ARGUMENTS`."""
    try:
        cli.main(list(arguments))
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0
