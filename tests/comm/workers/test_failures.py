"""Lost workers: what is put up with, and what is written down of each."""

from __future__ import annotations

import json
import logging
import os
import re
from pathlib import Path
from typing import Any

import pytest

from ding_like.comm.workers import failures
from ding_like.comm.workers.failures import FailureLog, FailurePolicy, RestartBudget
from tests.support import Clock


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
