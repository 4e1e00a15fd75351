"""What workers are told is acknowledged by all that live."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ding_like.comm.workers.acknowledged import acknowledged
from ding_like.comm.workers.host import Resources, WorkerHandle
from ding_like.comm.workers.threads import ThreadHost
from ding_like.errors import CommError


class Told:
    gate = threading.Event()

    def set(self, name: str, value: float) -> bool:
        if name == "waits":
            self.gate.wait(60.0)
        if name == "fails":
            raise ValueError(name)
        return name == "lr"


@pytest.fixture
def workers() -> Iterator[list[WorkerHandle]]:
    host = ThreadHost()
    Told.gate.clear()
    yield [host.start(Told, name=f"told{i}", resources=Resources()) for i in range(3)]
    Told.gate.set()
    host.close()


def test_all_have_it_or_not(workers: list[WorkerHandle]) -> None:
    assert acknowledged(workers, "set", "lr", 0.1)
    assert not acknowledged(workers, "set", "nothing", 0.1)
    assert acknowledged([], "set", "lr", 0.1)


def test_what_one_raises_is_raised(workers: list[WorkerHandle]) -> None:
    with pytest.raises(ValueError, match="fails"):
        acknowledged(workers, "set", "fails", 0.1)


def test_those_who_do_not_answer_are_named(workers: list[WorkerHandle]) -> None:
    with pytest.raises(CommError, match=r"3 of 3 workers have not answered 'set' within 0\.05 s: told0, told1, told2"):
        acknowledged(workers, "set", "waits", 0.1, timeout_s=0.05)
