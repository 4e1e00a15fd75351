"""Atomic writes, the one retry loop, and the wait for room on a full disk."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ding_like.data.segment_file import SegmentError
from ding_like.errors import ConfigError
from ding_like.utils import files
from ding_like.utils.files import (
    LOCK_FILE,
    FolderLock,
    RunFolder,
    atomic_write,
    holder_of,
    is_held,
    retry,
    when_there_is_room,
)


@pytest.mark.parametrize("durable", [False, True])
def test_atomic_write_replaces_the_old_file(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(b"old")

    with atomic_write(path, durable=durable) as file:
        file.write(b"new")

    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file.bin"]


def test_atomic_write_makes_folders_and_shows_nothing_before_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file.bin"

    with atomic_write(path) as file:
        file.write(b"x")
        file.flush()
        assert not path.exists()

    assert path.read_bytes() == b"x"


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


HOLD = "import sys; from ding_like.utils.files import *; lock = FolderLock(sys.argv[1]); print('held', flush=1)"
ROOT = Path(__file__).parents[2]


def hold(folder: Path, more: str = "sys.stdin.read()") -> subprocess.Popen[str]:
    """Return a process that holds a folder until its standard input is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", f"{HOLD}; {more}", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = hold(tmp_path)
    yield process
    process.kill()
    process.communicate(timeout=10)


def test_a_second_process_is_told_who_holds_it_and_what_to_do(other, tmp_path):
    with pytest.raises(ConfigError) as caught:
        FolderLock(tmp_path)

    said, holder = str(caught.value), holder_of(tmp_path)
    assert holder is not None and holder.pid == other.pid
    assert f"process {other.pid} on {holder.host}" in said and f"has trained in it since {holder.since}" in said
    assert f"kill {other.pid} " in said and f"ding --resume {tmp_path}" in said and "another --exp-name" in said


def test_a_paused_process_holds_it_and_the_message_says_how_it_goes_on(other, tmp_path):
    os.kill(other.pid, signal.SIGSTOP)
    os.waitpid(other.pid, os.WUNTRACED)

    with pytest.raises(ConfigError, match=f"it is paused, and  kill -CONT {other.pid}  lets it go on"):
        FolderLock(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_was_killed_holds_nothing(other, tmp_path, number):
    os.kill(other.pid, number)
    other.wait(timeout=10)

    FolderLock(tmp_path).close()


def test_children_of_a_killed_process_do_not_hold_it(tmp_path):
    # The child says its number, and not its parent: a child that has not run yet has not let go of the lock either.
    process = hold(tmp_path, "import os; os.fork() or print(os.getpid(), flush=True); sys.stdin.read()")
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        process.kill()
        process.wait(timeout=10)

        FolderLock(tmp_path).close()
        os.kill(child, 0)  # it lives
    finally:
        os.kill(child, signal.SIGKILL)
        process.communicate(timeout=10)


def test_a_copy_of_the_folder_is_free(other, tmp_path, tmp_path_factory):
    copy = tmp_path_factory.mktemp("copy") / "run"
    shutil.copytree(tmp_path, copy)

    assert holder_of(copy) is None
    FolderLock(copy).close()


def test_a_folder_whose_lock_file_was_deleted_is_held(other, tmp_path):
    (tmp_path / LOCK_FILE).unlink()

    assert is_held(tmp_path)
    with pytest.raises(ConfigError, match=r"is in use: another process, which \.lock does not name, trains in it"):
        FolderLock(tmp_path)


def test_a_folder_that_cannot_be_locked_itself_is_held_by_its_file(tmp_path, monkeypatch):
    real = fcntl.flock

    def flock(descriptor: int, how: int) -> None:  # as NFS answers
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EBADF, "Bad file descriptor")
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with FolderLock(tmp_path):
        assert is_held(tmp_path)
        with pytest.raises(ConfigError, match="by a run of this very process"):
            FolderLock(tmp_path)

    assert not is_held(tmp_path)


def test_one_process_holds_a_folder_once_and_a_free_one_names_nobody(tmp_path):
    with FolderLock(tmp_path), pytest.raises(ConfigError, match="by a run of this very process"):
        FolderLock(tmp_path)

    FolderLock(tmp_path).close()

    assert holder_of(tmp_path) is None and (tmp_path / LOCK_FILE).read_bytes() == b""


def test_a_lock_file_that_was_deleted_meanwhile_is_no_lock(tmp_path, monkeypatch):
    real, calls = fcntl.flock, []

    def flock(descriptor: int, how: int) -> None:
        if len(calls) == 1:  # the folder is locked; who held the file until now has deleted it
            (tmp_path / LOCK_FILE).unlink()
        calls.append(descriptor)
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    lock = FolderLock(tmp_path)

    assert len(calls) == 3 and (tmp_path / LOCK_FILE).exists()
    lock.close()


def test_a_folder_that_takes_no_files_is_one_error(tmp_path):
    with pytest.raises(ConfigError, match="a run cannot begin in .*No such file or directory.*--exp-name"):
        FolderLock(tmp_path / "missing")


class TestWithoutLocks:
    """On file systems that know no flock, what stands in the file says who holds it."""

    @pytest.fixture(autouse=True)
    def no_flock(self, monkeypatch):
        def flock(descriptor: int, how: int) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(fcntl, "flock", flock)

    def write(self, folder: Path, **changes: Any) -> None:
        (folder / LOCK_FILE).touch()
        descriptor = os.open(folder / LOCK_FILE, os.O_RDWR)
        holder = files._this_process(descriptor)._replace(**changes)
        os.write(descriptor, json.dumps(holder._asdict()).encode())
        os.close(descriptor)

    def test_it_is_said(self, tmp_path, caplog):
        FolderLock(tmp_path).close()

        assert "is on a file system without locks (No locks available)" in caplog.text

    def test_a_living_process_of_this_machine_holds_it(self, tmp_path):
        self.write(tmp_path, pid=os.getppid(), start=files.start_of(os.getppid()))

        with pytest.raises(ConfigError, match=f"process {os.getppid()} on"):
            FolderLock(tmp_path)

    def test_a_dead_process_of_this_machine_does_not(self, tmp_path):
        self.write(tmp_path, start=1)

        FolderLock(tmp_path).close()

    def test_one_of_another_machine_does_until_the_file_is_deleted(self, tmp_path):
        self.write(tmp_path, machine="other", host="far")

        with pytest.raises(ConfigError, match=r"on far .* If that process has ended, delete .*\.lock and try again"):
            FolderLock(tmp_path)

        (tmp_path / LOCK_FILE).unlink()
        FolderLock(tmp_path).close()

    def test_a_copied_file_says_nothing(self, tmp_path):
        self.write(tmp_path, pid=os.getppid(), start=files.start_of(os.getppid()), inode=1)

        FolderLock(tmp_path).close()


def fail(name: str, *files: str, fresh: bool = True, keep: bool = False, content: str = "x") -> None:
    """Claim a folder, write files into it, and fail."""
    with pytest.raises(ZeroDivisionError), RunFolder() as folder:
        made = Path(folder.claim(name, is_fresh=fresh))
        for file in files:
            (made / file).parent.mkdir(parents=True, exist_ok=True)
            (made / file).write_text(content)
        if keep:
            folder.keep()
        raise ZeroDivisionError


@pytest.mark.usefixtures("in_tmp")
def test_a_failed_start_leaves_no_folder_but_those_of_others():
    files = "total_config.py", "log/collector/collector_logger.txt", "coordinator.sqlite-wal", "agent.json"
    fail("a/b/run", *files)
    assert not Path("a").exists()

    Path("a").mkdir()
    fail("a/b/run", *files)
    assert Path("a").is_dir() and not Path("a/b").exists()


@pytest.mark.parametrize("file", ["ckpt/ckpt_best.pth.tar", "notes.txt", "metrics.jsonl", "log/learners/rank1.txt"])
@pytest.mark.usefixtures("in_tmp")
def test_a_folder_with_more_in_it_or_that_was_there_or_has_begun_stays(file):
    fail("run", "total_config.py", file)
    fail("traced", "log/workers/collector0.txt", content="Traceback (most recent call last):\n  ...")
    fail("begun", "total_config.py", keep=True)
    Path("there").mkdir()
    fail("there", "total_config.py", fresh=False)

    assert Path("run", file).is_file() and Path("traced/log/workers/collector0.txt").is_file()
    assert Path("begun/total_config.py").is_file() and Path("there/total_config.py").is_file()


@pytest.mark.usefixtures("in_tmp")
def test_a_claimed_folder_is_held_until_the_end():
    with RunFolder() as folder:
        folder.claim("run", is_fresh=True)
        with pytest.raises(ConfigError, match="is in use"), RunFolder() as second:
            second.hold("run")
        with RunFolder() as third:
            assert third.claim("run", is_fresh=True) != "run"

    with RunFolder() as after:
        after.hold("run")


@pytest.mark.usefixtures("in_tmp")
def test_a_check_is_asked_before_anything_is_written():
    def refuse(name: str) -> None:
        assert list(Path(name).iterdir()) == [Path(name, ".lock")]
        raise ConfigError("it is another's")

    with pytest.raises(ConfigError, match="another's"), RunFolder(check=refuse) as folder:
        folder.claim("run", is_fresh=False)

    assert not Path("run").exists()
