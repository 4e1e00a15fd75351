"""A team's evaluation has the return of each agent: in the result, on the console, on the page and in the film."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from ding_like.agent.video import Camera
from ding_like.data.records import EpisodeMetrics, returns_by_agent
from ding_like.entry import eval as evaluate
from ding_like.entry import serial_pipeline
from ding_like.entry.results import enjoy_command, report_command
from ding_like.envs.adapters import as_lane_env
from ding_like.report.run_console import Limits, Progress, Speed, describe_line, describe_rows
from tests.envs.leaving import RETURNS, Leaving
from tests.pipeline.test_team_runs import configs

BY_AGENT = {f"return_{name}": value for name, value in RETURNS.items()}
TEXT = "by agent: stayer 12, leaver 50"


def test_returns_of_agents_are_metrics_and_of_many_the_ends() -> None:
    few = {f"return_{agent}": float(agent) for agent in range(8)}
    many = {**few, "return_8": -1.0, "kills": 3}

    assert EpisodeMetrics().of({"episode_info": {**few, "kills": 3}}) == few
    assert returns_by_agent(many) == {"return_lowest": -1.0, "return_highest": 7.0}
    assert EpisodeMetrics().of({"return_0": 1.0}) == {}, "episode_info alone has them"


def test_the_console_shows_what_each_agent_was_paid() -> None:
    progress = Progress(100, 10, 1.0, eval_returns=[62.0], best_eval=62.0, eval_metrics={**BY_AGENT, "is_success": 1.0})

    assert f"{TEXT}  is_success 1" in describe_line(progress, Speed(Limits()), Limits())
    evaluation = dict(describe_rows(progress, Speed(Limits())))["eval"]
    assert evaluation[-2:] == [("by agent:", "stayer 12, leaver 50"), ("is_success", "1")]


@pytest.mark.slow
@pytest.mark.usefixtures("in_tmp")
def test_a_run_its_page_its_film_and_an_evaluation_show_the_team(caplog: pytest.LogCaptureFixture) -> None:
    main, create = configs("qmix", ("terminated", "truncated"))
    main["policy"]["collect"]["collector"] = dict(collect_print_freq=4)
    with caplog.at_level(logging.INFO, "ding_like"):
        serial_pipeline((main, create), seed=0, max_train_iter=24)
        assert json.loads(Path("exp/result.json").read_text())["eval_metrics"] == BY_AGENT
        lines = [json.loads(line) for line in Path("exp/metrics.jsonl").read_text().splitlines()]
        for source in ("evaluator", "collector"):
            last = [line for line in lines if line["source"] == source][-1]
            assert {name: last[name] for name in BY_AGENT} == BY_AGENT
            assert not [name for name in last if name.endswith("_mean") and name.startswith("return_")]
        assert Path("exp/agent.gif").is_file()

        evaluate("exp/total_config.py", seed=0, load_path="exp/ckpt/ckpt_best.pth.tar", out="eval.json")
        assert json.loads(Path("eval.json").read_text())["eval_metrics"] == BY_AGENT
    assert TEXT in caplog.text

    enjoyed = CliRunner().invoke(enjoy_command, ["exp"])
    assert TEXT in enjoyed.output and enjoyed.exit_code == 0
    page = CliRunner().invoke(report_command, ["exp"])
    assert page.exit_code == 0 and "return of each agent" in Path("exp/report.html").read_text()


def test_a_film_has_each_agents_return_so_far_under_that_of_the_team() -> None:
    camera = Camera(as_lane_env(Leaving(render_mode="rgb_array")), num_episodes=1)
    camera.start()
    obs, _ = camera.reset(seed=0)
    for _ in range(6):
        obs, *_ = camera.step(obs["action_mask"].argmax(axis=1))

    assert camera.frames[0].caption == "return 0\nstayer 0, leaver 0"
    assert camera.frames[6].caption == "return 56\nstayer 6, leaver 50"
    picture: Any = Image.open(io.BytesIO(camera.develop())).convert("RGB")
    pixels = np.asarray(picture)
    strip = pixels[: len(pixels) - 64]
    halves = np.split(strip[: len(strip) // 2 * 2], 2)
    assert all((half > 150).any() for half in halves), "both lines are written above the picture"
