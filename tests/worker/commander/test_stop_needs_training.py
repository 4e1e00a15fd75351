"""A parallel run is not over because its first, untrained weights did well."""

from __future__ import annotations

import pytest

from ding_like.worker.commander import NaiveCommander


@pytest.mark.parametrize(("version", "stops"), [(0, False), (1, True)])
def test_an_evaluation_stops_the_run_only_after_training_began(version: int, stops: bool) -> None:
    commander = NaiveCommander({"stop_value": 10.0})

    commander.finished("eval", {"returns": [10.0, 12.0], "version": version})

    assert commander.stop is stops
    assert commander.best_return == 11.0
