"""Prioritised replay through the serial pipeline."""

from __future__ import annotations

import runpy
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.entry import serial_pipeline
from ding_like.worker.replay_buffer.advanced import AdvancedReplayBuffer

CONFIG = Path(__file__).parents[2] / "dizoo/classic_control/cartpole/config/cartpole_dqn_per_config.py"


def test_what_the_learner_says_arrives_as_priorities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ding_like.entry.serial_entry.write_pictures", lambda *args, **kwargs: None)
    updates: list[dict[str, Any]] = []
    weights: list[np.ndarray] = []
    update, sample = AdvancedReplayBuffer.update, AdvancedReplayBuffer.sample

    def record_update(self: AdvancedReplayBuffer, info: Any) -> None:
        updates.append(info)
        update(self, info)
        stored = self._priorities.records.priority[info["replay_buffer_idx"]]
        seen: dict[int, float] = dict(zip(info["replay_buffer_idx"].tolist(), info["priority"].tolist(), strict=True))
        expected = [seen[place] + 1e-5 for place in info["replay_buffer_idx"].tolist()]
        np.testing.assert_allclose(stored, expected, rtol=1e-5)

    def record_sample(self: AdvancedReplayBuffer, *args: Any) -> Any:
        batch = sample(self, *args)
        weights.append(batch["weight"])
        return batch

    monkeypatch.setattr(AdvancedReplayBuffer, "update", record_update)
    monkeypatch.setattr(AdvancedReplayBuffer, "sample", record_sample)
    configs = runpy.run_path(str(CONFIG))
    main, create = deepcopy(configs["main_config"]), deepcopy(configs["create_config"])
    main.env.n_evaluator_episode = 10

    serial_pipeline((main, create), seed=0, max_train_iter=20)

    assert len(updates) == len(weights) >= 20
    assert len(np.unique(weights[-1])) > 10  # the samples were weighted
    assert max(weight.max() for weight in weights) <= 1
