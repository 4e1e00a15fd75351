"""Be `ding`, with a wall clock that jumps by as many seconds as a file says: `python -m tests.chaos.child ...`."""

from __future__ import annotations

import os
import runpy
import sys
import time
from pathlib import Path

CLOCK = "DING_CHAOS_CLOCK"  # environment variable: a path; the file holds the seconds, and may not be there
_LOOK_S = 0.05


class JumpingClock:
    """Clock that returns the time of day, moved by the seconds in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._time = time.time
        self._offset_s = 0.0
        self._looked_s = float("-inf")

    def __call__(self) -> float:
        now_s = time.monotonic()
        if now_s - self._looked_s > _LOOK_S:
            self._looked_s = now_s
            self._offset_s = float(self._path.read_text() or 0.0) if self._path.exists() else 0.0
        return self._time() + self._offset_s


def main() -> None:
    path = os.environ.get(CLOCK)
    if path is not None:
        time.time = JumpingClock(Path(path))
    sys.argv[0] = "ding"
    runpy.run_module("ding_like.entry.cli", run_name="__main__")


if __name__ == "__main__":
    main()
