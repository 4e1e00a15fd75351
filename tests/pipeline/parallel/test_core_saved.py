"""The state file: what is saved is saved whole; a request that is repeated gets the reply it had."""

from __future__ import annotations

import logging
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ding_like.comm.rest import messages as m
from ding_like.comm.rest.messages import RefusedError, Stamp, encode
from ding_like.errors import CheckpointError
from ding_like.pipeline.parallel.coordinator import LockedService
from ding_like.pipeline.parallel.core.state import StateStore, StateUnwritableError
from tests.pipeline.parallel.service_parts import PACKAGE, Rig, announced

MakeRig = Callable[..., Rig]


class Disk:
    """State file on a disk with a fault that ends after some time, by the clock of the store that waits for it."""

    def __init__(self, path: Path) -> None:
        self.path, self.now, self.fault_s, self.is_aborted = path, 0.0, 1e9, False
        self.mend: Callable[[], object] = lambda: None
        self.open()

    def open(self) -> None:
        self.store = StateStore(self.path, wait=self.wait, clock=lambda: self.now)

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        if self.now >= self.fault_s:
            self.mend()
        return self.is_aborted

    def fill(self) -> None:
        fill(self.store)
        self.mend = lambda: self.store._db.execute("PRAGMA max_page_count=1000000")


def fill(store: StateStore) -> None:
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count={pages}")


BIG = {"text": "x" * 100_000}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "s.sqlite")
    yield made
    made.store.close()


def test_nested_blocks_are_saved_together_or_not_at_all(disk: Disk) -> None:
    store = disk.store
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


def test_a_block_that_cannot_be_written_whole_is_not_written_in_part(disk: Disk) -> None:
    disk.is_aborted = True
    disk.fill()

    with pytest.raises(StateUnwritableError), disk.store.transaction():
        disk.store.put("task", "small", {})
        disk.store.put("task", "z", BIG)

    assert disk.store.items("task") == []
    disk.store.close()
    disk.open()
    assert disk.store.items("task") == []


@pytest.mark.parametrize("seconds", [0.3, 599.0])
def test_a_disk_that_is_full_for_a_moment_is_waited_for(disk: Disk, seconds: float) -> None:
    disk.fault_s = seconds
    disk.fill()

    disk.store.put("task", "a", BIG)

    assert disk.store.items("task") == [("a", BIG)] and seconds <= disk.now < seconds + 2


def test_a_lock_that_is_held_for_a_moment_is_waited_for_with_one_line(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.store._db.execute("PRAGMA busy_timeout=1")
    other = sqlite3.connect(disk.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")  # as a tool for copies does
    disk.fault_s, disk.mend = 5.0, other.close

    with caplog.at_level(logging.WARNING):
        disk.store.put("task", "a", {})

    assert disk.store.items("task") == [("a", {})]
    said = [record.message for record in caplog.records]
    assert len(said) == 2 and "locked" in said[0] and "is written again" in said[1]


def test_after_ten_minutes_it_is_given_up_with_what_to_do_and_nothing_is_saved_later(disk: Disk) -> None:
    disk.fill()

    with pytest.raises(StateUnwritableError, match="full.*Make room.*start the coordinator again in the same folder"):
        disk.store.put("task", "a", BIG)

    assert 600 <= disk.now < 602
    disk.mend()
    with pytest.raises(StateUnwritableError):
        disk.store.put("task", "b", {})
    assert disk.store.items("task") == []


def test_a_core_whose_state_cannot_be_saved_halts_and_its_run_goes_on_in_another(rig: Rig) -> None:
    step = rig.core.env_step
    rig.core._store.wait = lambda seconds: True
    fill(rig.core._store)

    with pytest.raises(RefusedError) as refused:
        for number in range(1000):
            rig.send(number)
            step = rig.core.env_step

    assert refused.value.code == "storage_full" and refused.value.retryable
    assert rig.core.halted is not None and "Make room" in rig.core.halted
    assert not rig.core.is_over and rig.core.failure is None, "a disk is no reason of the run's own"
    rig.restart()
    assert not rig.core.is_over and rig.core.env_step == step, "what was answered, no more"


# --- a file that is not what it was


@pytest.fixture
def killed(tmp_path: Path, make_rig: MakeRig) -> Rig:
    """Give a run whose folder is as a coordinator leaves it that is killed: with a write-ahead log."""
    rig = make_rig("alive")
    rig.send(0)
    rig.folder = tmp_path / "killed"
    shutil.copytree(tmp_path / "alive", rig.folder)
    return rig


def test_a_killed_run_goes_on(killed: Rig) -> None:
    killed.restart()

    assert killed.core.env_step == 8 and killed.core.epoch == 2


@pytest.mark.parametrize("gone", ["state.sqlite", "state.sqlite-wal"])
def test_a_file_that_is_gone_is_said_and_not_begun_anew(killed: Rig, gone: str) -> None:
    (killed.folder / gone).unlink()

    with pytest.raises(CheckpointError, match=rf"{gone} is gone.*Put the files back.*delete .*start\.json"):
        killed.restart()
    assert not (killed.folder / "state.sqlite").exists() or gone != "state.sqlite", "nothing was made in its place"


def test_a_loss_that_is_accepted_is_gone_on_from(killed: Rig) -> None:
    (killed.folder / "state.sqlite-wal").unlink()
    (killed.folder / "state.sqlite.start.json").unlink()

    killed.restart()

    assert killed.core.epoch == 2 and killed.core.env_step == 0, "what was in the file itself"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: b"", "holds no run, but run RUN was started there 2 times"),
        (lambda data: data[: len(data) // 2], "cannot be used"),
        (lambda data: data, "started 1 times, but run RUN was started there 2 times"),
    ],
    ids=["empty", "torn", "old"],
)
def test_a_state_file_that_is_not_the_last_is_said(rig: Rig, change: Callable[[bytes], bytes], said: str) -> None:
    path = rig.folder / "state.sqlite"
    rig.send(0)
    rig.core.close()
    first = path.read_bytes()
    rig.restart()
    rig.core.close()
    path.write_bytes(change(first))

    with pytest.raises(CheckpointError, match=said.replace("RUN", rig.core.run_id)):
        rig.restart()


def test_a_start_survives_the_loss_of_what_is_not_in_the_file_yet(rig: Rig) -> None:
    (rig.folder / "copy").mkdir()
    shutil.copy(rig.folder / "state.sqlite", rig.folder / "copy")  # without the log
    copied = StateStore(rig.folder / "copy" / "state.sqlite")

    assert dict(copied.items("run"))["run"]["run_id"] == rig.core.run_id
    copied.close()


# --- messages that come again


@pytest.fixture
def filled(rig: Rig) -> Rig:
    """Give a rig with 32 rows, which allow 8 updates."""
    rig.send(0, 1, 2, 3)
    return rig


def question(rig: Rig, *, batches: int = 4, have: int = 4, wait_s: float = 0.0) -> m.Sample:
    return m.Sample(rig.learn.task_id, rig.learn.attempt, 2, batches, 0, have, wait_s)


def ask(rig: Rig, number: int, **asked: Any) -> Any:
    """Return the answer to the learner's message of a number."""
    service, message = LockedService(rig.core), question(rig, **asked)
    return service.answer("sample", rig.learner, ("buffer",), message, Stamp("main", number))


def test_a_coordinator_killed_before_its_answer_came_through_gives_the_same_batches(filled: Rig) -> None:
    first = ask(filled, 1)
    filled.restart()

    again = ask(filled, 1)

    assert encode(again) == encode(first) and first.batches.num_batches == 4
    rest = ask(filled, 2, batches=100)
    granted = first.batches.num_batches + rest.batches.num_batches
    assert filled.core.book.granted_updates == granted == 8, "granted is received"


def test_a_refusal_is_repeated_though_the_message_would_be_taken_now(rig: Rig) -> None:
    early = m.TaskInfo(rig.task.attempt + 1, {})
    refused = []
    for _ in range(2):
        with pytest.raises(RefusedError) as caught:
            LockedService(rig.core).answer("task_info", rig.collector, (rig.task.task_id,), early, Stamp("main", 1))
        refused.append((caught.value.code, caught.value.message))
        rig.core.leave(rig.collector, m.Leave("away"))
        assert rig.claim(rig.join("collector")).attempt == early.attempt + len(refused) - 1

    assert refused[0] == refused[1] and refused[0][0] == "stale_attempt"


def test_numbers_that_are_old_or_count_nothing_are_refused(filled: Rig) -> None:
    ask(filled, 2)

    for number, code in ((1, "old_message"), (0, "malformed"), (-1, "malformed"), (10**300, "malformed")):
        with pytest.raises(RefusedError) as caught:
            ask(filled, number)
        assert caught.value.code == code, number
    assert filled.core.book.granted_updates == 4


def together(*calls: Callable[[], object], then: Callable[[], object] = lambda: None) -> None:
    """Make calls in threads of their own and something beside them; all have ended in the end."""
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    then()
    for thread in threads:
        thread.join(10)


def test_a_second_copy_that_comes_while_the_first_waits_is_granted_nothing_more(rig: Rig) -> None:
    service, replies = LockedService(rig.core), []
    message = question(rig, batches=2, have=0, wait_s=5.0)
    infos = tuple(announced(rig.collector, number) for number in range(4))  # enough for 8 updates

    together(
        *[lambda: replies.append(service.answer("sample", rig.learner, ("buffer",), message, Stamp("main", 1)))] * 4,
        then=lambda: service.send_data(rig.collector, rig.task.task_id, m.SendData(rig.task.attempt, infos)),
    )

    assert len(replies) == 4 and len({encode(reply) for reply in replies}) == 1
    assert rig.core.book.granted_updates == 2


def test_two_copies_that_wait_do_not_wake_each_other(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    service, sample, asked = LockedService(rig.core), rig.core.sample, []

    def ask_by_the_coordinator(*args: Any) -> Any:
        with service.changing():  # as its callbacks do
            asked.append(1)
            return sample(*args)

    monkeypatch.setattr(rig.core, "sample", ask_by_the_coordinator)
    message = question(rig, batches=2, have=0, wait_s=0.5)
    together(*[lambda: service.answer("sample", rig.learner, ("buffer",), message, Stamp("main", 1))] * 2)

    assert 2 <= len(asked) <= 6


def test_an_empty_answer_is_final_when_the_time_is_over(rig: Rig) -> None:
    first = ask(rig, 1, have=0)
    rig.send(0, 1, 2, 3)

    again = ask(rig, 1, have=0)

    assert first.batches is None and again == first and rig.core.book.granted_updates == 0


def test_an_older_message_that_still_waits_when_the_next_comes_is_granted_nothing(filled: Rig) -> None:
    asked: list[int] = []
    filled.core.once(filled.learner, Stamp("main", 2), lambda: asked.append(1) or filled.sample())

    with pytest.raises(RefusedError, match="older than 2"):
        filled.core.once(filled.learner, Stamp("main", 1), lambda: asked.append(1))
    assert asked == [1]


def test_heartbeats_are_not_written(rig: Rig) -> None:
    LockedService(rig.core).answer("heartbeat", rig.learner, (), m.Heartbeat("learn"), Stamp("main", 2))

    assert not rig.core._store.items("answer")


def test_answers_to_workers_that_left_long_ago_go(rig: Rig) -> None:
    for number in range(1, 301):
        worker = rig.join("learner", number)
        for channel in range(2):
            rig.core.once(worker, Stamp(f"c{channel}", 1), lambda: m.Ok())
        rig.core.leave(worker, m.Leave("away"))

    assert len(rig.core._store.items("answer")) == 2 * 256
    assert len(rig.core._store.items("secret")) == 256 + 2, "and those that are there"
    rig.restart()
    for number in range(301, 401):
        rig.core.leave(rig.join("learner", number), m.Leave("away"))
    assert len(rig.core._store.items("secret")) == 256 + 2


def test_a_worker_cannot_fill_the_journal_with_channels(rig: Rig) -> None:
    for number in range(100):
        rig.core.once(rig.learner, Stamp(f"c{number}", 1), lambda: m.Ok())

    assert len(rig.core._store.items("answer")) == 32


def test_a_worker_keeps_its_name_though_the_coordinator_was_started_again_and_it_was_silent(rig: Rig) -> None:
    mine = m.Register("collector", "host", 1, PACKAGE, "mine", secret="ab" * 16)
    thief = m.Register("collector", "elsewhere", 2, PACKAGE, "mine", secret="cd" * 16)
    worker = rig.core.register(mine).worker_id
    rig.restart()
    for is_there in (True, False):
        assert rig.core.secret_of(worker) == ("ab" * 16 if is_there else None)
        with pytest.raises(RefusedError) as caught:
            rig.core.register(thief)
        assert caught.value.code == "name_taken"
        assert rig.core.register(mine).worker_id == worker
        rig.core.leave(worker, m.Leave("silent"))
