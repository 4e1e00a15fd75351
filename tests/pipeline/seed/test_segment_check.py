"""Rows that no actor of a run sends are refused; the run goes on without the actor that sends them."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ding_like.comm.channels import Segment, Version
from ding_like.comm.workers.failures import FailurePolicy
from ding_like.data.batch import TransitionBatch
from ding_like.envs.wrappers import wrap
from ding_like.errors import DingError
from ding_like.pipeline.seed.runner import SegmentCheck
from ding_like.pipeline.settings import SeedSettings
from ding_like.pipeline.statistics import MergedStatistics
from ding_like.types import Array
from tests.pipeline.ray import runs
from tests.pipeline.seed import runs as seed_runs

ROWS = 4
OBSERVED = {"0.ObsNorm/count": np.array(3.0), "0.ObsNorm/mean": np.zeros(3), "0.ObsNorm/m2": np.ones(3)}


class Envs:
    """Envs with a wrapper that observes."""

    def wrapper_states(self) -> list[Any]:
        return [[{"type": "ObsNorm", "state": {"mean": np.zeros(3), "var": np.ones(3), "count": 0.0}}]]


def made(*, observes: bool = True) -> SegmentCheck:
    statistics = MergedStatistics(Envs()) if observes else None  # type: ignore[arg-type]  # stands for envs
    return SegmentCheck(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2), statistics)


def columns(*, steps: tuple[int, ...] = ()) -> dict[str, Array]:
    """Return columns of rows of one step, or of sequences of `steps`."""
    lead = (ROWS, *steps)
    return {
        "obs": np.zeros((*lead, 3), np.float32),
        "next_obs": np.zeros((*lead, 3), np.float32),
        "action": np.ones(lead, np.int64),
        "reward": np.zeros(lead, np.float32),
    }


def segment(
    *, stats: Mapping[str, Any] | None = None, env_steps: int = ROWS, observed: Mapping[str, Array] = OBSERVED,
    **changed: Array,
) -> Segment:  # fmt: skip
    batch = TransitionBatch({**columns(), **changed})
    return Segment(batch, Version(1, 0), env_steps, {"return": 1.0, "eps": 0.1} if stats is None else stats, observed)


def test_what_actors_of_the_run_send_passes() -> None:
    check = made()
    for stats in ({"return": None, "length": 3}, {"return": -2.5, "length": 1.0, "eps": 0.1, "who": "me", "is": True}):
        check(segment(stats=stats))

    made(observes=False)(segment(observed={}))


def test_rows_that_are_sequences_pass() -> None:
    check = made(observes=False)
    for _ in range(2):
        check(Segment(TransitionBatch(columns(steps=(5,))), Version(1, 0), 5 * ROWS))


def test_what_none_of_them_sends_is_refused_with_the_reason() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        (dict(obs=np.zeros((ROWS, 4), np.float32)), "column obs has rows"),
        (dict(obs=np.full((ROWS, 3), np.nan, np.float32)), "not finite"),
        (dict(action=np.full(ROWS, 2, np.int64)), "column action has numbers"),
        (dict(stats={"return": "x"}), "mean return of episodes is 'x'"),
        (dict(stats={"length": []}), "mean length of episodes"),
        (dict(stats={"return": float("nan")}), "'return' is nan; expected a finite number"),
        (dict(stats={"eps": float("inf")}), "'eps' is inf"),
        (dict(stats={"eps": 10**400}), "'eps' is 1000"),
        (dict(env_steps=2**50), "env steps for 4 rows cannot be"),
        (dict(observed={"1.RewardNorm/mean": np.zeros(1)}), "statistics have the names"),
        (dict(observed={**OBSERVED, "0.ObsNorm/mean": np.zeros(4)}), "have shapes"),
        (dict(observed={**OBSERVED, "0.ObsNorm/count": np.array(-1.0)}), "below 0"),
    ]
    for changed, reason in cases:
        with pytest.raises(DingError, match=reason):
            made()(segment(**changed))


def test_observations_of_wrappers_that_the_run_does_not_have_are_refused() -> None:
    with pytest.raises(DingError, match="no env.wrappers that observe"):
        made(observes=False)(segment())


def test_a_refused_segment_does_not_say_which_columns_there_are() -> None:
    check = made()
    with pytest.raises(DingError):
        check(segment(more=np.zeros(ROWS), stats={"return": "x"}))

    check(segment())
    with pytest.raises(DingError, match="'more' is not stored"):
        check(segment(more=np.zeros(ROWS)))


class Spoiled(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole whose rewards are finite, and their squares are not, in the thread of the second actor."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, *ended = self.env.step(action)
        return obs, 3e38 if threading.current_thread().name == "actor2" else float(reward), *ended


def spoiled(cfg: Any) -> gymnasium.Env[Any, Any]:
    return wrap(Spoiled(gymnasium.make("CartPole-v1")), [])


@pytest.mark.slow
@pytest.mark.usefixtures("in_tmp", "no_pictures")
def test_a_run_goes_on_without_an_actor_whose_rewards_no_loss_can_take(caplog: pytest.LogCaptureFixture) -> None:
    settings = SeedSettings(actor_processes=1, actor_threads=2, failure=FailurePolicy(when_spent="shrink"))
    configs = runs.dqn(random_collect_size=0, nstep=1)

    seed_runs.seed(configs, settings, max_env_step=3000, env_setting=(spoiled, [{}] * 4, [{}] * 2))

    assert runs.result("seed")["env_step"] >= 3000
    lines = [json.loads(line) for line in Path("seed/metrics.jsonl").read_text().splitlines()]
    assert max(line.get("refused_segments/actor2", 0) for line in lines) >= 3
    assert not any("refused_segments/actor1" in line for line in lines)
    assert "actor2: segment 1 of it was refused: column reward has numbers that are not finite in a loss" in caplog.text
