"""A run goes on with other numbers of workers, from within its random actions, and with episodes of its own."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.errors import CheckpointError
from ding_like.pipeline import scheme_parts
from ding_like.pipeline.record import resume_store
from ding_like.pipeline.rows import RowReceiver
from ding_like.pipeline.scheme_parts import SchemeFactories
from ding_like.worker import ReplayBuffer
from tests.pipeline.ray import runs
from tests.pipeline.ray.collecting import small_config
from tests.pipeline.ray.test_run import endless
from tests.pipeline.ray.test_scheme import dqn

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("in_tmp", "ray_cluster")]


# --- other numbers of workers


@pytest.mark.parametrize(("before", "after"), [(2, 0), pytest.param(0, 2, marks=pytest.mark.slow)])
def test_the_counts_go_on_with_any_number_of_workers(before: int, after: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="ding_like")
    runs.scheme(endless(dqn()), runs.settings(before), max_env_step=500)
    first = runs.result("scheme")
    runs.scheme(None, runs.settings(after), max_env_step=1000, resumes=True)

    found = runs.result("scheme")
    assert found["env_step"] >= 1000 > first["env_step"] >= 500
    assert found["train_iter"] == (found["env_step"] - 64) // 4
    assert resume_store("scheme").load_newest().parts["buffer"]["push_count"] == found["env_step"]
    assert "begin anew" in caplog.text


def test_statistics_that_cannot_be_carried_over_are_refused() -> None:
    main, create = endless(dqn())
    main["env"]["wrappers"] = [dict(type="obs_norm")]
    runs.scheme((main, create), runs.settings(2), max_env_step=200)

    with pytest.raises(CheckpointError, match="env.wrappers"):
        runs.scheme(None, runs.settings(0), max_env_step=400, resumes=True)


@pytest.mark.parametrize(("before", "after"), [(2, 0), (0, 0)])
def test_rows_follow_those_before_only_where_episodes_go_on(
    before: int, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuts: list[ReplayBuffer] = []
    monkeypatch.setattr(ReplayBuffer, "cut", lambda buffer: cuts.append(buffer))
    runs.scheme(endless(dqn()), runs.settings(before), max_env_step=200)
    runs.scheme(None, runs.settings(after), max_env_step=300, resumes=True)

    assert len(cuts) == int(before > 0 or after > 0)


# --- random actions


def at_random(number: int, act: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have something done once so many segments of random actions were put."""
    put, count = RowReceiver.put_random, [0]

    def counted(self: RowReceiver, parts: Any) -> int:
        rows = put(self, parts)
        count[0] += 1
        if count[0] == number:
            act()
        return rows

    monkeypatch.setattr(RowReceiver, "put_random", counted)


def slow_start(rows: int) -> Any:
    """Return configs of a run with so many random rows, of whole episodes of 8, and so of several rounds."""
    main, create = endless(dqn())
    main["policy"]["random_collect_size"] = rows
    return main, create


@pytest.mark.parametrize("comm", ["sync", pytest.param("async", marks=pytest.mark.slow)])
def test_a_run_interrupted_in_its_random_actions_goes_on_with_them(comm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheme_parts, "_RANDOM_STEPS", 16)
    at_random(3, lambda: signal.raise_signal(signal.SIGTERM), monkeypatch)
    with pytest.raises(SystemExit):
        runs.scheme(slow_start(320), runs.settings(2, comm), max_env_step=9000)
    assert resume_store("scheme").load_newest().step == 96

    runs.scheme(None, runs.settings(2, comm), max_env_step=1000, resumes=True)

    found = runs.result("scheme")
    assert found["train_iter"] == (found["env_step"] - 320) // 4


# --- seeds


def test_a_run_that_goes_on_meets_other_episodes_than_it_began_with(tmp_path: Path) -> None:
    factories = SchemeFactories.of(small_config(tmp_path), seed=3)
    first, second = ([replace(factories, begun_at=at).lane_seed(index, 0) for index in (1, 2)] for at in (0, 200))

    assert first[0] == 3
    assert np.abs(np.subtract.outer(first, second)).min() >= 4, "of 4 envs each, none has a seed of before"
