"""Rows of processes: what a mode reports of them, and what the system knows."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ding_like.report.details import ProcessReport
from ding_like.report.process_table import ProcessRow, ProcessTable
from tests.support import Clock, wait_until


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def row_of(table: ProcessTable, report: ProcessReport) -> ProcessRow:
    return next(row for row in table.scan([report]) if row.pid == report.pid)


def test_a_stopped_process_is_paused_and_a_continued_one_runs(child: subprocess.Popen[bytes]) -> None:
    table, report = ProcessTable(), ProcessReport("collector0", child.pid)

    before = row_of(table, report)
    child.send_signal(signal.SIGSTOP)
    wait_until(lambda: row_of(table, report).state == "paused")
    child.send_signal(signal.SIGCONT)
    wait_until(lambda: row_of(table, report).state == "running")

    after = row_of(table, report)
    assert before.state == "running" and before.host == socket.gethostname()
    assert after.memory_bytes is not None and after.memory_bytes > 1 << 20
    assert after.cpu is not None and after.cpu >= 0


def test_a_killed_process_is_lost_before_and_after_its_parent_has_reaped_it(child: subprocess.Popen[bytes]) -> None:
    table, report = ProcessTable(), ProcessReport("collector0", child.pid, heartbeat_s=0.1, env_steps_per_s=9.0)
    row_of(table, report)

    child.kill()

    wait_until(lambda: row_of(table, report).state == "lost")  # a zombie
    child.wait()
    last = row_of(table, report)
    assert (last.state, last.heartbeat_s, last.env_steps_per_s, last.memory_bytes) == ("lost", None, None, None)
    assert last.note == "it is gone; another one may have taken its place"


def test_a_replaced_process_stays_as_lost_for_a_minute(child: subprocess.Popen[bytes]) -> None:
    clock = Clock()
    table = ProcessTable(clock=clock)
    table.scan([ProcessReport("collector0", child.pid)])
    child.kill()
    child.wait()

    rows = table.scan([ProcessReport("collector0", os.getppid())])
    clock.advance(59.0)
    later = table.scan([ProcessReport("collector0", os.getppid())])
    clock.advance(2.0)
    last = table.scan([ProcessReport("collector0", os.getppid())])

    assert [(row.name, row.state) for row in rows if row.pid == child.pid] == [("collector0", "lost")]
    assert [row.pid for row in later if row.state == "lost"] == [child.pid]
    assert [row.state for row in last if row.name == "collector0"] == ["running"]


def test_a_process_that_has_ended_as_it_should_is_not_lost(child: subprocess.Popen[bytes]) -> None:
    table = ProcessTable()
    table.scan([ProcessReport("actor1", child.pid, state="ended")])

    assert all(row.state != "lost" for row in table.scan([]))


def test_on_another_machine_only_heartbeats_count() -> None:
    fresh = ProcessReport("collector0", os.getpid(), "another-host", heartbeat_s=3.0)
    old = ProcessReport("collector1", 1, "another-host", heartbeat_s=30.0)

    rows = {row.name: row for row in ProcessTable().scan([fresh, old])}

    assert rows["collector0"].state == "running" and rows["collector0"].memory_bytes is None
    assert rows["collector1"].state == "silent"


def test_rates_are_measured_from_counts_over_ten_seconds() -> None:
    clock = Clock()
    table = ProcessTable(clock=clock)

    for second in range(30):  # a hundred steps a second, later two hundred
        steps = 100 * second + 100 * max(second - 15, 0)
        rows = table.scan([ProcessReport("collector0", 4, "another-host", env_steps=steps, rows=steps // 2)])
        clock.advance(1.0)

    assert rows[1].env_steps_per_s == pytest.approx(200.0) and rows[1].rows_per_s == pytest.approx(100.0)


def test_children_that_no_mode_reports_are_named_or_summed_up(child: subprocess.Popen[bytes]) -> None:
    boot = "from threading import Event\n# from ding_like.envs.manager.process import main\nEvent().wait(60)"
    table = ProcessTable()
    with subprocess.Popen([sys.executable, "-c", boot]) as envs, subprocess.Popen([sys.executable, "-c", boot]) as more:
        wait_until(lambda: "envs 2" in {row.name for row in table.scan([])})  # both run their own program by then
        rows = {row.name: row for row in table.scan([])}
        envs.kill()
        more.kill()

    assert rows["main"].pid == os.getpid()
    assert {rows["envs"].pid, rows["envs 2"].pid} == {envs.pid, more.pid}
    helpers = next(row for name, row in rows.items() if name.endswith("helpers"))
    assert helpers.pid is None and "python" in helpers.note and (helpers.memory_bytes or 0) > 0


def test_of_a_run_that_is_ending_what_is_gone_has_ended(child: subprocess.Popen[bytes]) -> None:
    table, report = ProcessTable(), ProcessReport("collector0", child.pid)
    table.scan([report])
    child.kill()
    child.wait()

    still_reported = table.scan([report], is_ending=True)
    no_more = table.scan([], is_ending=True)

    for rows in (still_reported, no_more):
        assert [(row.state, row.note) for row in rows if row.pid == child.pid] == [("ended", "")]
