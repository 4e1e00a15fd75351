"""Be the end of a worker in its own process: an actor of any kind of object.

What a method raises is returned, not raised: Ray would give it another type, of which the driver knows less.
"""

from __future__ import annotations

import copy
import os
import platform
import threading
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from ding_like.comm.ray.library import load_ray
from ding_like.errors import CommError

_READ_S = 60.0  # for a function that comes from another machine, perhaps


class Process(NamedTuple):
    """Say where a worker runs."""

    pid: int
    machine: str  # its hostname


class Raised(NamedTuple):
    """Hold what a method raised, and where."""

    error: BaseException
    where: str  # the traceback, as text
    in_making: bool = False  # the worker's object, in place of a call


class Shell:
    """Hold a worker's object and do its calls; each method is called from a thread of its own, except `make`."""

    def __init__(self) -> None:
        self._object: object = None
        self._failure: Raised | None = None
        self._is_made = threading.Event()

    def describe(self) -> Process:
        """Return where this is, even while the object is made."""
        return Process(os.getpid(), platform.node())

    def make(self, given: list[Any]) -> Raised | None:  # Any: ray.ObjectRef
        """Make the object, in the thread that does its calls; return what that raised.

        `given` is what stands for the function that makes it, and one to be called before, or None.
        """
        try:
            make, prepare = self._read(given)
            if prepare is not None:
                prepare()
            self._object = make()
        except BaseException as error:  # also SystemExit: it is the failure of the worker, which the driver raises
            self._failure = _raised(error)._replace(in_making=True)
        self._is_made.set()
        return self._failure

    def _read(self, given: list[Any]) -> tuple[Callable[[], object], Callable[[], None] | None]:
        ray = load_ray()
        try:
            found: tuple[Callable[[], object], Callable[[], None] | None] = ray.get(given[0], timeout=_READ_S)
        except ray.exceptions.RayError as error:
            first = str(error).split("\n")[0].removeprefix("System error: ")
            raise CommError(f"a worker cannot read what it is to make: {first}. Is the code on its machine?") from error
        return found

    def call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:  # Any: of whatever method
        """Call a method; return what it returns, or what it raises as Raised."""
        if self._failure is not None:
            return self._failure
        try:
            return getattr(self._object, name)(*args, **kwargs)
        except BaseException as error:  # also SystemExit, which would end the process without a message
            return _raised(error)

    def control(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Do what `call` does, beside the calls, once the object is made."""
        self._is_made.wait()  # without a deadline: the process ends if the object is given up
        return self.call(name, *args, **kwargs)

    def watch(self) -> Raised | None:
        """Return when the object could not be made; else never: that this process has died ends the call."""
        self._is_made.wait()
        if self._failure is None:
            threading.Event().wait()
        return self._failure


def _raised(error: BaseException) -> Raised:
    """Return an error as it can be sent: one that cannot be copied cannot be sent either, and is told in words."""
    where = "".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip()
    try:
        return Raised(copy.deepcopy(error), where)
    except Exception as reason:  # copying a user's exception may raise anything; its text is sent
        return Raised(CommError(f"{type(error).__name__}: {error} (told in words: {reason})"), where)
