"""What an env measures beside the return is read from `info` at an episode's end."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from ding_like.data.records import EpisodeMetrics, as_stats, mean_metrics, metric_names, of_stats
from ding_like.errors import ConfigError


def test_bools_finite_numbers_and_arrays_of_one_are_numbers_and_nothing_else_is() -> None:
    for value in (True, np.bool_(True), 1, 1.0, np.float32(1), np.array([1.0]), np.array(1)):
        found = EpisodeMetrics().of({"is_success": value})
        assert found == {"is_success": 1.0} and type(found["is_success"]) is float, value
    for value in ("yes", None, np.nan, float("inf"), np.array([1.0, 0.0]), {"a": 1}, 1j):
        assert EpisodeMetrics().of({"is_success": value}) == {}, value


def test_only_names_that_are_asked_for_are_taken() -> None:
    info = {"is_success": False, "distance": 2.5, "TimeLimit": 1, "episode_info": {"energy": 3}}

    assert EpisodeMetrics(metric_names(["distance", "energy"])).of(info) == {
        "is_success": 0.0,
        "distance": 2.5,
        "energy": 3.0,
    }


def test_a_name_that_is_not_there_is_said_once_with_those_that_are(caplog: pytest.LogCaptureFixture) -> None:
    metrics = EpisodeMetrics(metric_names(["distnce"]))

    with caplog.at_level(logging.WARNING, "ding_like"):
        for _ in range(3):
            metrics.of({"distance": 2.5, "word": "x"})

    assert len(caplog.messages) == 1
    assert "'distnce'" in caplog.text and "the numbers there: distance" in caplog.text


def test_names_that_reports_have_already_are_refused() -> None:
    for name in ("reward_mean", "env_step", "source", "", 3):
        with pytest.raises(ConfigError, match="env.metrics"):
            metric_names([name])


def test_means_are_over_the_episodes_that_have_a_metric() -> None:
    assert mean_metrics([{"a": 1.0, "b": 4.0}, {"a": 0.0}, {}]) == {"a": 0.5, "b": 4.0}


def test_metrics_of_workers_are_told_from_their_settings() -> None:
    assert of_stats({"return": 1.0, "eps": 0.1, **as_stats({"is_success": 0.5})}) == {"is_success": 0.5}
