"""Weights through shared memory between processes that are killed, stopped and started again."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
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
from ding_like.comm.weights.shared_rendezvous import is_alive
from ding_like.errors import CommError
from ding_like.types import Array
from tests.fresh_process import start_fresh

SOON_S = 20.0
MOMENT_S = 0.2


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


# --- what runs in other processes


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


def publish_and_stay(pipe: Connection, where: Where) -> None:
    publisher = SharedMemoryPublisher(where.name, folder=where.folder)
    publisher.publish(weights(1))
    pipe.send("published")
    with ExitStack() as stack:
        stack.callback(publisher.close)
        pipe.poll(None)


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


def fork_and_stay(pipe: Connection, where: Where, kind: str) -> None:
    """Be a reader or a publisher that has a forked child, which lives on."""
    end = (
        SharedMemoryReader(where.name, folder=where.folder, reader="there")
        if kind == "reader"
        else SharedMemoryPublisher(where.name, folder=where.folder)
    )
    child = os.fork()
    if child == 0:
        pipe.poll(None)  # until the test ends
        os._exit(0)
    pipe.send(child)
    pipe.poll(None)
    end.close()


def publish_with_little_room(pipe: Connection, where: Where) -> None:
    publisher = SharedMemoryPublisher(where.name, folder=where.folder)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    publisher.publish(weights(1))
    try:
        publisher.publish(Weights("large", Version(1, 1), {"w": torch.zeros(1_000_000)}))
    except CommError as error:
        pipe.send(str(error))
    publisher.publish(weights(2), wait_s=SOON_S)
    publisher.close()


# --- a publisher that is killed


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
    started = time.monotonic()
    assert reader.newest("policy", newer_than=Version(1, 2), timeout_s=MOMENT_S) is None
    assert MOMENT_S <= time.monotonic() - started < SOON_S / 2
    assert "has ended without closing" in caplog.text

    publisher = make_publisher(stack, where)  # another attempt takes the name over
    assert not blocks_of(pid)
    assert_whole(reader.newest("policy"), 2)
    assert publisher.publish(weights(1, attempt=2), wait_s=SOON_S) == Receipt(delivered=("here",))
    assert_whole(reader.newest("policy"), 1, attempt=2)


def test_a_reader_that_waits_is_woken_by_whoever_takes_over(stack: ExitStack, where: Where) -> None:
    child = start_fresh(stack, publish_and_stay, where)
    assert child.hear() == "published"
    late = start_fresh(stack, read_and_stay, where, "there")
    assert late.hear() == "ready"
    late.pipe.send(1)
    assert late.hear() == 1000.0
    late.pipe.send(2)

    child.kill()
    publisher = make_publisher(stack, where)
    started = time.monotonic()
    publisher.publish(weights(7))

    assert late.hear() == 7000.0
    assert time.monotonic() - started < SOON_S / 2


def test_what_a_killed_publisher_leaves_is_deleted_by_one_of_another_name(stack: ExitStack, where: Where) -> None:
    child = start_fresh(stack, publish_and_stay, where)
    assert child.hear() == "published"
    child.kill()
    assert blocks_of(child.process.pid) and where.meeting.exists()

    make_publisher(stack, where._replace(name="other"))

    assert not blocks_of(child.process.pid) and not where.meeting.exists()


def test_the_blocks_of_a_living_publisher_are_left_to_it(stack: ExitStack, where: Where) -> None:
    child = start_fresh(stack, publish_and_stay, where)
    assert child.hear() == "published"

    make_publisher(stack, where._replace(name="other"))

    assert_whole(make_reader(stack, where).newest("policy"), 1)


def test_a_killed_publishers_blocks_are_unlinked_even_if_no_other_comes(where: Where) -> None:
    """The resource tracker of its process outlives it."""
    code = (
        "import os, signal, torch\n"
        "from ding_like.comm.channels import Version, Weights\n"
        "from ding_like.comm.weights.shared_memory import SharedMemoryPublisher\n"
        f"publisher = SharedMemoryPublisher({where.name!r}, folder={where.folder!r})\n"
        "publisher.publish(Weights('policy', Version(1, 1), {'w': torch.ones(9)}))\n"
        "print(*[each for each in os.listdir('/dev/shm') if f'_{os.getpid()}_' in each], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )

    # Its tracker has the same standard error, which ends with it.
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert done.returncode == -signal.SIGKILL and done.stdout.startswith("dw_")
    assert not Path("/dev/shm", done.stdout.strip()).exists()
    SharedMemoryPublisher(where.name, folder=where.folder).close()  # its folder is left, of some hundred bytes
    assert not where.meeting.exists()


# --- readers


def test_a_killed_reader_is_named_at_once_and_blocks_nobody(stack: ExitStack, where: Where) -> None:
    publisher = make_publisher(stack, where)
    child = start_fresh(stack, read_and_stay, where, "there")
    assert child.hear() == "ready"
    reader = make_reader(stack, where)
    assert set(publisher.publish(weights(1), wait_s=SOON_S).delivered) == {"here", "there"}

    child.kill()
    started = time.monotonic()

    assert publisher.publish(weights(2), wait_s=SOON_S) == Receipt(("here",), ("there",))
    assert publisher.publish(weights(3)) == Receipt(failed=("there",))
    assert time.monotonic() - started < SOON_S / 2
    assert_whole(reader.newest("policy"), 3)
    again = start_fresh(stack, read_and_stay, where, "there")
    assert again.hear() == "ready"
    assert set(publisher.publish(weights(4), wait_s=SOON_S).delivered) == {"here", "there"}
    again.pipe.send(4)
    assert again.hear() == 4000.0


def test_a_reader_that_is_killed_while_it_is_awaited_ends_the_wait(stack: ExitStack, where: Where) -> None:
    publisher = make_publisher(stack, where)
    child = start_fresh(stack, read_and_stay, where, "there")
    assert child.hear() == "ready"
    child.stop()
    with subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -9 {child.process.pid}"]) as killer:
        started = time.monotonic()

        receipt = publisher.publish(weights(1), wait_s=SOON_S)

        assert receipt == Receipt(failed=("there",)) and 0.1 < time.monotonic() - started < SOON_S / 2
        killer.wait(SOON_S)


def test_a_stopped_reader_costs_the_wait_and_no_more_and_has_the_newest_when_it_goes_on(
    stack: ExitStack, where: Where
) -> None:
    publisher = make_publisher(stack, where)
    child = start_fresh(stack, read_and_stay, where, "there")
    assert child.hear() == "ready"
    assert publisher.publish(weights(1), wait_s=SOON_S).delivered

    child.stop()
    started = time.monotonic()
    receipt = publisher.publish(weights(2), wait_s=MOMENT_S)
    waited = time.monotonic() - started
    started = time.monotonic()
    for update in range(3, 1000):  # more words than its socket has room for
        publisher.publish(weights(update))
    unawaited = time.monotonic() - started
    child.go_on()

    assert receipt == Receipt(failed=("there",)) and MOMENT_S <= waited < SOON_S / 2 and unawaited < SOON_S / 2
    child.pipe.send(999)
    assert child.hear() == 999_000.0
    assert publisher.publish(weights(1000), wait_s=SOON_S) == Receipt(delivered=("there",))


def test_a_reader_that_goes_on_while_it_is_awaited_answers(stack: ExitStack, where: Where) -> None:
    publisher = make_publisher(stack, where)
    child = start_fresh(stack, read_and_stay, where, "there")
    assert child.hear() == "ready"
    assert publisher.publish(weights(1), wait_s=SOON_S).delivered
    child.stop()
    for update in range(2, 1000):  # its socket is full, so it cannot even be asked
        publisher.publish(weights(update))

    with subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -CONT {child.process.pid}"]) as waker:
        receipt = publisher.publish(weights(1000), wait_s=SOON_S)
        waker.wait(SOON_S)

    assert receipt == Receipt(delivered=("there",))


def test_a_stopped_reader_that_too_many_have_called_is_tried_again(stack: ExitStack, where: Where) -> None:
    publisher = make_publisher(stack, where)
    child = start_fresh(stack, read_and_stay, where, "there")
    assert child.hear() == "ready"
    child.stop()
    (address,) = where.meeting.glob("*.sock")
    for _ in range(20):
        assert is_alive(str(address))

    assert publisher.publish(weights(1), wait_s=MOMENT_S) == Receipt(failed=("there",))
    child.go_on()
    child.pipe.send(1)
    assert child.hear() == 1000.0

    # Those calls may still wait to be taken: the reader fails until there is room for another one.
    deadline, update = time.monotonic() + SOON_S, 2
    while publisher.publish(weights(update), wait_s=SOON_S) != Receipt(delivered=("there",)):
        assert time.monotonic() < deadline, "the reader is not tried again"
        update += 1


def test_a_reader_that_ends_takes_no_block_with_it(stack: ExitStack, where: Where) -> None:
    """Before Python 3.13 the resource tracker of a process that only attached a block would unlink it."""
    publisher = make_publisher(stack, where)
    publisher.publish(weights(1))
    code = (
        "from ding_like.comm.weights.shared_memory import SharedMemoryReader\n"
        f"reader = SharedMemoryReader({where.name!r}, folder={where.folder!r}, reader='there')\n"
        "print(float(reader.newest('policy').state['w'].sum()))\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stdout, done.stderr) == (0, "1000.0\n", "")
    assert_whole(make_reader(stack, where).newest("policy"), 1)


# --- forked children, and a full disk


def test_a_forked_child_does_not_keep_a_killed_reader_alive(stack: ExitStack, where: Where) -> None:
    publisher = make_publisher(stack, where)
    child = start_fresh(stack, fork_and_stay, where, "reader")
    stack.callback(os.kill, child.hear(), signal.SIGKILL)
    assert publisher.publish(weights(1), wait_s=SOON_S) == Receipt(delivered=("there",))

    child.kill()
    started = time.monotonic()

    assert publisher.publish(weights(2), wait_s=SOON_S) == Receipt(failed=("there",))
    assert time.monotonic() - started < SOON_S / 2


def test_a_forked_child_does_not_keep_a_killed_publishers_name(stack: ExitStack, where: Where) -> None:
    child = start_fresh(stack, fork_and_stay, where, "publisher")
    stack.callback(os.kill, child.hear(), signal.SIGKILL)

    child.kill()

    assert make_publisher(stack, where).publish(weights(1)) == Receipt()


def test_a_process_that_may_not_have_so_much_memory_gets_an_error_and_goes_on(stack: ExitStack, where: Where) -> None:
    reader = make_reader(stack, where)
    child = start_fresh(stack, publish_with_little_room, where)

    assert "cannot be made: " in child.hear()
    assert_whole(reader.newest("policy", newer_than=Version(1, 1), timeout_s=SOON_S), 2)
    child.join()
    assert child.process.exitcode == 0
