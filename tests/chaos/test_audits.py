"""The audits find what they are there to find; made-up ledgers, rows and a saved state stand for the run."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.chaos.audit import Quiet, RunAudit
from tests.chaos.counting_env import checksum, pack_keys, recognise
from tests.chaos.proxy import route_of
from tests.chaos.report import Report
from tests.chaos.run_recorder import Rows, Updates, audit_rows, audit_updates

_ROWS = 64
_ALWAYS = [Quiet(0.0, 1000.0)]


def _keys(number: int) -> str:
    """Return the keys of a segment's rows: steps of one episode of an env with that number."""
    whole = np.array([[number, 1, 1, step] for step in range(_ROWS)], np.uint64)
    return pack_keys({"obs": np.column_stack([whole, checksum(whole)]) / 2.0**24})


class MadeUpRun:
    """Write what a run leaves that sends a segment each second, and takes 8 updates for each but the first."""

    def __init__(self, folder: Path, segments: int = 10) -> None:
        self.folder = folder
        self.segments = [f"collector-a.{number:08d}" for number in range(segments)]
        self.acted = {name: [1, max(8 * number - 8, 0)] for number, name in enumerate(self.segments)}
        self.keys = {name: _keys(number) for number, name in enumerate(self.segments)}
        self.known = list(self.segments)  # to the coordinator
        self.granted = self.received = self.learned = 8 * (segments - 1)

    def audit(self, **named: Any) -> dict[str, bool]:
        """Return which checks are met."""
        self._write()
        report = Report("made_up")
        run: Any = SimpleNamespace(place=self.folder, ledger=self.folder)
        RunAudit(run, (64, 64, 8)).judge(report, _ALWAYS, **named)
        return {check["what"]: check["ok"] for check in report.checks}

    def _write(self) -> None:
        lines: list[dict[str, Any]] = []
        for number, name in enumerate(self.segments):
            at = {"t": float(number), "at": float(number), "pid": 1, "name": name, "env_steps": _ROWS}
            lines.append({**at, "kind": "written", "acted": self.acted[name], "keys": self.keys[name], "torn": 0})
            lines.append({**at, "kind": "ack", "rows": _ROWS, "worker": "collector-a", "task": "c-1", "attempt": 1})
        (self.folder / "collector-1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        common = {"pid": 2, "attempt": 1, "begun": 0, "torn": 0, "doubled": 0, "segments": []}
        learned = [
            {**common, "t": s, "at": s, "kind": "batch", "iter": 8 * s - 8, "received": 0, "learned": 0, "drawn": 0}
            for s in range(1, len(self.segments) + 1)
        ]
        learned[-1].update(kind="end", received=self.received, learned=self.learned)
        (self.folder / "learner-2.jsonl").write_text("".join(json.dumps(line) + "\n" for line in learned))
        self._write_state()

    def _write_state(self) -> None:
        (self.folder / "run").mkdir()
        book = {"env_step": _ROWS * len(self.known), "granted_updates": self.granted}
        run = {"book": book, "learn_iter": self.learned}
        entries = [
            {"serial": n + 1, "name": name, "rows": _ROWS, "first_row": n * _ROWS} for n, name in enumerate(self.known)
        ]
        with closing(sqlite3.connect(self.folder / "run/coordinator.sqlite")) as db, db:
            db.execute("CREATE TABLE item (kind TEXT, key TEXT, value TEXT)")
            db.execute("INSERT INTO item VALUES ('run', 'run', ?)", (json.dumps(run),))
            for each in entries:
                db.execute("INSERT INTO item VALUES ('segment', ?, ?)", (each["name"], json.dumps(each)))


@pytest.fixture
def run(tmp_path: Path) -> MadeUpRun:
    return MadeUpRun(tmp_path)


def test_a_run_without_a_fault_meets_every_bar(run: MadeUpRun) -> None:
    assert all(run.audit().values())


def test_a_segment_that_is_not_known_is_lost(run: MadeUpRun) -> None:
    run.known.pop()
    run.granted = run.received = run.learned = run.learned - 8

    assert not run.audit()["acknowledged rows lost"]


def test_rows_that_come_in_two_segments_are_doubled(run: MadeUpRun) -> None:
    run.keys[run.segments[3]] = run.keys[run.segments[2]]

    assert not run.audit()["rows doubled"]


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("granted", "updates granted and not received"),
        ("received", "updates received and not learned"),
        ("learned", "updates received and not learned"),
    ],
)
def test_updates_that_differ_are_found(run: MadeUpRun, name: str, check: str) -> None:
    setattr(run, name, getattr(run, name) - 1)

    assert not run.audit()[check]


def test_weights_that_stay_the_same_are_too_old(run: MadeUpRun) -> None:
    run.acted = {name: [1, 0] for name in run.segments}

    assert not run.audit()["age of the weights acted with, worst s"]


def test_older_weights_than_before_are_found(run: MadeUpRun) -> None:
    run.acted[run.segments[5]] = [1, 0]

    assert not run.audit()["times that a collector acted with older weights than before"]


@pytest.mark.parametrize(
    ("request_line", "route"),
    [
        ("POST /v1/workers HTTP/1.1", "POST workers"),
        ("POST /v1/workers/learner-1/heartbeat HTTP/1.1", "POST workers/*/heartbeat"),
        ("POST /v1/tasks/claim HTTP/1.1", "POST tasks/claim"),
        ("POST /v1/tasks/collect-2/data?x=1 HTTP/1.1", "POST tasks/*/data"),
        ("GET /v1/weights/policy/1-20 HTTP/1.1", "GET weights/*"),
    ],
)
def test_the_route_of_a_request_has_no_ids(request_line: str, route: str) -> None:
    assert route_of(request_line.encode()) == route


def keys(uid: int, number: int = 8) -> Any:
    """Return the keys of steps of one episode of an env with that number."""
    whole = np.array([[uid, 1, 1, step] for step in range(number + 1)], np.uint64)
    obs = (np.column_stack([whole, checksum(whole)]) / 2.0**24).astype(np.float32)
    found = recognise({"obs": obs[:-1], "next_obs": obs[1:], "action": np.zeros(number), "reward": np.zeros(number)})
    assert found.torn == 0
    return found.keys


def test_rows_that_are_lost_doubled_or_unknown_are_found() -> None:
    segments = [keys(uid) for uid in range(5)]
    stored = np.concatenate(segments)

    assert audit_rows(segments, stored) == Rows(40, 40, 0, 0, 0, 0)
    assert audit_rows(segments, stored[np.arange(40) != 17]).lost == 1
    assert audit_rows(segments, np.concatenate([*segments[:2], *segments[3:]])).lost == 8
    part_of_the_last, last_two_waiting = audit_rows(segments, stored[:39]), audit_rows(segments, stored[:24])
    assert (part_of_the_last.lost, part_of_the_last.waiting) == (1, 0)
    assert (last_two_waiting.lost, last_two_waiting.waiting) == (0, 16)
    strange = audit_rows(segments, np.concatenate([stored, segments[1][:3], keys(77, 2)]))
    assert (strange.doubled, strange.unknown) == (3, 2)


def test_updates_that_are_lost_doubled_or_changed_are_found() -> None:
    drawn = np.random.default_rng(0).integers(-512, 512, (20, 16)) / 64.0
    changed = drawn.copy()
    changed[3] += 1 / 64

    assert audit_updates(drawn, drawn[::-1]) == Updates(20, 20, 0, 0)
    assert audit_updates(drawn, drawn[1:]) == Updates(20, 19, 1, 0)
    assert audit_updates(drawn, np.concatenate([drawn, drawn[:1]])) == Updates(20, 21, 0, 1)
    assert audit_updates(drawn, changed) == Updates(20, 20, 1, 1)
