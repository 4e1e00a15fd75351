"""Wait for room where a disk is full, and say so, instead of ending a run that somebody may still save."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ding_like.data.segment_file import SegmentError
from ding_like.utils.files import is_full
from ding_like.utils.interval import Interval

T = TypeVar("T")

_LOOK_S = 1.0  # between two tries
_WORD_S = 60.0  # between two words about it
_LONGEST_S = 600.0


def when_there_is_room(
    write: Callable[[], T], *, tell: Callable[[str], None], wait: Callable[[float], bool], longest_s: float = _LONGEST_S
) -> T:
    """Return `write()`, trying again each second while the disk is full.

    `tell` is given a line at first and then once a minute. `wait(seconds)` returns True where there is no time left.
    Raises what `write` raised last then, and after `longest_s`.
    """
    deadline = time.monotonic() + longest_s
    words = Interval(_WORD_S, starts_due=True, clock=time.monotonic)
    while True:
        try:
            return write()
        except (OSError, SegmentError) as error:
            full = error.code == "full" if isinstance(error, SegmentError) else is_full(error)
            if not full or time.monotonic() >= deadline:
                raise
            if words.pass_s():
                tell(f"the disk is full ({error}); waiting for room")
            if wait(_LOOK_S):
                raise
