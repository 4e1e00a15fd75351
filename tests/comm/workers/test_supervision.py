from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ding_like.comm.workers import failures
from ding_like.comm.workers.failures import FAILURES_FILE, FailureLog, FailurePolicy, RestartBudget
from ding_like.comm.workers.processes import ChildProcess, ChildThread, Processes, Slot
from ding_like.errors import CommError, ConfigError, EnvError, TrainingError
from tests.comm.workers.scripted_children import Scripted, is_running
from tests.support import Clock, wait_until


@pytest.fixture
def supervised():
    """Return what makes `Processes` of posts, closed in the end."""
    made: list[Processes] = []

    def make(*posts: Slot, **settings: Any) -> Processes:
        made.append(Processes(posts, **settings))
        return made[-1]

    yield make
    for processes in made:
        processes.close(timeout_s=2.0)


@pytest.fixture
def running(supervised):
    """Return what makes and starts `Processes` of posts, and returns them with their log."""

    def make(*posts: Slot, log: FailureLog | None = None, **settings: Any) -> tuple[Processes, FailureLog]:
        log = log or FailureLog()
        processes = supervised(*posts, log=log, **settings)
        processes.start()
        return processes, log

    return make


def post(name: str, *scripts: str, sources: tuple[str, ...] = ()) -> Slot:
    """Return a post whose members follow these scripts, one after another, the last one from then on."""
    return Slot(name, lambda number: Scripted((scripts or ("wait",))[: number + 1][-1], name=name), sources=sources)


def until(processes: Processes, is_so: Callable[[], bool]) -> None:
    """Wait for a condition; raise what ended the processes meanwhile."""

    def checked() -> bool:
        processes.check()
        return is_so()

    wait_until(checked)


def until_replaced(processes: Processes, log: FailureLog, number: int = 1) -> None:
    until(processes, lambda: sum(row.replaced_by is not None for row in log.rows) >= number)


def failure_of(processes: Processes) -> Exception:
    """Return what `check` raises in the end."""
    with pytest.raises(Exception) as raised:  # what is raised is the question
        until(processes, lambda: False)
    assert not isinstance(raised.value, AssertionError), "it goes on"
    return raised.value


def make_locked(number: int) -> Scripted:
    child = Scripted(name="locked")
    child.script = threading.Lock()  # type: ignore[assignment]  # it cannot be pickled
    return child


@pytest.mark.parametrize(
    ("slots", "within_s", "error", "said"),
    [
        ((post("well"), Slot("locked", make_locked)), 60.0, ConfigError, "locked cannot be sent to a process of its"),
        ((post("well"), post("actor1", "refuse")), 60.0, EnvError, "actor1: the env has no doors"),
        ((post("actor1", "never_ready"),), 0.3, TrainingError, r"actor1 was not ready 0\.3 s after its start"),
    ],
)
def test_what_the_first_one_cannot_start_for_ends_the_start(supervised, slots, within_s: float, error: Any, said: str):
    processes = supervised(*slots, policy=FailurePolicy(start_timeout_s=within_s))

    with pytest.raises(error, match=said):
        processes.start()
    assert processes.pids == {}
    processes.close()


def test_one_that_is_killed_is_replaced_and_has_a_row(running, tmp_path: Path):
    lost: list[tuple[str, ...]] = []
    slot = post("server1", sources=("server1",))
    processes, log = running(
        slot, log=FailureLog(tmp_path / FAILURES_FILE), lost=lambda names: lost.append(tuple(names)) or 7
    )
    first = processes.pids["server1"]

    os.kill(first, signal.SIGKILL)
    until_replaced(processes, log)

    row = json.loads((tmp_path / FAILURES_FILE).read_text())
    assert (row["worker"], row["kind"], row["role"]) == ("server1", "server", "working")
    assert (row["how"], row["rows_lost"]) == ("was killed by SIGKILL", 7)
    assert row["replaced_by"] == "server1 (start 2)" and row["replaced_ms"] > 0
    assert lost == [("server1",)] and processes.pids["server1"] != first


def test_one_that_exits_by_itself_is_replaced(running):
    processes, log = running(post("actor1", "stumble", "wait"))

    until_replaced(processes, log)

    assert log.rows[0].how == "ended with status 1"
    assert log.rows[0].detail == "TrainingError: actor1: KeyError: 'door'"


def test_one_that_falls_silent_is_killed_and_replaced(running):
    processes, log = running(post("actor1", sources=("actor1",)), policy=FailurePolicy(step_timeout_s=0.3))
    first = processes.pids["actor1"]

    until_replaced(processes, log)

    assert log.rows[0].how == "actor1 was silent for 0.3 s" and not is_running(first)


def test_silence_while_this_process_was_stopped_restarts_no_worker(running):
    away_s, heard = [0.0], {"actor1": time.monotonic()}
    processes, log = running(
        post("actor1", sources=("actor1",)),
        post("server1"),
        policy=FailurePolicy(step_timeout_s=30.0),
        heard=lambda: heard,
        clock=lambda: time.monotonic() + away_s[0],
    )
    first = processes.pids["actor1"]

    away_s[0] = 100.0  # what a SIGSTOP of this process looks like to its clock
    os.kill(processes.pids["server1"], signal.SIGKILL)
    until_replaced(processes, log)

    assert [row.worker for row in log.rows] == ["server1"]
    assert processes.pids["actor1"] == first


def test_the_run_ends_with_the_cause_once_the_budget_is_spent(running):
    processes, _ = running(post("actor1", "stumble"), policy=FailurePolicy(restarts_per_10min=1))

    error = failure_of(processes)

    assert isinstance(error, TrainingError)
    assert "actor1 (working) was lost: ended with status 1 (TrainingError: actor1: KeyError: 'door')" in str(error)
    assert "failure.restarts_per_10min=1" in str(error)
    assert "in _stumble" in str(error.__cause__.__cause__)


def test_each_kind_has_a_budget_of_its_own(running):
    processes, log = running(post("actor1"), post("server1"), policy=FailurePolicy(restarts_per_10min=1))

    for number, name in enumerate(("actor1", "server1"), start=1):
        os.kill(processes.pids[name], signal.SIGKILL)
        until_replaced(processes, log, number)


def test_with_shrink_the_others_go_on_as_long_as_there_is_one(running):
    policy = FailurePolicy(restarts_per_10min=0, when_spent="shrink")
    processes, log = running(post("actor1"), post("actor2"), policy=policy)
    pids = processes.pids

    os.kill(pids["actor1"], signal.SIGKILL)
    wait_until(lambda: len(log.rows) >= 1)
    until(processes, lambda: processes.describe().get("actor") == "1 of 2 at work")
    os.kill(pids["actor2"], signal.SIGKILL)

    assert "actor2 (working) was lost" in str(failure_of(processes))


def test_a_start_that_is_killed_is_tried_again(supervised):
    log, members = FailureLog(), []

    def make(number: int) -> Scripted:
        members.append(Scripted("never_ready" if number == 0 else "wait", name="actor1"))
        return members[-1]

    processes = supervised(Slot("actor1", make), log=log)
    killer = threading.Thread(target=lambda: (wait_until(lambda: bool(members and members[0].pid)), members[0].kill()))
    killer.start()

    assert processes.start()

    killer.join()
    assert (log.rows[0].role, log.rows[0].how) == ("starting", "was killed by SIGKILL")


def test_a_start_ends_once_the_run_is_to_end_and_an_interrupt_leaves_nothing(supervised):
    assert not supervised(post("actor1", "never_ready")).start(is_leaving=lambda: True)
    processes = supervised(post("server1"), post("actor1", "never_ready"))

    def interrupt() -> bool:
        if "server1" in processes.pids:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        processes.start(is_leaving=interrupt)
    assert processes.pids == {}


def test_a_part_that_was_lost_and_came_back_has_a_row(running):
    processes, log = running(post("actor_process1", "lose_part"), lost=lambda names: len(names))

    until_replaced(processes, log)

    row = log.rows[0]
    assert (row.worker, row.how, row.rows_lost) == ("actor1", "EnvError: step 7 raised", 1)
    assert row.detail == "a thread of actor_process1"


def test_a_part_that_is_gone_ends_the_run_with_its_cause(running):
    with pytest.raises(EnvError, match="actor1: step 7 raised"):
        processes, _ = running(post("actor_process1", "give_part_up"))
        raise failure_of(processes)


def test_with_shrink_the_other_parts_of_a_process_go_on_without_one_that_is_gone(running):
    begun_s = time.monotonic()
    processes, log = running(
        post("actor_process1", "lose_one_of_two", sources=("actor1", "actor2")),
        policy=FailurePolicy(step_timeout_s=0.3, when_spent="shrink"),
        heard=lambda: {"actor1": begun_s, "actor2": time.monotonic()},
    )
    until(processes, lambda: not processes.is_expected("actor1"))

    threading.Event().wait(0.7)

    assert [row.worker for row in log.rows] == ["actor1"]
    assert processes.is_expected("actor2") and "actor_process1" in processes.pids


def test_one_that_is_done_is_not_replaced(supervised):
    log = FailureLog()
    processes = supervised(post("actor1", "done"), post("server1"), log=log)
    processes.start(is_leaving=lambda: "server1" in processes.pids)

    os.kill(processes.pids["server1"], signal.SIGKILL)
    until_replaced(processes, log)

    assert [row.worker for row in log.rows] == ["server1"]


def test_close_ends_also_those_that_do_not_listen_or_are_stopped(running):
    processes, _ = running(post("actor1", "ignore"), post("actor2"), post("server1", "ignore"))
    pids = processes.pids
    for name in ("actor2", "server1"):
        os.kill(pids[name], signal.SIGSTOP)

    processes.close(timeout_s=2.0)
    processes.close()

    assert not any(map(is_running, pids.values()))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# --- the policy


def test_a_budget_slides_with_time() -> None:
    assert FailurePolicy() == FailurePolicy(3, 60.0, 120.0, "stop")
    clock = Clock()
    budget = RestartBudget(2, clock=clock)
    spent = []
    for seconds in (0.0, 300.0, 299.9, 0.1, 0.0, 300.0):
        clock.now += seconds
        spent.append(budget.spend())

    assert spent == [True, True, False, True, False, True]


# --- the log


def test_a_row_says_who_how_when_and_by_whom_replaced(tmp_path: Path) -> None:
    clock = Clock()
    log = FailureLog(tmp_path / "failures.jsonl", clock=clock)
    clock.now += 12.5

    log.note("collector3", how="process died", replaced_by="collector4", replaced_ms=27.0, rows_lost=64)

    (row,) = lines(tmp_path / "failures.jsonl")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d{4}", row.pop("time"))
    assert row == {
        "worker": "collector3", "kind": "collector", "role": "working", "how": "process died", "detail": "",
        "rows_lost": 64, "replaced_by": "collector4", "replaced_ms": 27.0, "since_start_s": 12.5,
    }  # fmt: skip


def test_a_row_is_in_the_file_at_once_and_its_line_changes_with_it(tmp_path: Path) -> None:
    log, umask = FailureLog(tmp_path / "failures.jsonl"), os.umask(0)
    try:
        first = log.note("collector1", how="process died")
    finally:
        os.umask(umask)
    assert (tmp_path / "failures.jsonl").stat().st_mode & 0o777 == 0o600
    log.note("gradient1", how="no answer for 120 s")
    before = lines(tmp_path / "failures.jsonl")

    log.amend(first, replaced_by="collector3", replaced_ms=3300.0)

    after = lines(tmp_path / "failures.jsonl")
    assert [row["replaced_by"] for row in before] == [None, None]
    assert [(row["worker"], row["replaced_by"]) for row in after] == [("collector1", "collector3"), ("gradient1", None)]


def test_what_an_earlier_stretch_of_the_run_wrote_stays(tmp_path: Path) -> None:
    path = tmp_path / "failures.jsonl"
    FailureLog(path).note("collector1", how="process died")
    with open(path, "a") as file:
        file.write('{"worker": "half a li')  # the process was killed

    FailureLog(path).note("collector2", how="process died")

    assert [row["worker"] for row in lines(path)] == ["collector1", "collector2"]


def test_a_disk_that_is_full_is_said_once_and_rows_are_written_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = FailureLog(tmp_path / "failures.jsonl")
    log.note("collector1", how="process died")

    def refuse(path: str, flags: int) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full, caplog.at_level(logging.WARNING, "ding_like"):
        full.setattr(failures, "_open_private", refuse)
        log.note("collector2", how="process died")
        log.note("collector3", how="process died")
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert [row["worker"] for row in lines(tmp_path / "failures.jsonl")] == ["collector1"]
        assert len(log.rows) == 3
    log.note("collector4", how="process died")

    assert [row["worker"] for row in lines(tmp_path / "failures.jsonl")] == [f"collector{n}" for n in range(1, 5)]


def test_percentiles_are_of_what_was_replaced() -> None:
    log = FailureLog()
    assert str(log) == "none lost"
    for ms in (None, 10.0, 20.0, 30.0, 40.0):
        log.note("collector1", how="process died", replaced_ms=ms, rows_lost=8)

    assert [row.worker for row in log.rows] == ["collector1"] * 5
    assert str(log) == "5 lost, 40 rows with them; 4 replaced in 25 ms (p50), 38 ms (p95)"


_START_S = 60.0  # a busy machine starts interpreters slowly


@pytest.fixture
def started():
    children: list[ChildProcess] = []

    def start(script: str, **settings) -> Scripted:
        child = Scripted(script, **settings)
        children.append(child)
        child.start()
        return child

    yield start
    for child in children:
        child.end(timeout_s=0.2)


def test_sigterm_ends_a_child_cleanly(started, tmp_path: Path):
    child = started("write_then_wait", folder=tmp_path)
    assert child.wait_ready(timeout_s=_START_S) == {"pid": child.pid}

    child.terminate()
    child.join(_START_S)

    assert child.exitcode == 0
    assert (tmp_path / "ended-child").exists()


def test_a_child_that_does_not_listen_ends_itself_after_its_grace(started):
    child = started("ignore", grace_s=0.2)
    child.wait_ready(timeout_s=_START_S)

    child.terminate()
    child.join(_START_S)

    assert child.exitcode == 1


def test_what_a_child_raises_is_known_with_its_place(started):
    child = started("refuse")

    with pytest.raises(EnvError, match="child: the env has no doors") as raised:
        child.wait_ready(timeout_s=_START_S)

    assert "in _refuse" in str(raised.value.__cause__)
    assert child.exitcode == 1


def test_a_child_that_is_not_ready_in_time_is_an_error(started):
    child = started("never_ready")

    with pytest.raises(CommError, match=r"child was not ready within 0\.1 s"):
        child.wait_ready(timeout_s=0.1)


def test_a_crash_is_described_by_its_signal_and_the_last_line_of_output(started, tmp_path: Path):
    child = started("crash", output=tmp_path / "child.txt")
    child.wait_ready(timeout_s=_START_S)

    child.join(_START_S)

    assert child.how_it_ended().startswith("was killed by SIGSEGV (")
    assert "Segmentation fault" in (tmp_path / "child.txt").read_text()
    assert (tmp_path / "child.txt").stat().st_mode & 0o777 == 0o600


def test_a_kill_takes_along_what_the_child_has_started(started):
    child = started("have_child")
    grandchild = child.wait_ready(timeout_s=_START_S)["child"]

    child.kill()

    wait_until(lambda: not is_running(grandchild))


_PARENT = """
import os, sys
from tests.comm.workers.scripted_children import Scripted

if __name__ == "__main__":
    child = Scripted("wait")
    child.start()
    print(child.wait_ready(timeout_s=30.0)["pid"], flush=True)
    if sys.argv[1] == "inherited":  # another process holds the parent's end of the pipe
        if os.fork() == 0:
            os.close(1)
            os.read(0, 1)
            os._exit(0)
    os.read(0, 1)
"""


@pytest.mark.parametrize("pipe", ["own", "inherited"])
def test_a_child_ends_with_a_parent_that_is_killed(tmp_path: Path, pipe: str):
    if pipe == "inherited" and sys.platform != "linux":
        pytest.skip("only Linux tells of a parent's end")
    script = tmp_path / "parent.py"
    script.write_text(_PARENT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = [sys.executable, str(script), pipe]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as parent:
        pid = int(parent.stdout.readline())

        parent.kill()
        parent.wait()

        wait_until(lambda: not is_running(pid))


def test_a_thread_can_do_the_work_of_a_child():
    thread = ChildThread(Scripted("wait"))
    thread.start()

    thread.terminate()
    wait_until(lambda: not thread.is_alive())

    assert [message["kind"] for message in thread.take_messages()] == ["ready"]
    assert thread.exitcode == 0
    thread.release()


def test_what_a_thread_raises_is_known():
    thread = ChildThread(Scripted("refuse"))
    thread.start()
    os.read(thread.sentinel, 1)

    thread.take_messages()

    assert isinstance(thread.error(), EnvError)
    assert thread.how_it_ended() == "ended with status 1"
    thread.release()
