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

    def make(*posts: list[Slot], **settings: Any) -> Processes:
        processes = Processes([each for group in posts for each in group], **settings)
        made.append(processes)
        return processes

    yield make
    for processes in made:
        processes.close(timeout_s=2.0)


def post(name: str, *scripts: str, run_as: Callable[[Scripted], Any] = lambda child: child, **settings: Any) -> Slot:
    """Return a post whose members follow these scripts, one after another, the last one from then on."""

    def make(number: int) -> Any:
        return run_as(Scripted((scripts or ("wait",))[min(number, len(scripts) - 1) if scripts else 0], name=name))

    return Slot(name, make, **settings)


def test_a_worker_that_cannot_be_sent_to_a_process_ends_the_start(supervised):
    def make_locked(number: int) -> Any:
        child = Scripted(name="locked")
        child.script = threading.Lock()  # type: ignore[assignment]  # it cannot be pickled
        return child

    processes = supervised([post("well")], [Slot("locked", make_locked)])

    with pytest.raises(ConfigError, match="locked cannot be sent to a process of its own"):
        processes.start()
    assert processes.pids == {}
    processes.close()


def until(processes: Processes, is_so: Callable[[], bool]) -> None:
    """Wait for a condition; raise what ended the processes meanwhile."""

    def checked() -> bool:
        processes.check()
        return is_so()

    wait_until(checked)


def replaced(log: FailureLog) -> int:
    return sum(row.replaced_by is not None for row in log.rows)


def failure_of(processes: Processes) -> Exception:
    """Return what `check` raises in the end."""
    with pytest.raises(Exception) as raised:  # what is raised is the question
        until(processes, lambda: False)
    assert not isinstance(raised.value, AssertionError), "it goes on"
    return raised.value


def test_one_that_is_killed_is_replaced_and_has_a_row(supervised, tmp_path: Path):
    log = FailureLog(tmp_path / FAILURES_FILE)
    lost: list[tuple[str, ...]] = []
    processes = supervised(
        [post("server1", sources=("server1",))], log=log, lost=lambda names: lost.append(tuple(names)) or 7
    )
    processes.start()
    first = processes.pids["server1"]

    os.kill(first, signal.SIGKILL)
    until(processes, lambda: replaced(log) >= 1)

    row = json.loads((tmp_path / FAILURES_FILE).read_text())
    assert (row["worker"], row["kind"], row["role"]) == ("server1", "server", "working")
    assert row["how"] == "was killed by SIGKILL"
    assert row["rows_lost"] == 7
    assert row["replaced_by"] == "server1 (start 2)"
    assert row["replaced_ms"] > 0
    assert lost == [("server1",)]
    assert processes.pids["server1"] != first


def test_one_that_exits_by_itself_is_replaced(supervised):
    log = FailureLog()
    processes = supervised([post("actor1", "stumble", "wait")], log=log)
    processes.start()

    until(processes, lambda: replaced(log) >= 1)

    assert log.rows[0].how == "ended with status 1"
    assert log.rows[0].detail == "TrainingError: actor1: KeyError: 'door'"


def test_one_that_falls_silent_is_killed_and_replaced(supervised):
    log = FailureLog()
    policy = FailurePolicy(step_timeout_s=0.3)
    processes = supervised([post("actor1", sources=("actor1",))], log=log, policy=policy)
    processes.start()
    first = processes.pids["actor1"]

    until(processes, lambda: replaced(log) >= 1)

    assert log.rows[0].how == "actor1 was silent for 0.3 s"
    assert not is_running(first)


def test_silence_while_this_process_was_stopped_restarts_no_worker(supervised):
    log, away_s = FailureLog(), [0.0]
    heard = {"actor1": time.monotonic()}
    processes = supervised(
        [post("actor1", sources=("actor1",)), post("server1")],
        log=log,
        policy=FailurePolicy(step_timeout_s=30.0),
        heard=lambda: heard,
        clock=lambda: time.monotonic() + away_s[0],
    )
    processes.start()
    wait_until(lambda: len(processes.pids) == 2)
    first = processes.pids["actor1"]

    away_s[0] = 100.0  # what a SIGSTOP of this process looks like to its clock
    os.kill(processes.pids["server1"], signal.SIGKILL)
    until(processes, lambda: replaced(log) >= 1)

    assert [row.worker for row in log.rows] == ["server1"]
    assert processes.pids["actor1"] == first


def test_the_run_ends_with_the_cause_once_the_budget_is_spent(supervised):
    policy = FailurePolicy(restarts_per_10min=1)
    processes = supervised([post("actor1", "stumble")], policy=policy)
    processes.start()

    error = failure_of(processes)

    assert isinstance(error, TrainingError)
    assert "actor1 (working) was lost: ended with status 1 (TrainingError: actor1: KeyError: 'door')" in str(error)
    assert "failure.restarts_per_10min=1" in str(error)
    assert "in _stumble" in str(error.__cause__.__cause__)


def test_each_kind_has_a_budget_of_its_own(supervised):
    log = FailureLog()
    processes = supervised([post("actor1"), post("server1")], log=log, policy=FailurePolicy(restarts_per_10min=1))
    processes.start()

    for number, name in enumerate(("actor1", "server1"), start=1):
        os.kill(processes.pids[name], signal.SIGKILL)
        until(processes, lambda number=number: replaced(log) == number)


def test_with_shrink_the_others_go_on_as_long_as_there_is_one(supervised):
    log = FailureLog()
    policy = FailurePolicy(restarts_per_10min=0, when_spent="shrink")
    processes = supervised([post("actor1"), post("actor2")], log=log, policy=policy)
    processes.start()
    pids = processes.pids

    os.kill(pids["actor1"], signal.SIGKILL)
    wait_until(lambda: len(log.rows) >= 1)
    until(processes, lambda: processes.describe().get("actor") == "1 of 2 at work")
    os.kill(pids["actor2"], signal.SIGKILL)

    assert "actor2 (working) was lost" in str(failure_of(processes))


def test_what_the_first_one_cannot_start_for_ends_the_start(supervised):
    processes = supervised([post("server1")], [post("actor1", "refuse")])

    with pytest.raises(EnvError, match="actor1: the env has no doors"):
        processes.start()

    assert processes.pids == {}


def test_a_start_that_is_killed_is_tried_again(supervised):
    log, members = FailureLog(), []

    def make(number: int) -> Scripted:
        members.append(Scripted("never_ready" if number == 0 else "wait", name="actor1"))
        return members[-1]

    processes = supervised([Slot("actor1", make)], log=log)
    killer = threading.Thread(target=lambda: (wait_until(lambda: bool(members and members[0].pid)), members[0].kill()))
    killer.start()

    assert processes.start()

    killer.join()
    assert (log.rows[0].role, log.rows[0].how) == ("starting", "was killed by SIGKILL")


def test_one_that_is_not_ready_in_time_ends_the_start(supervised):
    processes = supervised([post("actor1", "never_ready")], policy=FailurePolicy(start_timeout_s=0.3))

    with pytest.raises(TrainingError, match=r"actor1 was not ready 0\.3 s after its start"):
        processes.start()


def test_a_start_ends_once_the_run_is_to_end(supervised):
    processes = supervised([post("actor1", "never_ready")])

    assert not processes.start(is_leaving=lambda: True)


def test_an_interrupt_in_the_middle_of_a_start_leaves_nothing(supervised):
    processes = supervised([post("server1")], [post("actor1", "never_ready")])

    def interrupt() -> bool:
        if "server1" in processes.pids:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        processes.start(is_leaving=interrupt)

    assert processes.pids == {}


def test_a_part_that_was_lost_and_came_back_has_a_row(supervised):
    log = FailureLog()
    processes = supervised([post("actor_process1", "lose_part")], log=log, lost=lambda names: len(names))
    processes.start()

    until(processes, lambda: replaced(log) >= 1)

    row = log.rows[0]
    assert (row.worker, row.how, row.rows_lost) == ("actor1", "EnvError: step 7 raised", 1)
    assert row.detail == "a thread of actor_process1"


def test_a_part_that_is_gone_ends_the_run_with_its_cause(supervised):
    processes = supervised([post("actor_process1", "give_part_up")])

    with pytest.raises(EnvError, match="actor1: step 7 raised"):
        processes.start()
        raise failure_of(processes)


def test_with_shrink_the_other_parts_of_a_process_go_on_without_one_that_is_gone(supervised):
    log = FailureLog()
    posts = [post("actor_process1", "lose_one_of_two", sources=("actor1", "actor2"))]
    begun_s = time.monotonic()
    processes = supervised(
        posts,
        log=log,
        policy=FailurePolicy(step_timeout_s=0.3, when_spent="shrink"),
        heard=lambda: {"actor1": begun_s, "actor2": time.monotonic()},
    )
    processes.start()
    until(processes, lambda: not processes.is_expected("actor1"))

    threading.Event().wait(0.7)

    assert [row.worker for row in log.rows] == ["actor1"]
    assert processes.is_expected("actor2")
    assert "actor_process1" in processes.pids


def test_one_that_is_done_is_not_replaced(supervised):
    log = FailureLog()
    processes = supervised([post("actor1", "done"), post("server1")], log=log)
    processes.start(is_leaving=lambda: "server1" in processes.pids)
    first = processes.pids["server1"]

    os.kill(first, signal.SIGKILL)
    until(processes, lambda: replaced(log) >= 1)

    assert [row.worker for row in log.rows] == ["server1"]


def test_close_ends_also_those_that_do_not_listen_or_are_stopped(supervised):
    processes = supervised([post("actor1", "ignore"), post("actor2"), post("server1", "ignore")])
    processes.start()
    pids = processes.pids
    for name in ("actor2", "server1"):
        os.kill(pids[name], signal.SIGSTOP)

    processes.close(timeout_s=2.0)
    processes.close()

    assert not any(map(is_running, pids.values()))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# --- the policy


def test_the_defaults_are_those_of_the_config() -> None:
    assert FailurePolicy() == FailurePolicy(3, 60.0, 120.0, "stop")


def test_a_budget_slides_with_time() -> None:
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
    log = FailureLog(tmp_path / "failures.jsonl")
    first = log.note("collector1", how="process died")
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


def test_the_file_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        FailureLog(tmp_path / "failures.jsonl").note("collector1", how="process died")
    finally:
        os.umask(before)

    assert (tmp_path / "failures.jsonl").stat().st_mode & 0o777 == 0o600


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


def test_a_log_without_a_file_keeps_rows() -> None:
    log = FailureLog()
    log.note("collector1", how="process died")

    assert [row.worker for row in log.rows] == ["collector1"]


def test_percentiles_are_of_what_was_replaced() -> None:
    log = FailureLog()
    for ms in (None, 10.0, 20.0, 30.0, 40.0):
        log.note("collector1", how="process died", replaced_ms=ms, rows_lost=8)

    assert str(log) == "5 lost, 40 rows with them; 4 replaced in 25 ms (p50), 38 ms (p95)"


def test_a_log_without_failures_is_none_lost() -> None:
    assert str(FailureLog()) == "none lost"


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


def test_a_child_reports_ready_to_its_parent(started):
    child = started("wait")

    info = child.wait_ready(timeout_s=_START_S)

    assert info == {"pid": child.pid}


def test_sigterm_ends_a_child_cleanly(started, tmp_path: Path):
    child = started("write_then_wait", folder=tmp_path)
    child.wait_ready(timeout_s=_START_S)

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
