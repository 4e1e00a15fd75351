"""New rows get the largest priority that there was, whoever set it and in whatever form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.data.batch import TransitionBatch
from ding_like.worker.replay_buffer import priorities as priorities_module
from ding_like.worker.replay_buffer.presets import AdvancedReplayBuffer
from ding_like.worker.replay_buffer.priorities import Priorities


@pytest.fixture
def make(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    def build() -> AdvancedReplayBuffer:
        cfg = {"replay_buffer_size": 8}
        buffer = AdvancedReplayBuffer(cfg, None, str(tmp_path / "exp"), rng=np.random.default_rng(0))
        request.addfinalizer(buffer.close)
        return buffer

    return build


def rows(size: int) -> TransitionBatch:
    return TransitionBatch({"reward": np.zeros(size, np.float32)})


def newest_priority(buffer: AdvancedReplayBuffer) -> float:
    return float(buffer.state_dict()["data"]["priority"][-1])


@pytest.mark.parametrize("convert", [np.float32, np.float64, list], ids=["float32", "float64", "list"])
@pytest.mark.parametrize("is_compiled", [True, False])
def test_an_update_raises_it(make: Any, monkeypatch: pytest.MonkeyPatch, convert: Any, is_compiled: bool) -> None:
    if not is_compiled:
        monkeypatch.setattr(priorities_module, "compiled_part", lambda: None)
    buffer = make()
    buffer.push(rows(4), 0)
    batch = buffer.sample(4, 0)
    priority = [0.5, 7.0, 0.25, 1.0]
    buffer.update(
        {
            "replay_buffer_idx": batch["replay_buffer_idx"],
            "replay_unique_id": batch["replay_unique_id"],
            "priority": priority if convert is list else np.array(priority, convert),
        }
    )

    buffer.push(rows(1), 0)

    assert newest_priority(buffer) == pytest.approx(7.0, abs=1e-4)


def test_lower_updates_leave_it(make: Any) -> None:
    buffer = make()
    buffer.push(rows(4), 0)
    batch = buffer.sample(4, 0)
    names = ("replay_buffer_idx", "replay_unique_id")
    buffer.update({**{name: batch[name] for name in names}, "priority": np.full(4, 0.1, np.float32)})

    buffer.push(rows(1), 0)

    assert newest_priority(buffer) == 1.0


def test_saved_data_raise_it(make: Any, tmp_path: Path) -> None:
    first, second = make(), make()
    first.push(TransitionBatch({"reward": np.zeros(2, np.float32), "priority": np.array([9.0, 2.0])}), 0)
    first.save_data(str(tmp_path / "data"))
    second.load_data(str(tmp_path / "data"))

    second.push(rows(1), 0)

    assert newest_priority(second) == pytest.approx(9.0, abs=1e-4)


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_row_that_comes_twice_in_a_sample_is_used_twice(monkeypatch: pytest.MonkeyPatch, is_compiled: bool) -> None:
    if not is_compiled:
        monkeypatch.setattr(priorities_module, "compiled_part", lambda: None)
    priorities = Priorities(4, AdvancedReplayBuffer.config)
    priorities.write_new(slice(0, 4), None)

    described = priorities.describe(np.array([2, 1, 2], np.int64), 0, next_id=4, next_row=0)

    assert priorities.use.tolist() == [0, 1, 2, 0] and described["use"].tolist() == [2, 1, 2]
