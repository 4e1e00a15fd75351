"""Recordings of seeds that ran in processes of their own become one."""

import copy

import pytest

from tests.learning.record import joined, summarised

SAID = {"config": "x_config.py", "mode": "serial", "overrides": [], "episodes": 20, "commit": "abc"}


def part(*values: tuple[int, float]) -> dict:
    rows = [{"seed": seed, "eval_value": value, "env_step": 1000 + seed} for seed, value in values]
    return summarised(SAID, rows)


def test_parts_are_joined_in_order_of_the_seeds_as_if_one_process_had_run_them() -> None:
    assert joined([part((2, 30.0)), part((0, 10.0), (1, 50.0))]) == part((0, 10.0), (1, 50.0), (2, 30.0))
    assert joined([part((2, 30.0)), part((0, 10.0), (1, 50.0))])["median_eval_value"] == 30.0


def test_parts_of_other_commits_are_not_joined() -> None:
    other = {**copy.deepcopy(part((1, 50.0))), "commit": "def"}

    with pytest.raises(ValueError, match="commit"):
        joined([part((0, 10.0)), other])


def test_a_seed_that_is_there_twice_is_not_joined() -> None:
    with pytest.raises(ValueError, match="twice"):
        joined([part((0, 10.0)), part((0, 20.0))])
