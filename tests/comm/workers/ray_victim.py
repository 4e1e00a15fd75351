"""A worker whose process tests kill and stop."""

from __future__ import annotations

import os
import signal
import time


class Victim:
    """Say its process, die on request, or be of no use from the start."""

    def __init__(self, index: int, broken: str = "") -> None:
        if broken == "raises":
            raise OSError(f"no display for {index}")
        if broken == "dies":
            os.kill(os.getpid(), signal.SIGKILL)

    def ready(self) -> int:
        return os.getpid()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def stop(self) -> None:
        pass
