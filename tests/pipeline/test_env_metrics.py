"""Metrics of an env go through every pipeline into reports, metrics.jsonl and the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.comm.channels import Segment, Version
from ding_like.entry import serial_pipeline
from ding_like.entry.parallel_entry import parallel_pipeline
from ding_like.errors import ConfigError
from ding_like.pipeline.rows import RemoteCollectors
from ding_like.report.run_console import Limits, Progress, Speed, describe_line, describe_rows
from tests.pipeline.test_serial import make_configs

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")

MANAGERS = ("subprocess", "gym_vector")  # in whose processes the metrics are found


def configs(manager: str = "base", metrics: tuple[str, ...] = ("distance",)) -> tuple[dict[str, Any], dict[str, Any]]:
    main, create = make_configs()
    main["env"] = dict(collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=4, metrics=list(metrics))
    create["env"] = dict(type="tests.pipeline.reaching_env:ReachingEnv")
    if manager == "gym_vector":
        create["env"] = dict(type="gymnasium", import_names=["tests.pipeline.reaching_env"])
        main["env"]["env_id"] = "Reaching-v0"
    create["env_manager"] = dict(type=manager)
    return main, create


def lines(source: str, exp: str = "exp") -> list[dict[str, Any]]:
    found = [json.loads(line) for line in Path(exp, "metrics.jsonl").read_text().splitlines()]
    return [line for line in found if line["source"] == source]


@pytest.mark.parametrize(
    "manager", ["base", *(pytest.param(m, marks=pytest.mark.slow) for m in ("subprocess", "gym_vector"))]
)
def test_metrics_of_episode_ends_are_reported(manager: str) -> None:
    serial_pipeline(configs(manager), seed=0, max_env_step=300)

    training, evaluations = lines("collector"), lines("evaluator")
    # The return is 1 where 3 is reached, so the rate of success is the mean return.
    assert training and all(line["is_success"] == pytest.approx(line["reward_mean"]) for line in training)
    assert any(0 < line["is_success"] < 1 for line in training)
    assert evaluations and all({"is_success", "distance"} <= set(line) for line in evaluations)
    result = json.loads(Path("exp/result.json").read_text())
    assert result["eval_metrics"]["is_success"] == pytest.approx(result["eval_value"])
    assert set(result["eval_metrics"]) == {"is_success", "distance"}


def test_an_env_that_measures_nothing_reports_as_before() -> None:
    serial_pipeline(make_configs(), seed=0, max_env_step=300)

    assert json.loads(Path("exp/result.json").read_text())["eval_metrics"] == {}
    assert all("is_success" not in line for source in ("collector", "evaluator") for line in lines(source))


def test_a_name_that_reports_have_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match="'reward_mean', which every report has already"):
        serial_pipeline(configs(metrics=("reward_mean",)), seed=0, max_env_step=300)


@pytest.mark.slow
def test_metrics_reach_a_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ding_like.entry.parallel_entry.write_pictures", lambda *args, **kwargs: None)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))  # for the processes that import the env
    main, create = configs()
    parallel_pipeline((main, create, {}), seed=0, max_env_step=600)

    result = json.loads(Path("exp/result.json").read_text())
    assert result["eval_metrics"]["is_success"] == pytest.approx(result["eval_value"])
    assert "distance" in result["eval_metrics"]
    assert all({"is_success", "distance"} <= set(line) for line in lines("evaluator"))
    assert any(0 < line.get("is_success", 0) < 1 for line in lines("collector"))


def test_collectors_elsewhere_report_the_mean_of_their_metrics() -> None:
    collectors = RemoteCollectors()
    for name, value in (("a", 0.0), ("b", 1.0)):
        stats = {"return": 1.0, "length": 2.0, "eps": 0.1, "env/is_success": value}
        collectors.note(name, Segment([], Version(0, 0), 4, stats))

    assert collectors.mean_metrics == {"is_success": 0.5}
    assert collectors.setting == {"eps": 0.1}


def test_the_console_shows_metrics_beside_the_evaluation() -> None:
    progress = Progress(100, 10, 1.0, eval_returns=[1.0, 2.0], best_eval=1.5, eval_metrics={"is_success": 0.25})
    limits = Limits(1000)
    speed = Speed(limits)

    rows = dict(describe_rows(progress, speed))

    assert ("is_success", "0.25") in rows["eval"]
    assert "is_success 0.25" in describe_line(progress, speed, limits)


def test_episodes_of_a_collector_keep_metrics_over_a_resume() -> None:
    from ding_like.data.records import EpisodeRecord
    from ding_like.worker.collector.base import CollectReport

    report = CollectReport()
    report.add([EpisodeRecord(0, 1.0, 3, metrics={"is_success": 1.0})], env_steps=3, samples=3, duration_s=1.0)
    other = CollectReport()
    other.load_state_dict(report.state_dict())

    assert [episode.metrics for episode in other.recent] == [{"is_success": 1.0}]
    assert other.take()["is_success"] == 1.0
    assert np.isclose(report.take()["is_success"], 1.0)


def test_a_metric_is_drawn_in_place_of_the_return() -> None:
    from ding_like.entry.results import plot

    serial_pipeline(configs(), seed=0, max_env_step=300)

    assert plot(["exp"], "m.svg", metric="is_success") == Path("m.svg")
    text = Path("m.svg").read_text()
    assert "is_success" in text and "episode return" not in text and "evaluation, mean over episodes" in text
    assert plot(["exp"], metric="distance").parent == Path("exp")
    with pytest.raises(ConfigError, match="no metric 'sucess'; there are: .*is_success"):
        plot(["exp"], metric="sucess")
