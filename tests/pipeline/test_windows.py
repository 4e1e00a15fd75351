"""A policy that learns from windows trains through the serial pipeline; units that do not fit are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.data.batch import SequenceBatch, TransitionBatch
from ding_like.entry import parallel_pipeline, serial_pipeline
from ding_like.errors import ConfigError
from ding_like.policy.dqn import DQNPolicy
from ding_like.utils.registries import POLICY_REGISTRY
from ding_like.worker.replay_buffer.buffer import ReplayBuffer
from tests.pipeline.test_serial import make_configs

STEPS = 5


@POLICY_REGISTRY.register("learns_from_windows")
class LearnsFromWindows(DQNPolicy):
    """DQN on all rows of all windows; a window's priority is its mean error."""

    config: dict[str, Any] = dict(type="learns_from_windows")
    sample_unit = "window"
    seen: list[SequenceBatch] = []

    def grad(self, batch: Any) -> tuple[dict[str, Any], Any]:
        assert isinstance(batch, SequenceBatch)
        LearnsFromWindows.seen.append(batch)
        size, steps = batch["reward"].shape
        columns = {name: column.reshape(size * steps, *column.shape[2:]) for name, column in batch.columns.items()}
        if "weight" in batch.per_window:
            columns["weight"] = np.repeat(batch["weight"], steps)
        info, priority = super().grad(TransitionBatch(columns))
        return info, None if priority is None else priority.reshape(size, steps).mean(axis=1)


@pytest.fixture(autouse=True)
def seen(in_tmp: Path, no_pictures: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LearnsFromWindows, "seen", [])


def configs(
    buffer: str, *, policy: str = "learns_from_windows", **changes: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    main, create = make_configs(nstep=1, **changes)
    settings = dict(sequence_length=STEPS) if "sequence" in buffer else {}
    main["policy"]["other"] = dict(replay_buffer=dict(replay_buffer_size=400, **settings))
    return main, {**create, "policy": dict(type=policy), "replay_buffer": dict(type=buffer)}


def prioritised() -> tuple[dict[str, Any], dict[str, Any]]:
    return configs("prioritised_sequence", priority=True, priority_IS_weight=True)


def test_windows_of_one_lane_and_episode_are_learned_from() -> None:
    serial_pipeline(configs("sequence"), seed=1, max_env_step=600)

    assert len(LearnsFromWindows.seen) > 100
    for batch in LearnsFromWindows.seen:
        assert batch["obs"].shape == (16, STEPS, 4) and batch["reward"].shape == (16, STEPS)
        for name in ("lane", "episode_id"):
            assert (batch[name] == batch[name][:, :1]).all()
        assert (np.diff(batch["step"], axis=1) == 1).all()
        assert (batch["obs"][:, 1:] == batch["next_obs"][:, :-1]).all()


def test_priorities_of_windows_come_back_from_the_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    updates: list[dict[str, Any]] = []
    update = ReplayBuffer.update

    def record(self: ReplayBuffer, info: Any) -> None:
        updates.append(info)
        update(self, info)

    monkeypatch.setattr(ReplayBuffer, "update", record)

    serial_pipeline(prioritised(), seed=1, max_env_step=400)

    seen = LearnsFromWindows.seen
    assert len(updates) == len(seen) > 50
    for batch, info in zip(seen, updates, strict=True):
        assert info["priority"].shape == batch["weight"].shape == (16,)
        assert info["replay_unique_id"] is batch["replay_unique_id"]
    told: dict[int, float] = {}
    num_again = 0
    for batch, info in zip(seen, updates, strict=True):
        ids = batch["replay_unique_id"].tolist()
        for key, stored in zip(ids, batch["priority"].tolist(), strict=True):
            if key in told:
                num_again += 1
                assert stored == pytest.approx(told[key] + 1e-5, rel=1e-5)
        told.update(zip(ids, info["priority"].tolist(), strict=True))
    assert num_again > 100
    assert len(np.unique(seen[-1]["weight"])) > 5 and max(batch["weight"].max() for batch in seen) <= 1


def test_rows_are_refused_by_a_policy_that_learns_from_windows() -> None:
    expected = (
        r"type is 'naive', which samples rows, but policy 'learns_from_windows' learns from windows\. "
        r"Set it to 'sequence' or 'prioritised_sequence'"
    )
    with pytest.raises(ConfigError, match=expected):
        serial_pipeline(configs("naive"), max_env_step=100)


def test_windows_are_refused_by_the_parallel_pipeline() -> None:
    with pytest.raises(ConfigError, match="learns from windows, but mode parallel fills buffers of rows only"):
        parallel_pipeline((*configs("sequence"), {}), max_env_step=100)


def test_windows_of_burn_in_alone_are_refused_when_the_run_is_built() -> None:
    main, create = configs("sequence")
    main["policy"]["other"]["replay_buffer"]["burn_in"] = STEPS

    with pytest.raises(ConfigError, match="other.replay_buffer.sequence_length"):
        serial_pipeline((main, create), max_env_step=100)
