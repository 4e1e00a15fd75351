"""Weights through shared memory: what publishers and readers see of each other, in one process."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from ding_like.comm.channels import Receipt, Version, Weights
from ding_like.comm.weights.shared_memory import SharedMemoryPublisher, SharedMemoryReader
from ding_like.errors import CommError

SOON_S = 60.0
_numbers = itertools.count()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def name() -> str:
    return f"test-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def publish_as(stack: ExitStack, name: str) -> Callable[..., SharedMemoryPublisher]:
    def make(**settings: object) -> SharedMemoryPublisher:
        publisher = SharedMemoryPublisher(name, **settings)  # type: ignore[arg-type]
        stack.callback(publisher.close)
        return publisher

    return make


@pytest.fixture
def read_as(stack: ExitStack, name: str) -> Callable[[str], SharedMemoryReader]:
    def make(reader: str) -> SharedMemoryReader:
        made = SharedMemoryReader(name, reader=reader)
        stack.callback(made.close)
        return made

    return make


def weights(update: int, *, size: int = 100, attempt: int = 1, policy_id: str = "policy") -> Weights:
    state = {"w": torch.full((size,), float(update)), "n": torch.tensor([update, attempt])}
    return Weights(policy_id, Version(attempt, update), state)


def assert_equal(found: Weights | None, expected: Weights) -> None:
    assert found is not None and found[:2] == expected[:2]
    assert found.state.keys() == expected.state.keys()
    assert all(torch.equal(found.state[name], tensor) for name, tensor in expected.state.items())


def folder_of(name: str) -> Path:
    return Path(tempfile.gettempdir(), f"ding-weights-{os.getuid()}", name)


def own_blocks() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if name.startswith("dw_") and f"_{os.getpid()}_" in name}


def test_a_reader_may_come_before_its_publisher(publish_as, read_as) -> None:
    reader = read_as("early")
    publisher = publish_as()

    receipt = publisher.publish(weights(1), wait_s=SOON_S)

    assert receipt == Receipt(delivered=("early",))
    assert_equal(reader.newest("policy"), weights(1))


def test_closing_gives_readers_the_last_version(publish_as, read_as) -> None:
    publisher, reader = publish_as(), read_as("reader")
    publisher.publish(weights(1))
    publisher.publish(weights(2, policy_id="other"))

    publisher.close()

    assert_equal(reader.newest("policy"), weights(1))
    assert_equal(reader.newest("other"), weights(2, policy_id="other"))


def test_readers_follow_to_other_shapes_and_the_old_block_goes(publish_as, read_as) -> None:
    publisher, reader = publish_as(), read_as("reader")

    for update, size in enumerate((100, 3000, 3000, 0, 50), 1):
        publisher.publish(weights(update, size=size), wait_s=SOON_S)

        assert_equal(reader.newest("policy"), weights(update, size=size))
        assert len(own_blocks()) == 1


def test_names_of_living_readers_and_publishers_are_taken(publish_as, read_as) -> None:
    publisher, reader = publish_as(), read_as("reader")

    with pytest.raises(CommError, match="another process reads the weights"):
        read_as("reader")
    with pytest.raises(CommError, match="another process publishes weights"):
        publish_as()

    assert publisher.publish(weights(1), wait_s=SOON_S).delivered == ("reader",)
    assert_equal(reader.newest("policy"), weights(1))


def test_a_new_publisher_takes_the_name_over_and_is_followed(publish_as, read_as) -> None:
    reader = read_as("reader")
    for attempt in (1, 2, 3):
        publisher = publish_as()
        assert publisher.publish(weights(10 - attempt, attempt=attempt), wait_s=SOON_S).delivered == ("reader",)
        publisher.close()

        assert_equal(reader.newest("policy"), weights(10 - attempt, attempt=attempt))


def test_a_reader_never_goes_back_to_an_older_version(publish_as, read_as) -> None:
    reader, first = read_as("reader"), publish_as()
    first.publish(weights(5), wait_s=SOON_S)
    first.close()

    publish_as().publish(weights(4), wait_s=SOON_S)

    assert_equal(reader.newest("policy"), weights(5))


def test_nothing_is_left_when_all_have_closed(publish_as, read_as, name: str) -> None:
    publisher, reader = publish_as(), read_as("reader")
    publisher.publish(weights(1), wait_s=SOON_S)
    assert own_blocks() and folder_of(name).is_dir()

    publisher.close()
    assert not own_blocks()
    reader.close()
    reader.close()

    assert not folder_of(name).exists()


def test_weights_for_some_readers_are_left_alone_by_the_others(publish_as, read_as) -> None:
    publisher, first, second = publish_as(checksum=True), read_as("first"), read_as("second")
    publisher.publish(weights(1))

    receipt = publisher.publish(weights(2), to=["first", "nobody"], wait_s=SOON_S)

    assert receipt == Receipt(delivered=("first",), failed=("nobody",))
    assert_equal(first.newest("policy"), weights(2))
    assert_equal(second.newest("policy"), weights(1))
    assert publisher.publish(weights(3), to=["second"]) == Receipt()
    assert_equal(first.newest("policy"), weights(2))
    assert_equal(second.newest("policy"), weights(3))
    assert publisher.publish(weights(3), to=["first"]).skipped == ("first",)
    assert publisher.publish(weights(4), to=[]) == Receipt()
    assert_equal(second.newest("policy"), weights(3))
    publisher.close()
    assert_equal(first.newest("policy"), weights(2))


def test_versions_that_somebody_holds_stay_as_they_are(publish_as, read_as) -> None:
    publisher, reader = publish_as(), read_as("reader")
    held = []
    for update in range(1, 9):
        publisher.publish(weights(update))
        found = reader.newest("policy")
        assert found is not None
        held.append(found.state["w"][50:].numpy() if update % 2 else found.state["w"].view(10, 10)[5:])
        del found

    assert [float(each.sum()) for each in held] == [50.0 * update for update in range(1, 9)]


def test_a_folder_that_others_may_use_is_refused(name: str, stack: ExitStack) -> None:
    folder = stack.enter_context(tempfile.TemporaryDirectory())  # a test's own has too long a path for sockets
    own = Path(folder, f"ding-weights-{os.getuid()}")
    own.mkdir()
    own.chmod(0o777)

    with pytest.raises(CommError, match="this user alone"):
        SharedMemoryPublisher(name, folder=folder)
    with pytest.raises(CommError, match="this user alone"):
        SharedMemoryReader(name, reader="r", folder=folder)
