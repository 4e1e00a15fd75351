"""The state file: what is saved is saved whole; a request that is repeated gets the reply it had."""

from __future__ import annotations

import logging
import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.messages import RefusedError, Stamp, encode
from ding_like.errors import CheckpointError
from ding_like.pipeline.parallel.coordinator import LockedService
from ding_like.pipeline.parallel.core import CoordinatorCore
from ding_like.pipeline.parallel.core.state import StateStore, StateUnwritableError
from tests.pipeline.parallel.service_parts import PACKAGE, announced, begin, claim, join, make_core
from tests.support import Clock


class Disk:
    """Clock of a store that waits; it ends the fault after some time."""

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
        store.put("task", "c", {})
        store.put("task", "d", {})
        store.delete("task", "c")
    assert store.items("task") == [("d", {})], "and nothing of the block that failed"
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


@pytest.mark.parametrize("seconds", [0.3, 599.0])
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


def test_a_core_whose_state_cannot_be_saved_halts_and_its_run_goes_on_in_another(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    _, _, collector, task = begin(core)
    step = core.env_step
    core._store.wait = lambda seconds: True
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


def test_a_state_file_that_is_empty_torn_or_old_is_said(tmp_path: Path) -> None:
    cases: list[tuple[str, Callable[[bytes], bytes], str]] = [
        ("empty", lambda data: b"", "holds no run, but run RUN was started there 2 times"),
        ("torn", lambda data: data[: len(data) // 2], "cannot be used"),
        ("old", lambda data: data, "started 1 times, but run RUN was started there 2 times"),
    ]
    for name, change, said in cases:
        (tmp_path / name).mkdir()
        path = tmp_path / name / "state.sqlite"
        run_id, _ = used(tmp_path / name)
        first = path.read_bytes()
        used(tmp_path / name)
        path.write_bytes(change(first))

        with pytest.raises(CheckpointError, match=said.replace("RUN", run_id)):
            make_core(tmp_path / name)


def test_a_start_survives_the_loss_of_what_is_not_in_the_file_yet(tmp_path: Path) -> None:
    core = make_core(tmp_path, clock=Clock())
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "state.sqlite", tmp_path / "copy")  # without the log
    copied = StateStore(tmp_path / "copy" / "state.sqlite")

    assert dict(copied.items("run"))["run"]["run_id"] == core.run_id
    copied.close()
    core.close()


def filled(folder: Path) -> tuple[CoordinatorCore, str, m.Task, str, m.Task]:
    """Return a core with 32 rows, which allow 8 updates, and its workers."""
    core = make_core(folder)
    learner, learn, collector, task = begin(core)
    for number in range(4):
        core.send_data(collector, task.task_id, m.SendData(task.attempt, (announced(collector, number),)))
    return core, learner, learn, collector, task


def question(learn: m.Task, *, batches: int = 4, wait_s: float = 0.0) -> m.Sample:
    return m.Sample(learn.task_id, learn.attempt, 2, batches, 0, 4, wait_s)


def answer(core: CoordinatorCore, name: str, worker: str, ids: tuple[str, ...], message: Any, number: int) -> Any:
    return LockedService(core).answer(name, worker, ids, message, Stamp("main", number))


def test_a_coordinator_killed_before_its_answer_came_through_gives_the_same_batches(tmp_path: Path) -> None:
    core, learner, learn, _, _ = filled(tmp_path)
    first = answer(core, "sample", learner, ("buffer",), question(learn), 1)
    core.close()
    core = make_core(tmp_path)

    again = answer(core, "sample", learner, ("buffer",), question(learn), 1)

    assert encode(again) == encode(first) and first.batches.num_batches == 4
    rest = answer(core, "sample", learner, ("buffer",), question(learn, batches=100), 2)
    assert core.book.granted_updates == first.batches.num_batches + rest.batches.num_batches == 8, "granted is received"
    core.close()


def test_a_refusal_is_repeated_though_the_message_would_be_taken_now(tmp_path: Path) -> None:
    core, _, _, collector, task = filled(tmp_path)
    early = m.TaskInfo(task.attempt + 1, {})
    with pytest.raises(RefusedError) as first:
        answer(core, "task_info", collector, (task.task_id,), early, 1)
    core.leave(collector, m.Leave("away"))
    assert claim(core, join(core, "collector")).attempt == task.attempt + 1

    with pytest.raises(RefusedError) as again:
        answer(core, "task_info", collector, (task.task_id,), early, 1)

    assert (again.value.code, again.value.message) == (first.value.code, first.value.message)
    assert first.value.code == "stale_attempt"
    core.close()


def test_numbers_below_the_last_are_refused(tmp_path: Path) -> None:
    core, learner, learn, _, _ = filled(tmp_path)
    answer(core, "sample", learner, ("buffer",), question(learn), 2)

    with pytest.raises(RefusedError) as caught:
        answer(core, "sample", learner, ("buffer",), question(learn), 1)

    assert caught.value.code == "old_message" and core.book.granted_updates == 4
    core.close()


def test_numbers_that_count_nothing_are_refused(tmp_path: Path) -> None:
    core, learner, learn, _, _ = filled(tmp_path)

    for number in (0, -1, 10**300):
        with pytest.raises(RefusedError) as caught:
            answer(core, "sample", learner, ("buffer",), question(learn), number)
        assert caught.value.code == "malformed", number
    core.close()


def test_a_second_copy_that_comes_while_the_first_waits_is_granted_nothing_more(core: CoordinatorCore) -> None:
    learner, learn, collector, task = begin(core)
    service = LockedService(core)
    message = m.Sample(learn.task_id, learn.attempt, 2, 2, 0, 0, 5.0)
    replies: list[m.SampleReply] = []

    def ask() -> None:
        replies.append(service.answer("sample", learner, ("buffer",), message, Stamp("main", 1)))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    infos = tuple(announced(collector, number) for number in range(4))  # enough for 8 updates
    service.send_data(collector, task.task_id, m.SendData(task.attempt, infos))
    for thread in threads:
        thread.join(10)

    assert len(replies) == 4 and len({encode(reply) for reply in replies}) == 1
    assert core.book.granted_updates == 2


def test_two_copies_that_wait_do_not_wake_each_other(core: CoordinatorCore, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, learn, *_ = begin(core)
    service, sample, asked = LockedService(core), core.sample, []

    def ask_by_the_coordinator(*args: Any) -> Any:
        with service.changing():  # as its callbacks do
            asked.append(1)
            return sample(*args)

    monkeypatch.setattr(core, "sample", ask_by_the_coordinator)
    message = m.Sample(learn.task_id, learn.attempt, 2, 2, 0, 0, 0.5)
    args = "sample", learner, ("buffer",), message, Stamp("main", 1)
    threads = [threading.Thread(target=service.answer, args=args) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert 2 <= len(asked) <= 6


def test_an_empty_answer_is_final_when_the_time_is_over(core: CoordinatorCore) -> None:
    learner, learn, collector, task = begin(core)
    message = m.Sample(learn.task_id, learn.attempt, 2, 2, 0, 0)
    first = answer(core, "sample", learner, ("buffer",), message, 1)
    infos = tuple(announced(collector, number) for number in range(4))
    core.send_data(collector, task.task_id, m.SendData(task.attempt, infos))

    again = answer(core, "sample", learner, ("buffer",), message, 1)

    assert first.batches is None and again == first and core.book.granted_updates == 0


def test_an_older_message_that_still_waits_when_the_next_comes_is_granted_nothing(tmp_path: Path) -> None:
    core, learner, learn, _, _ = filled(tmp_path)
    asked: list[int] = []

    def ask() -> Any:
        asked.append(1)
        return core.sample(learner, "buffer", question(learn))

    core.once(learner, Stamp("main", 2), ask)

    with pytest.raises(RefusedError, match="older than 2"):
        core.once(learner, Stamp("main", 1), ask)
    assert asked == [1]
    core.close()


def test_heartbeats_are_not_written(tmp_path: Path) -> None:
    core, learner, _, _, _ = filled(tmp_path)

    answer(core, "heartbeat", learner, (), m.Heartbeat("learn"), 2)

    assert not core._store.items("answer")
    core.close()


def test_answers_to_workers_that_left_long_ago_go(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    for number in range(300):
        worker = join(core, "learner", number)
        for channel in range(2):
            core.once(worker, Stamp(f"c{channel}", 1), lambda worker=worker: core.claim(worker, m.Claim()))
        core.leave(worker, m.Leave("away"))

    assert len(core._store.items("answer")) == 2 * 256 == 2 * len(core._store.items("secret"))
    core.close()
    core = make_core(tmp_path)
    for number in range(300, 400):
        core.leave(join(core, "learner", number), m.Leave("away"))
    assert len(core._store.items("secret")) == 256
    core.close()


def test_a_worker_cannot_fill_the_journal_with_channels(core: CoordinatorCore) -> None:
    worker = join(core, "learner")
    for number in range(100):
        core.once(worker, Stamp(f"c{number}", 1), lambda: core.claim(worker, m.Claim()))

    assert len(core._store.items("answer")) == 32


def test_the_secret_of_a_worker_survives_a_restart_and_keeps_its_name(tmp_path: Path) -> None:
    core = make_core(tmp_path)
    mine = m.Register("collector", "host", 1, PACKAGE, "start0", secret="ab" * 16)
    worker = core.register(mine).worker_id
    core.close()
    core = make_core(tmp_path)

    assert core.secret_of(worker) == "ab" * 16 and core.register(mine).worker_id == worker
    with pytest.raises(RefusedError) as caught:
        core.register(m.Register("collector", "elsewhere", 2, PACKAGE, "start0", secret="cd" * 16))
    assert caught.value.code == "name_taken"
    core.close()


def test_a_name_is_not_free_because_its_worker_was_silent(core: CoordinatorCore) -> None:
    mine = m.Register("collector", "host", 1, PACKAGE, "start0", secret="ab" * 16)
    worker = core.register(mine).worker_id
    core.leave(worker, m.Leave("silent"))

    assert core.secret_of(worker) is None
    with pytest.raises(RefusedError) as caught:
        core.register(m.Register("collector", "elsewhere", 2, PACKAGE, "start0", secret="cd" * 16))
    assert caught.value.code == "name_taken"
    assert core.register(mine).worker_id == worker
