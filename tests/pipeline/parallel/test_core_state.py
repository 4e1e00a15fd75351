"""The state file: what is saved is saved whole, a fault that passes is waited for, and a lost file is said."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.refusal import RefusedError
from ding_like.errors import CheckpointError
from ding_like.pipeline.parallel.core.state import StateStore, StateUnwritableError
from ding_like.pipeline.parallel.core.status import status_of
from tests.pipeline.parallel.service_parts import Clock, announced, begin, make_core


class Disk:
    """Be the time that passes while a store waits, and end the fault after some of it."""

    def __init__(self, fault_s: float, mend: Any, *, abort: bool = False) -> None:
        self.now, self._until, self._mend, self._abort = 0.0, fault_s, mend, abort

    def clock(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        if self.now >= self._until:
            self._mend()
        return self._abort


def lock(path: Path) -> sqlite3.Connection:
    """Take the file's write lock, as a tool for copies does."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return other


def fill(store: StateStore) -> None:
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count={pages}")


def make_room(store: StateStore) -> None:
    store._db.execute("PRAGMA max_page_count=1000000")


BIG = {"text": "x" * 100_000}


def test_nested_blocks_are_saved_together_or_not_at_all(tmp_path: Path) -> None:
    store = StateStore(tmp_path / "s.sqlite")
    with pytest.raises(KeyError), store.transaction():
        store.put("task", "a", {})
        with store.transaction():
            store.put("task", "b", {})
        raise KeyError

    assert store.items("task") == []
    with store.transaction():
        store.put("task", "a", {})
        store.put("task", "b", {})
        store.delete("task", "a")
    assert store.items("task") == [("b", {})]
    store.close()


def test_a_block_that_cannot_be_written_whole_is_not_written_in_part(tmp_path: Path) -> None:
    disk = Disk(1e9, lambda: None, abort=True)
    store = StateStore(tmp_path / "s.sqlite", wait=disk.wait, clock=disk.clock)
    fill(store)

    with pytest.raises(StateUnwritableError), store.transaction():
        store.put("task", "small", {})
        store.put("task", "z", BIG)

    assert store.items("task") == []
    store.close()
    store = StateStore(tmp_path / "s.sqlite")
    assert store.items("task") == []
    store.close()


def test_what_was_written_of_a_block_before_a_fault_is_taken_back(tmp_path: Path) -> None:
    store = StateStore(tmp_path / "s.sqlite")
    store._db.execute("CREATE TRIGGER t BEFORE INSERT ON item WHEN NEW.key = 'z' BEGIN SELECT RAISE(ABORT, 'no'); END")

    with pytest.raises(StateUnwritableError), store.transaction():
        store.put("task", "a", {})
        store.put("task", "z", {})

    assert store.items("task") == []
    store.close()


@pytest.mark.parametrize("seconds", [0.3, 1.0, 12.0, 599.0])
def test_a_disk_that_is_full_for_a_moment_is_waited_for(tmp_path: Path, seconds: float) -> None:
    disk = Disk(seconds, lambda: make_room(store))
    store = StateStore(tmp_path / "s.sqlite", wait=disk.wait, clock=disk.clock)
    fill(store)

    store.put("task", "a", BIG)

    assert store.items("task") == [("a", BIG)] and seconds <= disk.now < seconds + 2
    store.close()


def test_a_lock_that_is_held_for_a_moment_is_waited_for_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk(5.0, lambda: other.close())
    store = StateStore(tmp_path / "s.sqlite", wait=disk.wait, clock=disk.clock)
    store._db.execute("PRAGMA busy_timeout=1")
    other = lock(tmp_path / "s.sqlite")

    with caplog.at_level(logging.WARNING):
        store.put("task", "a", {})

    assert store.items("task") == [("a", {})]
    said = [record.message for record in caplog.records]
    assert len(said) == 2 and "locked" in said[0] and "is written again" in said[1]
    store.close()


def test_after_ten_minutes_it_is_given_up_with_what_to_do_and_nothing_is_saved_later(tmp_path: Path) -> None:
    disk = Disk(1e9, lambda: None)
    store = StateStore(tmp_path / "s.sqlite", wait=disk.wait, clock=disk.clock)
    fill(store)

    with pytest.raises(StateUnwritableError, match="full.*Make room.*start the coordinator again in the same folder"):
        store.put("task", "a", BIG)

    assert 600 <= disk.now < 602
    make_room(store)
    with pytest.raises(StateUnwritableError):
        store.put("task", "b", {})
    assert store.items("task") == []
    store.close()


def test_who_is_to_end_waits_no_more(tmp_path: Path) -> None:
    disk = Disk(1e9, lambda: None, abort=True)
    store = StateStore(tmp_path / "s.sqlite", wait=disk.wait, clock=disk.clock)
    fill(store)

    with pytest.raises(StateUnwritableError):
        store.put("task", "a", BIG)

    assert disk.now < 1
    store.close()


def test_a_core_whose_state_cannot_be_saved_halts_and_its_run_goes_on_in_another(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    _, _, collector, task = begin(core)
    step = core.env_step
    core._store._wait = lambda seconds: True
    fill(core._store)

    with pytest.raises(RefusedError) as refused:
        for number in range(1000):
            core.send_data(collector, task.task_id, m.SendData(task.attempt, (announced(collector, number),)))
            step = core.env_step

    assert refused.value.code == "storage_full" and refused.value.retryable
    assert core.halted is not None and "Make room" in core.halted
    assert not core.is_over and core.failure is None, "a disk is no reason of the run's own"
    core.close()
    core = make_core(tmp_path)
    assert not core.is_over and core.env_step == step, "what was answered, no more"
    core.close()


def test_an_end_that_was_not_saved_is_none(tmp_path: Path) -> None:
    core = make_core(tmp_path, max_failures=1)
    _, _, collector, task = begin(core)
    core._store._wait = lambda seconds: True
    fill(core._store)
    core._store._db.execute("PRAGMA query_only=1")  # not a single page may be written

    with pytest.raises(RefusedError) as refused:
        core.fail_task(collector, task.task_id, m.FailTask(task.attempt, "E", "broke"))

    assert refused.value.code == "storage_full"
    core.close()
    core = make_core(tmp_path)
    assert not core.is_over and core.failure is None
    core.close()


@pytest.mark.parametrize(("durable", "synchronous"), [(False, 1), (True, 2)])
def test_durable_waits_for_the_disk(tmp_path: Path, durable: bool, synchronous: int) -> None:
    store = StateStore(tmp_path / "s.sqlite", durable=durable)

    assert store._db.execute("PRAGMA synchronous").fetchone() == (synchronous,)
    store.close()


# --- a file that is not what it was


def used(folder: Path) -> tuple[str, int]:
    """Start a run, take some segments, close; return (its id, env steps)."""
    core = make_core(folder)
    _, _, collector, task = begin(core)
    core.send_data(collector, task.task_id, m.SendData(task.attempt, (announced(collector, 0),)))
    found = core.run_id, core.env_step
    core.close()
    return found


def killed(folder: Path) -> Path:
    """Return a folder as a coordinator leaves it that is killed: with a write-ahead log."""
    core = make_core(folder / "alive")
    _, _, collector, task = begin(core)
    core.send_data(collector, task.task_id, m.SendData(task.attempt, (announced(collector, 0),)))
    shutil.copytree(folder / "alive", folder / "killed")
    core.close()
    return folder / "killed"


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "alive").mkdir()
    core = make_core(killed(tmp_path))

    assert core.env_step == 8 and core.epoch == 2
    core.close()


@pytest.mark.parametrize("gone", ["state.sqlite", "state.sqlite-wal"])
def test_a_file_that_is_gone_is_said_and_not_begun_anew(tmp_path: Path, gone: str) -> None:
    (tmp_path / "alive").mkdir()
    folder = killed(tmp_path)
    (folder / gone).unlink()

    with pytest.raises(CheckpointError, match=rf"{gone} is gone.*Put the files back.*delete .*start\.json"):
        make_core(folder)
    assert not (folder / "state.sqlite").exists() or gone != "state.sqlite", "nothing was made in its place"


def test_a_loss_that_is_accepted_is_gone_on_from(tmp_path: Path) -> None:
    (tmp_path / "alive").mkdir()
    folder = killed(tmp_path)
    (folder / "state.sqlite-wal").unlink()
    (folder / "state.sqlite.start.json").unlink()

    core = make_core(folder)

    assert core.epoch == 2 and core.env_step == 0, "what was in the file itself"
    core.close()


def test_a_state_file_older_than_the_last_start_is_said(tmp_path: Path) -> None:
    used(tmp_path)
    shutil.copy(tmp_path / "state.sqlite", tmp_path / "old")
    used(tmp_path)
    (tmp_path / "state.sqlite").unlink()
    shutil.copy(tmp_path / "old", tmp_path / "state.sqlite")

    with pytest.raises(CheckpointError, match=r"started 1 times, but run \w+ was started there 2 times"):
        make_core(tmp_path)


def test_an_empty_state_file_is_said(tmp_path: Path) -> None:
    run_id, _ = used(tmp_path)
    (tmp_path / "state.sqlite").write_bytes(b"")

    with pytest.raises(CheckpointError, match=f"holds no run, but run {run_id} was started there once"):
        make_core(tmp_path)


def test_a_torn_state_file_is_said(tmp_path: Path) -> None:
    used(tmp_path)
    data = (tmp_path / "state.sqlite").read_bytes()
    (tmp_path / "state.sqlite").write_bytes(data[: len(data) // 2])

    with pytest.raises(CheckpointError, match="cannot be used"):
        make_core(tmp_path)


def test_a_run_closed_in_order_needs_no_log(tmp_path: Path) -> None:
    _, step = used(tmp_path)
    assert not (tmp_path / "state.sqlite-wal").exists()

    core = make_core(tmp_path)

    assert core.env_step == step and status_of(core)["epoch"] == 2
    core.close()


def test_a_start_survives_the_loss_of_what_is_not_in_the_file_yet(tmp_path: Path) -> None:
    core = make_core(tmp_path, clock=Clock())
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "state.sqlite", tmp_path / "copy")  # without the log
    copied = StateStore(tmp_path / "copy" / "state.sqlite")

    assert dict(copied.items("run"))["run"]["run_id"] == core.run_id
    copied.close()
    core.close()
