"""Let a process notice that its parent has ended, in whatever way: a pipe between them is closed then."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import Any

_MARK = "DING_PARENT_HOLDS_STDIN"


def start_child(arguments: Sequence[str], **settings: Any) -> subprocess.Popen[bytes]:
    """Start a program that can call `watch_parent`, with Popen's `settings`; its standard input is an end of a pipe."""
    environment = {**(settings.pop("env", None) or os.environ), _MARK: "1"}
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, env=environment, **settings)


def forget_child(process: subprocess.Popen[bytes]) -> None:
    """Close this process's end of the pipe, of a child that has ended; may be called again."""
    if process.stdin is not None:
        process.stdin.close()


def watch_parent(when_it_ends: Callable[[], None]) -> bool:
    """Call `when_it_ends` from a thread once the parent has ended; return False where it was not started for that.

    The mark is taken off, so that this process's own children do not inherit it.
    """
    if os.environ.pop(_MARK, None) is None:
        return False

    def watch() -> None:
        while os.read(0, 4096):
            pass  # nothing is written; a pipe gives nothing when its other end is closed
        when_it_ends()

    threading.Thread(target=watch, name="parent", daemon=True).start()
    return True
