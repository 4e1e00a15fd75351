"""A worker whose process tests kill and stop."""

from __future__ import annotations

import os
import time


class Victim:
    """Worker that returns its process id and sleeps on request."""

    def __init__(self, index: int) -> None: ...

    def ready(self) -> int:
        return os.getpid()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def stop(self) -> None:
        pass
