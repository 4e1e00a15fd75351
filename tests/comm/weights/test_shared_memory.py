"""Weights through shared memory: what publishers and readers see of each other, in one process."""

from __future__ import annotations

import itertools
import json
import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from ding_like.comm.channels import Receipt, Version, Weights
from ding_like.comm.weights import shared_folder
from ding_like.comm.weights.shared_memory import SharedMemoryPublisher, SharedMemoryReader
from ding_like.errors import CommError
from ding_like.utils.files import is_full

SOON_S = 10.0
MOMENT_S = 0.05
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


def test_a_reader_that_comes_late_has_the_newest_at_once(publish_as, read_as) -> None:
    publisher = publish_as()
    for update in (1, 2):
        publisher.publish(weights(update))

    assert_equal(read_as("late").newest("policy"), weights(2))


def test_a_reader_may_come_before_its_publisher(publish_as, read_as) -> None:
    reader = read_as("early")
    publisher = publish_as()

    receipt = publisher.publish(weights(1), wait_s=SOON_S)

    assert receipt == Receipt(delivered=("early",))
    assert_equal(reader.newest("policy"), weights(1))


def test_policies_are_kept_apart(publish_as, read_as) -> None:
    publisher, reader = publish_as(), read_as("reader")
    publisher.publish(weights(7, policy_id="league/a b"))
    publisher.publish(weights(3, policy_id="Ünï"))

    assert_equal(reader.newest("league/a b"), weights(7, policy_id="league/a b"))
    assert_equal(reader.newest("Ünï"), weights(3, policy_id="Ünï"))
    assert reader.newest("policy") is None


def test_without_a_wait_nobody_is_asked_and_nothing_copied_until_somebody_looks(
    publish_as, read_as, monkeypatch
) -> None:
    publisher, reader = publish_as(), read_as("reader")
    publisher.publish(weights(1), wait_s=SOON_S)
    copies = []
    monkeypatch.setattr(
        "ding_like.comm.weights.shared_block._copied", lambda body, spare: copies.append(1) or body.copy()
    )

    receipts = [publisher.publish(weights(update)) for update in range(2, 50)]

    assert set(receipts) == {Receipt()}
    assert_equal(reader.newest("policy", newer_than=Version(1, 1), timeout_s=SOON_S), weights(49))
    assert len(copies) == 1


def test_who_was_awaited_has_weights_of_its_own(publish_as, read_as) -> None:
    publisher, readers = publish_as(), [read_as(f"reader-{each}") for each in range(3)]

    receipt = publisher.publish(weights(1), wait_s=SOON_S)

    assert set(receipt.delivered) == {"reader-0", "reader-1", "reader-2"} and not receipt.failed
    for update in range(2, 9):
        publisher.publish(weights(update))
    publisher.close()
    for reader in readers:
        assert_equal(reader.newest("policy"), weights(8))


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


def test_a_reader_that_slept_through_other_shapes_finds_the_newest(publish_as, read_as) -> None:
    publisher, reader = publish_as(), read_as("reader")
    publisher.publish(weights(1), wait_s=SOON_S)

    for update in range(2, 40):
        publisher.publish(weights(update, size=update % 2))

    assert_equal(reader.newest("policy"), weights(39, size=1))


def test_a_block_that_is_replaced_while_a_reader_attaches_is_followed(publish_as, read_as, monkeypatch) -> None:
    publisher, reader = publish_as(), read_as("reader")
    publisher.publish(weights(1))
    blocks, replaced = shared_folder.Meeting.blocks, []

    def slowly(meeting: shared_folder.Meeting, known: shared_folder.Blocks | None) -> shared_folder.Blocks | None:
        said = blocks(meeting, known)
        if not replaced:
            replaced.append(publisher.publish(weights(2, size=5)))
        return said

    monkeypatch.setattr(shared_folder.Meeting, "blocks", slowly)

    assert_equal(reader.newest("policy"), weights(2, size=5))
    assert replaced


def test_a_state_without_numbers_arrives(publish_as, read_as) -> None:
    publisher, reader = publish_as(), read_as("reader")
    nothing = weights(1)._replace(state={"nothing": torch.zeros(0)})

    assert publisher.publish(nothing, wait_s=SOON_S).delivered

    assert_equal(reader.newest("policy"), nothing)


def test_parameters_in_bfloat16_come_back_as_float32(publish_as, read_as) -> None:
    publisher, reader = publish_as(dtype="bfloat16"), read_as("reader")
    sent = weights(1)._replace(state={"w": torch.linspace(0, 1, 50), "n": torch.tensor([2**40])})

    publisher.publish(sent)

    found = reader.newest("policy")
    assert found is not None and torch.equal(found.state["n"], sent.state["n"])
    assert torch.equal(found.state["w"], sent.state["w"].bfloat16().float())


def test_weights_with_a_checksum_arrive(publish_as, read_as) -> None:
    publisher, reader = publish_as(checksum=True), read_as("reader")

    assert publisher.publish(weights(1), wait_s=SOON_S).delivered

    assert_equal(reader.newest("policy"), weights(1))


def test_a_reader_that_has_closed_is_named_no_more(publish_as, read_as) -> None:
    publisher, first, _ = publish_as(), read_as("first"), read_as("second")
    assert set(publisher.publish(weights(1), wait_s=SOON_S).delivered) == {"first", "second"}

    first.close()

    assert publisher.publish(weights(2), wait_s=SOON_S) == Receipt(delivered=("second",))


def test_a_reader_may_come_back_under_its_name(publish_as, read_as) -> None:
    publisher = publish_as()
    for update in range(1, 6):
        reader = read_as("reader")

        assert publisher.publish(weights(update), wait_s=SOON_S) == Receipt(delivered=("reader",))

        assert_equal(reader.newest("policy"), weights(update))
        reader.close()


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


def test_threads_of_one_process_may_share_a_reader(publish_as, read_as) -> None:
    publisher, reader = publish_as(), read_as("reader")
    found: list[Weights | None] = []
    threads = [
        threading.Thread(target=lambda: found.append(reader.newest("policy", timeout_s=SOON_S))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()

    publisher.publish(weights(1))

    for thread in threads:
        thread.join(SOON_S)
    assert len(found) == 4
    for each in found:
        assert_equal(each, weights(1))


def test_a_waiting_reader_does_not_wait_on_when_it_is_closed(read_as) -> None:
    reader = read_as("reader")
    closing = threading.Timer(MOMENT_S, reader.close)
    closing.start()
    started = time.monotonic()

    with pytest.raises(CommError, match="after the reader was closed"):
        reader.newest("policy", timeout_s=SOON_S)

    assert time.monotonic() - started < SOON_S / 2
    closing.join(SOON_S)


def test_nothing_is_left_when_all_have_closed(publish_as, read_as, name: str) -> None:
    publisher, reader = publish_as(), read_as("reader")
    publisher.publish(weights(1), wait_s=SOON_S)
    assert own_blocks() and folder_of(name).is_dir()

    publisher.close()
    assert not own_blocks()
    reader.close()
    reader.close()

    assert not folder_of(name).exists()


def test_a_full_dev_shm_is_an_error_and_readers_keep_what_they_have(publish_as, read_as, monkeypatch) -> None:
    publisher, reader = publish_as(), read_as("reader")
    publisher.publish(weights(1), wait_s=SOON_S)

    def refuse(descriptor: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", refuse)
        for _ in range(2):
            with pytest.raises(CommError, match="--shm-size") as caught:
                publisher.publish(weights(2, size=1000))
            assert caught.value.__cause__ is not None and is_full(caught.value.__cause__)
        assert_equal(reader.newest("policy"), weights(1))
        assert len(own_blocks()) == 1

    assert publisher.publish(weights(2, size=1000), wait_s=SOON_S).delivered
    assert_equal(reader.newest("policy"), weights(2, size=1000))


def test_weights_that_cannot_travel_leave_the_version_before(publish_as, read_as) -> None:
    publisher, reader = publish_as(), read_as("reader")
    publisher.publish(weights(1))

    with pytest.raises(CommError, match="complex64"):
        publisher.publish(weights(2)._replace(state={"w": torch.ones(2, dtype=torch.complex64)}))

    assert_equal(reader.newest("policy"), weights(1))
    assert publisher.publish(weights(2), wait_s=SOON_S).delivered


@pytest.mark.parametrize("checksum", [False, True])
def test_weights_for_some_readers_are_left_alone_by_the_others(publish_as, read_as, checksum: bool) -> None:
    publisher, first, second = publish_as(checksum=checksum), read_as("first"), read_as("second")
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


def test_more_names_than_there_is_room_for_are_an_error_and_leave_the_version_before(publish_as, read_as) -> None:
    publisher, reader = publish_as(), read_as("reader")
    publisher.publish(weights(1))

    with pytest.raises(CommError, match="to 1000 readers by name"):
        publisher.publish(weights(2), to=[f"reader-{each}" for each in range(1000)])

    assert_equal(reader.newest("policy"), weights(1))


def test_memory_of_a_version_that_nobody_holds_is_used_again(publish_as, read_as) -> None:
    publisher, reader = publish_as(), read_as("reader")
    places = []
    for update in range(1, 7):
        publisher.publish(weights(update), wait_s=SOON_S)
        found = reader.newest("policy")
        assert_equal(found, weights(update))
        places.append(found.state["w"].data_ptr())
        del found

    assert len(set(places)) == 2  # one is read while the reader still holds the other


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


@pytest.mark.parametrize("wrong", ["", "a/b", "..", ".hidden", "a b", "ü"])
def test_names_that_are_no_file_names_are_refused(wrong: str) -> None:
    with pytest.raises(CommError, match="expected letters"):
        SharedMemoryPublisher(wrong)
    with pytest.raises(CommError, match="expected letters"):
        SharedMemoryReader("fine", reader=wrong)


def test_a_path_that_is_too_long_for_a_socket_is_an_error_that_says_so(name: str) -> None:
    with pytest.raises(CommError, match="too long for a socket"):
        SharedMemoryReader(name, reader="r" * 100)


def test_one_buffer_is_refused(name: str) -> None:
    with pytest.raises(CommError, match="num_buffers is 1"):
        SharedMemoryPublisher(name, num_buffers=1)


def test_a_folder_that_others_may_use_is_refused(name: str, stack: ExitStack) -> None:
    folder = stack.enter_context(tempfile.TemporaryDirectory())  # a test's own has too long a path for sockets
    own = Path(folder, f"ding-weights-{os.getuid()}")
    own.mkdir()
    own.chmod(0o777)

    with pytest.raises(CommError, match="this user alone"):
        SharedMemoryPublisher(name, folder=folder)
    with pytest.raises(CommError, match="this user alone"):
        SharedMemoryReader(name, reader="r", folder=folder)


@pytest.mark.parametrize(
    "said",
    [b"", b"{", b"[]", b"null", b'{"form": 2, "blocks": {}}', b'{"form": 1, "blocks": {"policy": ["../x", {}]}}'],
)
def test_garbage_in_place_of_the_announcement_is_an_error(said: bytes, publish_as, read_as, name: str) -> None:
    publisher, reader = publish_as(), read_as("reader")
    publisher.publish(weights(1))
    (folder_of(name) / "blocks.json").write_bytes(said)

    with pytest.raises(CommError):
        reader.newest("policy", timeout_s=SOON_S)
    assert publisher.publish(weights(2), wait_s=SOON_S) == Receipt(failed=("reader",))


def test_announced_weights_whose_memory_is_gone_are_an_error_after_the_deadline(read_as, name: str) -> None:
    reader = read_as("reader")
    said = {"form": 1, "blocks": {"policy": ["dw_gone", {"float32": [["w", [3]]]}]}}
    (folder_of(name) / "blocks.json").write_text(json.dumps(said))

    with pytest.raises(CommError, match="which is gone: their publisher was killed"):
        reader.newest("policy", timeout_s=MOMENT_S)
    assert reader.newest("other") is None

    (folder_of(name) / "blocks.json").unlink()


def test_a_probe_for_life_is_no_publisher(read_as, name: str, caplog: pytest.LogCaptureFixture) -> None:
    reader = read_as("reader")
    with caplog.at_level(logging.WARNING):
        for path in folder_of(name).glob("*.sock"):
            assert shared_folder.is_alive(str(path))
        assert reader.newest("policy", timeout_s=MOMENT_S) is None

    assert not caplog.records
