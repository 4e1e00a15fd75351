"""Hold what a coordinator saved, and the segments on disk, against what workers wrote down as acknowledged."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ding_like.comm.rest.messages import ROWS_PER_SEGMENT
from ding_like.data.segment_file import SegmentError, read_segment
from tests.chaos.counting_env import num_doubled, recognise


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
