"""Wait for room where a disk is full, and say so, instead of ending a run that somebody may still save."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from typing import TypeVar

from ding_like.data.segment_file import SegmentError

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LOOK_S = 1.0  # between two tries
_WORD_S = 60.0  # between two words about it
_LONGEST_S = 600.0


def is_full(error: Exception) -> bool:
    """Tell whether an error says that a disk is full."""
    if isinstance(error, SegmentError):
        return error.code == "full"
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def when_there_is_room(
    write: Callable[[], T], *, tell: Callable[[str], None], wait: Callable[[float], bool], longest_s: float = _LONGEST_S
) -> T:
    """Return `write()`, trying again each second while the disk is full.

    `tell` is given a line at first and then once a minute. `wait(seconds)` returns True where there is no time left.
    Raises what `write` raised last then, and after `longest_s`.
    """
    deadline = time.monotonic() + longest_s
    next_word_s = 0.0
    while True:
        try:
            return write()
        except (OSError, SegmentError) as error:
            now = time.monotonic()
            if not is_full(error) or now >= deadline:
                raise
            if now >= next_word_s:
                next_word_s = now + _WORD_S
                tell(f"the disk is full ({error}); waiting for room")
            if wait(_LOOK_S):
                raise
