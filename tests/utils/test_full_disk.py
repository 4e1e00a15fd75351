"""A full disk is waited for, and said now and then."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from ding_like.data.segment_file import SegmentError
from ding_like.utils import full_disk
from ding_like.utils.full_disk import when_there_is_room


class Disk:
    """Be full for some tries, each of which takes a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, full_for: int, error: Exception) -> None:
        self.now = 0.0
        self.tries = 0
        self.said: list[str] = []
        self._full_for = full_for
        self._error = error
        monkeypatch.setattr(full_disk.time, "monotonic", lambda: 1000.0 + self.now)

    def write(self) -> str:
        self.tries += 1
        if self.tries <= self._full_for:
            raise self._error
        return "written"

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return False

    def ask(self, **kwargs: Any) -> str:
        return when_there_is_room(self.write, tell=self.said.append, wait=self.wait, **kwargs)


NO_ROOM = SegmentError("full", "no room")
NO_ROOM.__cause__ = OSError(errno.ENOSPC, "No space left")
FULL = [OSError(errno.ENOSPC, "No space left"), OSError(errno.EDQUOT, "quota"), NO_ROOM]


def test_room_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in FULL:
        disk = Disk(monkeypatch, 130, error)

        assert disk.ask() == "written" and disk.tries == 131
        assert len(disk.said) == 3, "a line at once and then each minute"
        assert all("waiting for room" in line for line in disk.said)


def test_what_is_no_full_disk_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch, 1, OSError(errno.EIO, "broken"))

    with pytest.raises(OSError, match="broken"):
        disk.ask()
    assert disk.tries == 1 and disk.said == []


def test_it_is_not_waited_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch, 10**6, FULL[0])

    with pytest.raises(OSError, match="No space left"):
        disk.ask(longest_s=30.0)
    assert disk.now == 30.0


def test_a_task_that_is_to_end_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch, 10**6, FULL[2])

    with pytest.raises(SegmentError, match="no room"):
        when_there_is_room(disk.write, tell=disk.said.append, wait=lambda seconds: True)
    assert disk.tries == 1
