"""End workers: let them stop by themselves, then kill them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from ding_like.comm.workers.host import Call, Host, WorkerHandle, WorkerLostError
from ding_like.errors import CommError

_MOMENT_S = 1.0

_logger = logging.getLogger(__name__)


def end_workers(
    host: Host, workers: Sequence[WorkerHandle], *, timeout_s: float, starting: Sequence[WorkerHandle] = ()
) -> None:
    """Call `stop` of every worker, wait for half of the time until they have, and kill them.

    Those that are still `starting` have done nothing yet and are waited for a moment only.
    """
    begun_s = time.monotonic()
    with suppress(CommError):  # a host that is lost has no workers
        if timeout_s > 0:
            calls = [[worker.call("stop") for worker in group] for group in (workers, starting)]
            for group, most_s in zip(calls, (timeout_s / 2, min(timeout_s / 2, _MOMENT_S)), strict=True):
                _await_all(host, group, begun_s + most_s)
    for worker in (*workers, *starting):
        with suppress(CommError):
            host.kill(worker)


def _await_all(host: Host, pending: Sequence[Call], deadline_s: float) -> None:
    while pending and (left_s := deadline_s - time.monotonic()) > 0:
        done = host.wait(pending, timeout_s=left_s)
        pending = [call for call in pending if call not in done]
        for call in done:
            _say_if_failed(call)


def _say_if_failed(stop: Call) -> None:
    try:
        stop.result()
    except WorkerLostError:
        pass  # it has ended, as it should
    except Exception as error:  # a worker's code may raise anything; the others are stopped too
        name, kind = stop.worker.name, type(error).__name__
        _logger.warning("%s did not stop by itself (%s: %s) and is killed.", name, kind, error)


def join_threads(threads: Iterable[threading.Thread], deadline_s: float) -> None:
    """Wait for the end of threads, but for this one, until a time of the monotonic clock; name those that go on."""
    for thread in threads:
        if thread.is_alive() and thread is not threading.current_thread():
            thread.join(max(deadline_s - time.monotonic(), 0.0))
            if thread.is_alive():
                _logger.warning("thread '%s' still waits for the end of its worker.", thread.name)
