"""A full disk: lines of metrics wait for room, whole; TensorBoard events are left out; nothing ends."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from ding_like.utils.checkpoint import save_state
from ding_like.utils.metrics import MetricsSink


class SmallDisk:
    """Stand for an open file on a disk with room for so many bytes."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.data = b""

    def write(self, data: Any) -> int:
        taken = bytes(data)[: self.room]
        if not taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= len(taken)
        self.data += taken
        return len(taken)

    def close(self) -> None: ...


def written(sink: MetricsSink, disk: SmallDisk, number: int) -> None:
    sink._file = disk  # type: ignore[assignment]
    for iteration in range(number):
        sink.write("learner", {"loss": 0.5}, env_step=8, train_iter=iteration)


def test_lines_that_find_no_room_are_written_whole_when_there_is(tmp_path: Path) -> None:
    sink, disk = MetricsSink(tmp_path, tensorboard=False), SmallDisk(room=100)

    written(sink, disk, 5)
    assert len(disk.data) == 100, "the disk is full in the middle of a line"
    disk.room = 10_000
    sink.write("learner", {"loss": 0.5}, env_step=8, train_iter=5)

    assert [json.loads(line)["train_iter"] for line in disk.data.splitlines()] == list(range(6))
    sink.close()


def test_what_waits_is_written_at_the_end(tmp_path: Path) -> None:
    sink, disk = MetricsSink(tmp_path, tensorboard=False), SmallDisk(room=10)

    written(sink, disk, 3)
    disk.room = 10_000
    sink.close()

    assert len(disk.data.splitlines()) == 3


def test_a_disk_that_is_broken_is_no_full_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, disk = MetricsSink(tmp_path, tensorboard=False), SmallDisk(room=10)

    def fail(data: Any) -> int:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(disk, "write", fail)
    with pytest.raises(OSError, match="broken"):
        written(sink, disk, 1)


def test_a_checkpoint_on_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def full(state: Any, file: Any) -> None:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        finally:
            raise RuntimeError("unexpected pos 704 vs 598")  # what torch makes of it

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space left"):
        save_state(tmp_path / "model.pt", {"x": 1})
    assert list(tmp_path.iterdir()) == []
