"""Set what Ray reads from the environment, and put it back; and what Ray changes in this process besides."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ding_like.comm.ray.leftovers import MARK
from ding_like.utils.process_end import skip_finalisation

_ALSO = (MARK, "PYTHONBREAKPOINT")  # ray.init sets the second


class RayEnvironment:
    """Hold the variables of the environment that Ray reads or sets, as they were, until `restore`."""

    def __init__(self) -> None:
        self._before = _of_ray()

    def set(self, ray: Any, variables: Mapping[str, str | None]) -> None:  # Any: the module ray
        """Set variables, take those that are None off, and have Ray read its mode and token again."""
        for name, value in variables.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        # Ray reads both once, and has them for good: another cluster in the same process has another token.
        ray._raylet.Config.initialize("")
        ray._raylet.AuthenticationTokenLoader.instance().reset_cache()

    def restore(self) -> None:
        """Put all variables of Ray's back; a second call does nothing more."""
        for name in _of_ray().keys() - self._before.keys():
            del os.environ[name]
        os.environ.update(self._before)


def _of_ray() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("RAY_") or name in _ALSO}


@contextmanager
def kept_signals() -> Iterator[None]:
    """Put the handler of SIGTERM back at the end: `ray.init` takes it, and a run that is asked to leave saves first.

    What is started meanwhile does not get SIGTERM, as Ray itself sees to with SIGINT: one that is sent to all processes
    of a run would else end the cluster before the run, which still has to end its workers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextmanager
def without_attempts() -> Iterator[None]:
    """Leave out what Ray's own code writes to standard error for each attempt to connect; the rest is written after."""
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)
            os.close(before)
            file.seek(0)
            sys.stderr.write("".join(line.decode(errors="replace") for line in file if b"gcs_client.cc" not in line))


def end_connection(ray: Any, *, timeout_s: float) -> bool:  # Any: the module ray
    """Call `ray.shutdown` in a thread, as it does not return where the cluster is lost; tell whether it did in time."""
    thread = threading.Thread(target=ray.shutdown, name="ray-shutdown", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        # Else the end of the process would wait for it.
        atexit.unregister(ray.shutdown)
        # Threads of Ray's that outlive the interpreter have crashed the process.
        skip_finalisation()
    return not thread.is_alive()
