"""Publishers and readers of shared memory are killed and stopped at random: nothing is torn, nothing is left."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection

import pytest

from ding_like.comm.channels import Version, Weights
from ding_like.comm.weights.shared_memory import SharedMemoryPublisher, SharedMemoryReader
from tests.comm.weights.torn import is_torn, state_of
from tests.fresh_process import Fresh, start_fresh

SECONDS = 40.0
READERS = ("first", "second", "third")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def publish(pipe: Connection, folder: str, attempt: int) -> None:
    """Publish until the end; some versions are awaited, and shapes change."""
    publisher = SharedMemoryPublisher("kills", folder=folder, num_buffers=2)
    rng = random.Random(attempt)
    update = 0
    while True:
        update += 1
        state = state_of(update, 20_000 + update // 50 % 3)
        wait_s = 0.2 if rng.random() < 0.2 else None
        publisher.publish(Weights("policy", Version(attempt, update), state), wait_s=wait_s)


def read(pipe: Connection, folder: str, reader: str) -> None:
    """Read until the end, and tell of each hundred versions, and of each that is torn or older."""
    with_reader = SharedMemoryReader("kills", reader=reader, folder=folder)
    last, found = Version(0, 0), 0
    while True:
        weights = with_reader.newest("policy", newer_than=last, timeout_s=1.0)
        if weights is None:
            continue
        found += 1
        if is_torn(weights) or weights.version < last:
            pipe.send(f"{weights.version} is torn, or older than {last}")
        last = weights.version
        if found % 100 == 0:
            pipe.send(last)


def heard(readers: dict[str, Fresh]) -> Iterator[object]:
    for each in readers.values():
        while each.pipe.poll(0):
            yield each.pipe.recv()


@pytest.mark.chaos
@pytest.mark.parametrize("seed", [0, 1])
def test_nothing_is_torn_or_left_whoever_is_killed_or_stopped(seed: int, stack: ExitStack) -> None:
    rng = random.Random(seed)
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ding-"))
    attempt, told = 1, []
    publisher = start_fresh(stack, publish, folder, attempt)
    readers = {name: start_fresh(stack, read, folder, name) for name in READERS}
    pids = [publisher.process.pid]

    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        time.sleep(rng.random() * 0.5)
        told += heard(readers)
        name, what = rng.choice(READERS), rng.choice(["publisher", "reader", "stop", "nothing"])
        if what == "publisher":
            publisher.kill()
            attempt += 1
            publisher = start_fresh(stack, publish, folder, attempt)
            pids.append(publisher.process.pid)
        elif what == "reader":
            readers[name].kill()
            readers[name] = start_fresh(stack, read, folder, name)
        elif what == "stop":
            readers[name].stop()
            time.sleep(rng.random() * 0.5)
            readers[name].go_on()
        assert publisher.process.is_alive() and all(each.process.is_alive() for each in readers.values())
    time.sleep(2.0)  # for the last of them to read something
    told += heard(readers)
    for each in (publisher, *readers.values()):
        each.kill()
    SharedMemoryPublisher("other", folder=folder).close()

    assert all(isinstance(each, Version) for each in told), told
    assert {each.attempt for each in told[-3:]} <= {attempt, attempt - 1} and len(told) > 10
    assert not os.listdir(folder)
    assert not [
        name for name in os.listdir("/dev/shm") for pid in pids if name.startswith("dw_") and f"_{pid}_" in name
    ]
