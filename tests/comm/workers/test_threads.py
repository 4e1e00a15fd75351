"""A host of threads leaves none behind, and says which it could not end."""

from __future__ import annotations

import logging
import threading

import numpy as np
import pytest
import torch

from ding_like.comm.workers.host import Resources
from ding_like.comm.workers.threads import ThreadHost

SOON_S = 60.0
MOMENT_S = 0.05


class Waiter:
    def __init__(self) -> None:
        self.free = threading.Event()
        self.begun = threading.Event()
        self.given: list[object] = []

    def hold(self) -> bool:
        self.begun.set()
        return self.free.wait(SOON_S)

    def take(self, *args: object, **kwargs: object) -> None:
        self.given += [*args, *kwargs.values()]


def own_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("mine")]


def test_a_method_that_does_not_return_is_named_and_its_thread_ends_with_it(caplog: pytest.LogCaptureFixture) -> None:
    host, waiter = ThreadHost(), Waiter()
    worker = host.start(lambda: waiter, name="mine", resources=Resources())
    worker.call("hold")
    assert waiter.begun.wait(SOON_S)

    with caplog.at_level(logging.WARNING):
        host.close(timeout_s=MOMENT_S)

    assert "mine" in caplog.text and own_threads() == ["mine"]
    waiter.free.set()
    host.close(timeout_s=SOON_S)
    assert own_threads() == []


def test_a_killed_worker_does_nothing_more_when_its_method_returns() -> None:
    host, waiter = ThreadHost(), Waiter()
    worker = host.start(lambda: waiter, name="mine", resources=Resources())
    worker.call("hold")
    worker.call("take", "later")
    assert waiter.begun.wait(SOON_S)
    host.kill(worker)
    waiter.free.set()
    host.close(timeout_s=SOON_S)

    assert waiter.given == [] and own_threads() == []


def test_what_is_given_is_not_copied_and_what_is_shared_is_copied_once() -> None:
    host, waiters = ThreadHost(), [Waiter(), Waiter()]
    workers = [
        host.start(lambda own=own: own, name=f"mine{number}", resources=Resources())  # type: ignore[misc]
        for number, own in enumerate(waiters)
    ]
    given, value = np.ones(3), {"parts": [(np.ones(3), torch.ones(2))], "number": 5}
    shared = host.share(value)
    calls = [worker.call("take", given, value=shared) for worker in workers]
    while host.wait(calls, timeout_s=SOON_S) != calls:
        pass
    host.close()

    (first, one), (second, other) = waiters[0].given, waiters[1].given
    assert first is given and second is given
    assert one is other and one is not value
    array, tensor = one["parts"][0]  # type: ignore[index]
    assert not array.flags.writeable and array is not value["parts"][0][0]  # type: ignore[index]
    assert torch.equal(tensor, torch.ones(2)) and tensor is not value["parts"][0][1]  # type: ignore[index]
