"""Hold what a coordinator saved, and the segments on disk, against its workers' ledgers: rows, updates, weights."""

from __future__ import annotations

import bisect
import itertools
import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ding_like.comm.rest.messages import ROWS_PER_SEGMENT
from ding_like.data.segment_file import SegmentError, read_segment
from tests.chaos.counting_env import num_doubled, recognise, unpack_keys
from tests.chaos.ledger import read_ledgers
from tests.chaos.live_run import LiveRun
from tests.chaos.report import Report


class Audit(NamedTuple):
    """Numbers of segments and rows of a run, and of the faults among them."""

    segments: int
    rows: int
    lost_rows: int  # acknowledged, and not in the index
    unreadable: int  # segments of the index
    torn_rows: int
    doubled_rows: int  # in the index
    overlapping: int  # row numbers that two segments have


def saved_segments(state_file: Path) -> dict[str, dict[str, Any]]:
    """Return the index's entries by name of the segment."""
    with sqlite3.connect(state_file) as db:
        rows = db.execute("SELECT value FROM item WHERE kind = 'segment'").fetchall()
    db.close()
    entries = [json.loads(value) for (value,) in rows]
    return {each["name"]: each for each in entries}


def audit(state_file: Path, data: Path | None, acked: Iterable[Mapping[str, Any]]) -> Audit:
    """Look at every row of the index; `acked` are the ledgers' lines of kind 'ack'. Nothing may have been evicted.

    Without `data` the files' contents are not looked at.
    """
    index = saved_segments(state_file)
    lost = sum(each["rows"] for each in {line["name"]: line for line in acked}.values() if each["name"] not in index)
    entries = sorted(index.values(), key=lambda each: each["serial"])
    numbers = np.concatenate(
        [each["first_row"] + np.arange(each["rows"]) for each in entries] or [np.zeros(0, np.int64)]
    )
    serials = [each["serial"] for each in entries]
    keys, torn, unreadable = [], 0, 0
    for each in entries if data is not None else []:
        assert each["rows"] < ROWS_PER_SEGMENT
        try:
            columns, _ = read_segment(
                data, each["name"], rows=each["rows"], sha256=each["sha256"], nbytes=each["nbytes"]
            )
        except SegmentError:
            unreadable += 1
            continue
        found = recognise(columns)
        keys.append(found.keys)
        torn += found.torn
    doubled = num_doubled(np.concatenate(keys)) if keys else 0
    overlapping = len(numbers) - len(np.unique(numbers)) + len(serials) - len(set(serials))
    return Audit(len(entries), len(numbers), lost, unreadable, torn, doubled, overlapping)


Line = dict[str, Any]
_SEGMENT_ROWS = 64
_GRACE_S = 2.0  # after a recovery, before the age of weights counts; and the age that they may have


class Quiet(NamedTuple):
    """Interval without faults, from a recovery to the next fault, in seconds of the monotonic clock."""

    since: float
    until: float


def saved_run(state: Path) -> Line:
    """Return what the coordinator saved of the run as a whole."""
    with closing(sqlite3.connect(state)) as db:
        (text,) = db.execute("SELECT value FROM item WHERE kind = 'run'").fetchone()
    found: Line = json.loads(text)
    return found


class RunAudit:
    """Read what a run left. `ratio` is (warm-up steps, env steps, updates) of the config; None: on-policy."""

    def __init__(self, run: LiveRun, ratio: tuple[int, int, int] | None) -> None:
        self._state = run.place / "run/coordinator.sqlite"
        self._ratio = ratio
        collected = read_ledgers(run.ledger, "collector")
        self._learned = read_ledgers(run.ledger, "learner")
        # A name may be written down twice where it was announced twice.
        self._written = {line["name"]: line for line in collected if line["kind"] == "written"}
        self._acks = {line["name"]: line for line in collected if line["kind"] == "ack"}
        self._saved = saved_run(self._state)

    def judge(self, report: Report, quiet: Sequence[Quiet], *, lost_lives: int = 0) -> None:
        """Put figures and checks into a report; `lost_lives` are kills of the learner."""
        report.at_least("attempts at learning", len(self._lives()), 1)
        if not self._lives():
            return
        self._judge_rows(report)
        if self._ratio is None:
            self._judge_on_policy_updates(report, lost_lives)
        else:
            self._judge_updates(report, self._ratio)
        report.at_most("updates in memory that a new attempt began without", self._lost_by_the_living(), 0)
        ages = self._ages(quiet)
        report.figures["acts_looked_at"] = len(ages)
        report.figures["oldest_weights_s"] = round(max(ages, default=float("nan")), 2)
        report.at_most("age of the weights acted with, worst s", max(ages, default=float("nan")), _GRACE_S)
        report.at_most("times that a collector acted with older weights than before", self._steps_back(), 0)

    # --- rows

    def _judge_rows(self, report: Report) -> None:
        env_step = self._saved["book"]["env_step"]
        acked = sum(line["env_steps"] for line in self._acks.values())
        written = sum(line["env_steps"] for line in self._written.values())
        keys = [unpack_keys(line["keys"]) for line in self._written.values()]
        lost, overlapping = max(acked - env_step, 0), 0
        if self._ratio is not None:  # on-policy, segments that were learned from are forgotten
            found = audit(self._state, None, self._acks.values())
            lost, overlapping = lost + found.lost_rows, found.overlapping
        report.figures.update(env_step=env_step, acked_segments=len(self._acks), acked_rows=acked)
        report.at_most("acknowledged rows lost", lost, 0)
        doubled = num_doubled(np.concatenate(keys)) if keys else 0
        report.at_most("rows doubled", doubled + overlapping + max(env_step - written, 0), 0)
        torn = max((line["torn"] for line in [*self._learned, *self._written.values()]), default=float("nan"))
        in_batch = max((line["doubled"] for line in self._learned), default=float("nan"))
        report.at_most("rows torn in a segment or a batch", torn, 0)
        report.at_most("rows doubled in a batch", in_batch, 0)

    # --- updates

    def _lost_by_the_living(self) -> int:
        """Return how many updates a learner had made and not any more, though its process lives on."""
        return sum(
            max(before[-1]["learned"] - after[0]["begun"], 0)
            for before, after in itertools.pairwise(self._lives())
            if before[0]["pid"] == after[0]["pid"]
        )

    def _lives(self) -> list[list[Line]]:
        """Return the lines of each attempt of each learner, in the order of time."""
        lives: dict[tuple[int, int], list[Line]] = {}
        for line in self._learned:
            lives.setdefault((line["pid"], line["attempt"]), []).append(line)
        return sorted(lives.values(), key=lambda own: float(own[0]["at"]))

    def _judge_updates(self, report: Report, ratio: tuple[int, int, int]) -> None:
        """Look whether granted = received = learned = what the env steps allow."""
        warmup, steps, updates = ratio
        book, last = self._saved["book"], self._lives()[-1][-1]
        allowed = max(0, book["env_step"] - warmup) * updates // steps
        received = last["begun"] + last["received"]
        report.figures.update(
            updates_allowed=allowed, updates_granted=book["granted_updates"], updates_received=received,
            updates_learned=last["learned"], attempts_of_the_learner=len(self._lives()),
        )  # fmt: skip
        # Segments sent after the learner received its end are not learned from: at most one of each collector.
        most = len({line["worker"] for line in self._acks.values()}) * _SEGMENT_ROWS * updates // steps
        report.at_most("updates granted beyond what the env steps allow", book["granted_updates"] - allowed, 0)
        report.at_most("updates allowed and not granted", allowed - book["granted_updates"], most)
        report.at_most("updates granted and not received", abs(book["granted_updates"] - received), 0)
        report.at_most("updates received and not learned", abs(received - last["learned"]), 0)
        report.at_most(
            "updates that the coordinator was not told of", abs(self._saved["learn_iter"] - last["learned"]), 0
        )

    def _judge_on_policy_updates(self, report: Report, lost_lives: int) -> None:
        """Look at each batch: of the newest weights, and taken once; a learner that dies loses one at most."""
        granted = self._saved["book"]["granted_updates"]
        lives = self._lives()
        drawn = sum(own[-1]["drawn"] for own in lives)
        received = sum(own[-1]["received"] for own in lives)
        batches = [line for line in self._learned if line["kind"] == "batch"]
        old = sum(self._is_old(line) for line in batches)
        again = [name for line in batches for name in line["segments"]]
        report.figures.update(
            batches_granted=granted, batches_received=received, batches_learned=drawn,
            batches_of_old_weights=old, attempts_of_the_learner=len(lives), learner_iter=lives[-1][-1]["learned"],
        )  # fmt: skip
        report.at_least("batches learned", drawn, 1)
        report.at_most("batches of other weights than the newest", old, 0)
        report.at_most("segments learned from twice", len(again) - len(set(again)), 0)
        report.at_most("batches granted and not received", abs(granted - received), lost_lives)
        report.at_most("batches received and not learned", abs(received - drawn), lost_lives)

    def _is_old(self, batch: Line) -> bool:
        """Tell whether a batch has rows of other weights than the learner has."""
        acted = [self._written[name]["acted"] if name in self._written else None for name in batch["segments"]]
        return any(each != [batch["attempt"], batch["iter"]] for each in acted) or not acted

    # --- weights

    def _ages(self, quiet: Sequence[Quiet]) -> list[float]:
        """Return, for each segment of a quiet time, for how many seconds its weights had not been the newest.

        A learner writes each 0.1 s how far it is; weights are old from the first line on that is beyond them.
        """
        lines = [line for line in self._learned if line["kind"] == "batch"]
        at = [line["at"] for line in lines]
        reached = list(itertools.accumulate((_version(line["attempt"], line["iter"]) for line in lines), max))
        ages = []
        for line in self._written.values():
            if line["acted"] and any(each.since + _GRACE_S < line["at"] < each.until for each in quiet):
                first = bisect.bisect_right(reached, _version(*line["acted"]))
                ages.append(max(line["at"] - at[first], 0.0) if first < len(at) else 0.0)
        return ages

    def _steps_back(self) -> int:
        newest: dict[int, list[int]] = {}
        back = 0
        for line in sorted(self._written.values(), key=lambda each: float(each["at"])):
            back += line["acted"] < newest.get(line["pid"], [])
            newest[line["pid"]] = max(line["acted"], newest.get(line["pid"], []))
        return back


def _version(attempt: int, iteration: int) -> int:
    """Return a number that grows as versions of the weights do."""
    return int(attempt * 10**9 + iteration)
