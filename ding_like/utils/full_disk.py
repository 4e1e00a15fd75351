"""Wait for room where a disk is full, and say so, instead of ending a run that may still be saved."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from ding_like.utils.files import is_full
from ding_like.utils.interval import Interval

T = TypeVar("T")

_LOOK_S = 1.0  # between two tries
_WORD_S = 60.0  # between two words about it
_LONGEST_S = 600.0


def when_there_is_room(
    write: Callable[[], T],
    *,
    tell: Callable[[str], None],
    wait: Callable[[float], bool] | None = None,
    longest_s: float = _LONGEST_S,
) -> T:
    """Return `write()`, trying again each second while the disk is full.

    `tell` is given a line at first and then once a minute. `wait(seconds)` returns True where there is no time left.
    Raises what `write` raised last then, and after `longest_s`. An error that was made from that of a full disk is one.
    """
    wait = wait or threading.Event().wait
    deadline = time.monotonic() + longest_s
    words = Interval(_WORD_S, starts_due=True, clock=time.monotonic)
    while True:
        try:
            return write()
        except Exception as error:  # torch and sqlite wrap the OSError of a full disk; any other error is raised
            says_full = is_full(error) or (error.__cause__ is not None and is_full(error.__cause__))
            if not says_full or time.monotonic() >= deadline:
                raise
            if words.pass_s():
                tell(f"the disk is full ({error}); waiting for room")
            if wait(_LOOK_S):
                raise
