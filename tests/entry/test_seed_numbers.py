"""Which seeds `-s` means, and how many run at a time."""

from __future__ import annotations

import pytest

from ding_like.entry.options import checked_seeds, describe_seeds, parse_seeds
from ding_like.entry.seeds import checked_jobs
from ding_like.errors import ConfigError


def test_ranges_lists_and_repeats_are_read() -> None:
    for texts, seeds in [
        (["3"], (3,)),
        (["0..4"], (0, 1, 2, 3, 4)),
        (["7..7"], (7,)),
        (["0,2,5"], (0, 2, 5)),
        (["5, 0..2"], (5, 0, 1, 2)),
        (["0", "1", "10..11"], (0, 1, 10, 11)),
    ]:
        assert parse_seeds(texts) == seeds


def test_what_names_no_seeds_is_one_error() -> None:
    for texts, words in [
        (["x"], "-s x names no seeds; expected a whole number, 0 or more"),
        (["-1"], "-s -1 names no seeds"),
        (["1.5"], "names no seeds"),
        ([""], "names no seeds"),
        (["0,,2"], "-s 0,,2 names no seeds"),
        (["0.."], "names no seeds"),
        (["4..0"], r"empty range: 4 is more than 0. Did you mean 0..4\?"),
        (["0..99999"], "100,000 seeds; at most 10,000"),
        (["0..3,2"], "seed 2 is given 2 times; give each seed once"),
        (["1", "1"], "seed 1 is given 2 times"),
        (["99999999999"], "seed 99999999999 is not from 0 to 2,147,483,647"),
    ]:
        with pytest.raises(ConfigError, match=words):
            parse_seeds(texts)


def test_python_gives_seeds_as_numbers() -> None:
    assert checked_seeds(range(3)) == (0, 1, 2)
    with pytest.raises(ConfigError, match="no seed is given"):
        checked_seeds([])
    with pytest.raises(ConfigError, match="seed -1 is not from 0"):
        checked_seeds([-1])


def test_seeds_are_described_as_they_are_typed() -> None:
    assert [describe_seeds(seeds) for seeds in ((0, 1, 2), (0, 1), (5, 0, 1))] == ["0..2", "0,1", "5,0,1"]


def test_as_many_run_at_a_time_as_the_cores_can_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))

    assert checked_jobs(None, "serial", 5) == 5
    assert checked_jobs(None, "serial", 20) == 8
    assert checked_jobs(None, "serial_onpolicy", 20, processes=3) == 2
    assert checked_jobs(None, "serial", 20, processes=30) == 1
    assert checked_jobs(16, "serial", 20) == 16, "who asks for more gets more"
    assert checked_jobs(None, "ray", 5) == 1


def test_numbers_of_seeds_at_a_time_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="-j is 0; give how many seeds run at a time, from 1"):
        checked_jobs(0, "serial", 5)
    with pytest.raises(ConfigError, match="-j 2 is of modes serial and serial_onpolicy.*Leave -j out"):
        checked_jobs(2, "ray", 5)
