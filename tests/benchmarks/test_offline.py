"""Offline benchmarks: seeds of a second recording follow those of the first, and the page names both."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from benchmarks import offline_page
from benchmarks.contenders import offline_work
from benchmarks.table import BENCHMARKS, offline_name


def test_seeds_of_a_second_recording_follow_those_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_ROUND", "2")
    for first_seed, seed in ((0, 2), (4, 6)):
        benchmark = BENCHMARKS[offline_name("halfcheetah/medium", "rebrac", first_seed)]
        for contender in benchmark.contenders.values():
            monkeypatch.setattr("sys.argv", [contender.script, *contender.args])
            assert offline_work.arguments().seed == seed


def test_the_return_to_reach_is_that_of_the_best_whole_episode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {
        "obs": np.zeros((6, 2), np.float32),
        "action": np.zeros((6, 1), np.float32),
        "reward": np.array([1, 2, -4, 2, 2, 9], np.float32),
        "terminated": np.array([0, 1, 0, 0, 0, 0], bool),
        "truncated": np.array([0, 0, 0, 0, 1, 0], bool),
    }
    info = {"env_id": "Pendulum-v1", "reference": {"random": 0.0, "expert": 1.0}}
    save_file(columns, tmp_path / "cut.safetensors", metadata={"info": json.dumps(info)})
    monkeypatch.setattr(offline_work, "FOLDER", tmp_path)

    assert offline_work.Data("cut").best_return == 3.0  # not 9, of the episode that is cut


def test_the_page_names_the_seeds_of_each_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    score = {"value": 1.0, "lo": 0.0, "hi": 2.0, "n": 5}
    found = {("ours", "score"): score, ("ours", "updates"): {"value": 100.0}}
    second = offline_name("halfcheetah/medium", "rebrac", 4)
    monkeypatch.setattr(offline_page, "load", lambda name: found if name == second else None)

    assert offline_page.beside_d3rlpy().splitlines()[2:] == [
        "| halfcheetah/medium | ReBRAC | 30,000 | 4 to 8 | 1.0 [0.0, 2.0] |  | 10.0 |  |  |"
    ]
