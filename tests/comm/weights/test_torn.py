"""Readers of shared memory never get half of a version, or one older than they had."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.comm.weights.torn import run

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_of_hundreds_of_versions_none_is_torn_or_older_when_nobody_waits() -> None:
    found = run(300, 2, size=30_000)

    assert [(each.torn, each.older, each.last) for each in found] == [(0, 0, 300)] * 2


@pytest.mark.slow
def test_every_reader_sees_every_version_that_is_awaited() -> None:
    found = run(100, 2, size=10_000, is_awaited=True)

    assert [(each.versions, each.torn, each.older, each.spoiled) for each in found] == [(100, 0, 0, 0)] * 2


def test_the_record_that_the_page_names_is_of_ten_thousand_versions_and_whole() -> None:
    record = json.loads((ROOT / "docs/reports/weights_torn.json").read_text())
    readers = [each for course in record["courses"].values() for each in course["readers"]]

    assert (record["setting"]["publications"], record["setting"]["readers"], len(readers)) == (10_000, 4, 8)
    assert {(each["torn"], each["older"], each["last"]) for each in readers} == {(0, 0, 10_000)}
    assert all(each["versions"] == 10_000 for each in record["courses"]["all are awaited"]["readers"])
