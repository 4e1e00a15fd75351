"""A block of shared memory never shows half of a version, whatever happens in the middle of a write or of a copy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import pytest

from ding_like.comm.channels import Version
from ding_like.comm.weights import shared_block
from ding_like.comm.weights.shared_block import BlockReader, BlockWriter
from ding_like.errors import CommError
from ding_like.types import Array
from ding_like.utils.files import is_full

NBYTES = 1000


def name_of(label: str) -> str:
    return f"dw_test_{os.getpid()}_{label}"


@pytest.fixture(params=[(3, False), (2, True)], ids=["three buffers", "checked"])
def writer(request: pytest.FixtureRequest) -> Iterator[BlockWriter]:
    num_buffers, is_checked = request.param
    writer = BlockWriter(name_of("w"), NBYTES, num_buffers=num_buffers, is_checked=is_checked)
    yield writer
    writer.close()


@pytest.fixture
def reader(writer: BlockWriter) -> BlockReader:
    return BlockReader(writer.name, NBYTES)


def write(writer: BlockWriter, number: int) -> None:
    writer.write(Version(1, number), lambda body: body.fill(number))


def assert_reads(reader: BlockReader, number: int, *, after: int = 0) -> None:
    look = reader.read(after=after, reader="reader")
    taken = look.taken
    assert taken is not None
    assert (look.number, taken.version) == (number, Version(1, number))
    assert taken.body.shape == (NBYTES,) and (taken.body == number).all()


def test_a_reader_gets_the_newest_version_and_only_one_that_it_has_not(
    writer: BlockWriter, reader: BlockReader
) -> None:
    assert reader.read(after=0, reader="reader") == (0, None)
    for number in range(1, 8):
        write(writer, number)
        assert_reads(reader, number, after=number - 1)
        assert reader.read(after=number, reader="reader") == (number, None)


def test_a_reader_in_the_middle_of_a_write_gets_the_version_before(writer: BlockWriter, reader: BlockReader) -> None:
    looks = 0

    def fill(body: Array) -> None:
        nonlocal looks
        body[: NBYTES // 2] = number
        if number > 1:
            assert_reads(reader, number - 1)
            looks += 1
        body[NBYTES // 2 :] = number

    for number in range(1, 8):
        writer.write(Version(1, number), fill)
        assert_reads(reader, number)
    assert looks == 6


def test_a_copy_that_is_overtaken_is_made_again(
    writer: BlockWriter, reader: BlockReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied, begun = shared_block._copied, 0

    def slowly(body: Array, spare: list[Array]) -> Array:
        nonlocal begun
        begun += 1
        first = copied(body[: NBYTES // 2], [])
        if begun == 1:
            for number in range(2, 6):
                write(writer, number)
        return np.concatenate([first, copied(body[NBYTES // 2 :], [])])

    write(writer, 1)
    monkeypatch.setattr(shared_block, "_copied", slowly)

    assert_reads(reader, 5)
    assert begun == 2


def test_a_write_that_fails_leaves_the_version_before(writer: BlockWriter, reader: BlockReader) -> None:
    def fail(body: Array) -> None:
        body[:10] = 99
        raise CommError("no such tensor")

    write(writer, 1)
    for _ in range(4):
        with pytest.raises(CommError, match="no such tensor"):
            writer.write(Version(1, 2), fail)
        assert_reads(reader, 1)
    write(writer, 2)

    assert_reads(reader, 2)


def test_a_block_of_something_else_is_refused_and_not_overwritten() -> None:
    block = SharedMemory(name_of("s"), create=True, size=4096)
    try:
        block.buf[:] = bytes(range(256)) * 16
        with pytest.raises(CommError, match="weights"):
            BlockReader(block.name, NBYTES)
        with pytest.raises(CommError, match="cannot be made"):
            BlockWriter(block.name, NBYTES, num_buffers=2, is_checked=False)
    finally:
        block.close()
        block.unlink()


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="shared memory is in no file system here")
def test_more_than_there_is_room_for_is_an_error_before_anything_is_written() -> None:
    room = os.statvfs("/dev/shm")

    with pytest.raises(CommError, match=r"bytes free, and weights in 2 buffers take .*--shm-size") as caught:
        BlockWriter(name_of("r"), room.f_blocks * room.f_frsize, num_buffers=2, is_checked=False)

    assert caught.value.__cause__ is not None and is_full(caught.value.__cause__)
    assert not os.path.exists(f"/dev/shm/{name_of('r')}")
