"""The page says what was recorded, what was recorded is what was promised, and the page's clients run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import requests

from benchmarks.serve_load import measure
from benchmarks.serve_page import PAGE, REPORT, fill
from ding_like.entry import serial_entry
from ding_like.serve import Blueprint, CheckpointChoice, ServedPolicy
from ding_like.serve.http_server import PolicyServer

ROOT = Path(__file__).parents[2]
CARTPOLE = ROOT / "dizoo/classic_control/cartpole/config"


def test_the_page_has_what_was_recorded() -> None:
    page = PAGE.read_text()

    assert fill(page, json.loads(REPORT.read_text())) == page
    assert "Answers by version" in page


@pytest.mark.slow
def test_the_load_can_be_measured_again() -> None:
    found = measure(400, 2)

    assert found["requests"] == 400 and found["loaded"] == 3


@pytest.mark.parametrize("policy", ["dqn", pytest.param("r2d2", marks=pytest.mark.slow)])
@pytest.mark.usefixtures("in_tmp", "no_pictures")
def test_the_clients_of_the_page_run(policy: str) -> None:
    overrides = ["env.n_evaluator_episode=1", "env.evaluator_env_num=1", "policy.learn.batch_size=4"]
    serial_entry.serial_pipeline(
        CARTPOLE / f"cartpole_{policy}_config.py", seed=0, max_train_iter=1, exp_name="exp", overrides=overrides
    )
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (shown,) = re.findall(r"-d '(.*)'\n    (\{.*\})", PAGE.read_text())
    names: dict[str, Any] = {}

    with ServedPolicy(Blueprint("exp"), CheckpointChoice("exp", "best")) as served:
        server = PolicyServer(served)
        server.start()
        try:
            for block in blocks:
                exec(block.replace("http://127.0.0.1:8000", server.url), names)
            by_curl = requests.post(f"{server.url}/act", json=json.loads(shown[0]), timeout=60).json()
        finally:
            server.close()

    assert names["action"] in (0, 1) and names["actions"].shape == (32,)
    assert names["total"] >= 8, "an episode of CartPole has been played"
    assert set(json.loads(shown[1])["version"]) == set(by_curl["version"])
