from __future__ import annotations

import numpy as np
import pytest
import torch

from ding_like.worker.learner import LearnerMonitor


@pytest.mark.parametrize(
    "values",
    [[1, 2.0], [torch.tensor(1), 2.0], [np.float32(1), torch.tensor([2.0])], [torch.tensor(1), torch.tensor(2)]],
)
def test_numbers_and_tensors_are_averaged_alike(values: list[object]) -> None:
    monitor = LearnerMonitor(["loss"])

    for value in values:
        monitor.record({"loss": value})

    assert monitor.averages() == {"loss": 1.5}


def test_values_of_one_learner_and_of_all_stand_in_one_window() -> None:
    monitor = LearnerMonitor(["q_value"])
    monitor.record({"q_value": torch.tensor(3.0)})  # averaged over learners
    monitor.record({"q_value": torch.tensor([[1.0, 2.0], [3.0, 4.0]])})  # not averaged: a learner was lost

    assert monitor.averages() == {"q_value": 2.75}
