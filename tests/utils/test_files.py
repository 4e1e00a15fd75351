"""Atomic writes, the one retry loop, and the wait for room on a full disk."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ding_like.data.segment_file import SegmentError
from ding_like.utils import files
from ding_like.utils.files import atomic_write, retry, when_there_is_room


@pytest.mark.parametrize("durable", [False, True])
def test_atomic_write_replaces_the_old_file(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(b"old")

    with atomic_write(path, durable=durable) as file:
        file.write(b"new")

    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file.bin"]


def test_atomic_write_shows_nothing_before_its_end(tmp_path: Path) -> None:
    path = tmp_path / "file.bin"

    with atomic_write(path) as file:
        file.write(b"half")
        file.flush()
        assert not path.exists()


def test_error_keeps_the_old_file_and_leaves_no_other(tmp_path: Path) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(b"old")

    with pytest.raises(KeyboardInterrupt), atomic_write(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt

    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file.bin"]


def test_killed_writer_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(b"old")
    code = (
        "import os, sys\n"
        "from ding_like.utils.files import atomic_write\n"
        "with atomic_write(sys.argv[1]) as file:\n"
        "    file.write(b'x' * 100_000)\n"
        "    file.flush()\n"
        "    os.kill(os.getpid(), 9)\n"
    )

    result = subprocess.run([sys.executable, "-c", code, str(path)], check=False)

    assert result.returncode == -9
    assert path.read_bytes() == b"old"


def test_atomic_write_makes_missing_folders(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file.bin"

    with atomic_write(path) as file:
        file.write(b"x")

    assert path.read_bytes() == b"x"


def test_two_writers_of_one_path_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "file.bin"

    with atomic_write(path) as first, atomic_write(path) as second:
        first.write(b"first")
        second.write(b"second")

    assert path.read_bytes() == b"first"


def test_retry_returns_once_the_call_succeeds() -> None:
    errors = [OSError("1"), OSError("2")]

    def call() -> str:
        if errors:
            raise errors.pop()
        return "done"

    assert retry(call, OSError, timeout_s=60, first_wait_s=0.001) == "done"


def test_retry_raises_the_last_error_after_the_deadline() -> None:
    calls = iter(range(1000))

    def call() -> None:
        raise OSError(next(calls))

    with pytest.raises(OSError, match=r"^[1-9]"):
        retry(call, OSError, timeout_s=0.01, first_wait_s=0.001)


def test_retry_lets_other_errors_out_at_once() -> None:
    calls = []

    def call() -> None:
        calls.append(1)
        raise KeyError("other")

    with pytest.raises(KeyError):
        retry(call, (OSError, ValueError), timeout_s=60)
    assert len(calls) == 1


def test_retry_waits_longer_each_time_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, waits = [0.0], []

    def sleep(wait_s: float) -> None:
        waits.append(wait_s)
        now_s[0] += wait_s

    monkeypatch.setattr("ding_like.utils.files.time.sleep", sleep)
    monkeypatch.setattr("ding_like.utils.files.time.monotonic", lambda: now_s[0])

    def call() -> None:
        raise OSError

    with pytest.raises(OSError):
        retry(call, OSError, timeout_s=10, first_wait_s=1, max_wait_s=4)
    assert waits == [1, 2, 4, 3]


class Disk:
    """Disk that is full for some tries, each of which takes a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, full_for: int, error: Exception) -> None:
        self.now = 0.0
        self.tries = 0
        self.said: list[str] = []
        self._full_for = full_for
        self._error = error
        monkeypatch.setattr(files.time, "monotonic", lambda: 1000.0 + self.now)

    def write(self) -> str:
        self.tries += 1
        if self.tries <= self._full_for:
            raise self._error
        return "written"

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return False

    def ask(self, **kwargs: Any) -> str:
        return when_there_is_room(self.write, report=self.said.append, wait=self.wait, **kwargs)


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
        when_there_is_room(disk.write, report=disk.said.append, wait=lambda seconds: True)
    assert disk.tries == 1
