"""Weights through shared memory between processes that are killed, stopped and started again."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from ding_like.comm.channels import Receipt, Version, Weights
from ding_like.comm.weights.encode import Layout
from ding_like.comm.weights.shared_memory import SharedMemoryPublisher, SharedMemoryReader
from ding_like.types import Array
from tests.fresh_process import start_fresh

SOON_S = 60.0
MOMENT_S = 0.2


pytestmark = pytest.mark.slow


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class Where(NamedTuple):
    """Hold a name, and a folder of the test's own: publishers of other tests would sweep what is left there."""

    name: str
    folder: str

    @property
    def meeting(self) -> Path:
        return Path(self.folder, f"ding-weights-{os.getuid()}", self.name)


@pytest.fixture
def where(stack: ExitStack) -> Where:
    # Not tmp_path, which is too long for a socket.
    return Where("weights", stack.enter_context(tempfile.TemporaryDirectory(prefix="ding-")))


def weights(update: int, *, attempt: int = 1) -> Weights:
    return Weights("policy", Version(attempt, update), {"w": torch.full((1000,), float(update))})


def assert_whole(found: Weights | None, update: int, *, attempt: int = 1) -> None:
    assert found is not None and found.version == Version(attempt, update)
    assert torch.equal(found.state["w"], torch.full((1000,), float(update)))


def make_publisher(stack: ExitStack, where: Where) -> SharedMemoryPublisher:
    publisher = SharedMemoryPublisher(where.name, folder=where.folder)
    stack.callback(publisher.close)
    return publisher


def make_reader(stack: ExitStack, where: Where) -> SharedMemoryReader:
    reader = SharedMemoryReader(where.name, folder=where.folder, reader="here")
    stack.callback(reader.close)
    return reader


def blocks_of(pid: int | None) -> list[str]:
    return [name for name in os.listdir("/dev/shm") if name.startswith("dw_") and f"_{pid}_" in name]


def publish_and_die(pipe: Connection, where: Where) -> None:
    """Publish two versions, and be killed in the middle of the third."""
    publisher = SharedMemoryPublisher(where.name, folder=where.folder)
    for update in (1, 2):
        publisher.publish(weights(update))
    write = Layout.write

    def die_half_way(self: Layout, state: dict[str, torch.Tensor], into: Array) -> None:
        half = into.copy()
        write(self, state, half)
        into[: len(half) // 2] = half[: len(half) // 2]
        os.kill(os.getpid(), signal.SIGKILL)

    pipe.send("published")
    pipe.recv()
    Layout.write = die_half_way  # type: ignore[method-assign, assignment]
    publisher.publish(weights(3))


def read_and_stay(pipe: Connection, where: Where, reader: str) -> None:
    """Read, and tell what was read when asked for a version."""
    with_reader = SharedMemoryReader(where.name, folder=where.folder, reader=reader)
    pipe.send("ready")
    try:
        while True:
            update = pipe.recv()
            found = with_reader.newest("policy", newer_than=Version(1, update - 1), timeout_s=SOON_S)
            pipe.send(found and float(found.state["w"].sum()))
    except EOFError:
        with_reader.close()


def test_a_publisher_that_is_killed_in_the_middle_of_a_write_leaves_the_version_before(
    stack: ExitStack, where: Where, caplog: pytest.LogCaptureFixture
) -> None:
    reader = make_reader(stack, where)
    child = start_fresh(stack, publish_and_die, where)
    assert child.hear() == "published"
    pid = child.process.pid

    child.pipe.send("die")
    child.join()

    assert child.process.exitcode == -signal.SIGKILL and blocks_of(pid)
    assert_whole(reader.newest("policy"), 2)
    assert reader.newest("policy", newer_than=Version(1, 2), timeout_s=MOMENT_S) is None
    assert "has ended without closing" in caplog.text

    publisher = make_publisher(stack, where)  # another attempt takes the name over
    assert not blocks_of(pid)
    assert_whole(reader.newest("policy"), 2)
    assert publisher.publish(weights(1, attempt=2), wait_s=SOON_S) == Receipt(delivered=("here",))
    assert_whole(reader.newest("policy"), 1, attempt=2)


def test_a_killed_reader_is_named_at_once_and_blocks_nobody(stack: ExitStack, where: Where) -> None:
    publisher = make_publisher(stack, where)
    child = start_fresh(stack, read_and_stay, where, "there")
    assert child.hear() == "ready"
    reader = make_reader(stack, where)
    assert set(publisher.publish(weights(1), wait_s=SOON_S).delivered) == {"here", "there"}

    child.kill()

    assert publisher.publish(weights(2), wait_s=SOON_S) == Receipt(("here",), ("there",))
    assert publisher.publish(weights(3)) == Receipt(failed=("there",))
    assert_whole(reader.newest("policy"), 3)
    again = start_fresh(stack, read_and_stay, where, "there")
    assert again.hear() == "ready"
    assert set(publisher.publish(weights(4), wait_s=SOON_S).delivered) == {"here", "there"}
    again.pipe.send(4)
    assert again.hear() == 4000.0
