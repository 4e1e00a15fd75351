"""Set a process up for training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits


@contextmanager
def training_process(*, num_threads: int = 1) -> Iterator[None]:
    """Set torch and numpy up for training, and back again: one thread unless told otherwise, no denormal numbers.

    Small matrices gain nothing from a second thread, and on a busy machine numpy's threads wait for each other, which
    was seen to cost 200 times. Adam's moments become denormal on the CPU, which costs up to 30 times.
    """
    threads = torch.get_num_threads()
    # torch has no getter: a denormal number that survives tells.
    flushed = bool((torch.full((), 1e-40) * 1.0) == 0)
    try:
        with _set_up(num_threads):
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(flushed)


def prepare_worker() -> None:
    """Set a worker's process up as `training_process` does, until it ends; call it in the thread that computes."""
    _set_up(1)


def _set_up(num_threads: int) -> threadpool_limits:
    """Set torch and numpy up; denormal numbers are a setting of this thread and those that it starts."""
    torch.set_num_threads(num_threads)
    torch.set_flush_denormal(True)
    return threadpool_limits(num_threads)
