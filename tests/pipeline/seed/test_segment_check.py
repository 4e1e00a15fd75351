"""What an actor sends is what an actor of this run sends, or the driver does not use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from ding_like.comm.channels import Segment, Version
from ding_like.data.batch import TransitionBatch
from ding_like.errors import DingError
from ding_like.pipeline.seed.runner import SegmentCheck
from ding_like.pipeline.statistics import MergedStatistics
from ding_like.types import Array

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
