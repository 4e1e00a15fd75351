"""Be what the contract suite of hosts runs, in this process or in another."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

HELD_S = 30.0  # nothing is held for so long, unless the worker is lost
_released = threading.Event()


def release_all(*, again: bool = False) -> None:
    """Let every worker of this process go on that is held; `again`: hold those that come."""
    if again:
        _released.clear()
    else:
        _released.set()


class OddError(Exception):
    """Be an error that cannot be copied: its arguments are not those that it was made with."""

    def __init__(self, place: str, number: int) -> None:
        super().__init__(f"{place} has {number}")


class Recorder:
    """Note what it is told, and in which thread."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._noted: list[Any] = []
        self._free = threading.Event()
        self._held = threading.Event()

    def note(self, each: Any) -> int:
        self._noted.append(each)
        return len(self._noted)

    def noted(self) -> list[Any]:
        return list(self._noted)

    def is_thread_of_making(self) -> bool:
        return threading.get_ident() == self._thread

    def raise_it(self, error: BaseException) -> None:
        raise error

    def raise_odd(self) -> None:
        raise OddError("shelf", 3)

    def hold(self) -> bool:
        """Return when `free` is called, whether it was."""
        self._held.set()
        while not _released.is_set():
            if self._free.wait(0.05):
                return True
        return False

    def until_held(self) -> bool:
        return self._held.wait(HELD_S)

    def free(self) -> None:
        self._free.set()

    def total(self, array: Any) -> tuple[float, bool]:
        """Return the sum of an array, and whether it can be written."""
        return float(array.sum()), bool(array.flags.writeable)

    def ramp(self, length: int) -> Any:
        return np.arange(length, dtype=np.float64)


def make_nothing() -> Recorder:
    raise KeyError("no such env")


def make_held() -> Recorder:
    recorder = Recorder()
    recorder.hold()
    return recorder
