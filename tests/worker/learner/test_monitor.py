from __future__ import annotations

import numpy as np
import pytest
import torch

from ding_like.worker.learner.base import LearnerMonitor, LogDict


def test_average_covers_the_window_only() -> None:
    monitor = LearnerMonitor(["loss"], window=3)

    for value in range(5):
        monitor.record({"loss": torch.tensor(float(value)), "unwatched": 1.0})

    assert monitor.averages() == {"loss": 3.0}


def test_a_name_that_was_never_reported_is_left_out() -> None:
    monitor = LearnerMonitor(["loss", "kl"])

    monitor.record({"loss": 1.0})

    assert monitor.averages() == {"loss": 1.0}


@pytest.mark.parametrize(
    "values",
    [[1, 2.0], [torch.tensor(1), 2.0], [np.float32(1), torch.tensor([2.0])], [torch.tensor(1), torch.tensor(2)]],
)
def test_numbers_and_tensors_are_averaged_alike(values: list[object]) -> None:
    monitor = LearnerMonitor(["loss"])

    for value in values:
        monitor.record({"loss": value})

    assert monitor.averages() == {"loss": 1.5}


def test_values_are_read_when_they_are_shown_and_not_before() -> None:
    class Unread:
        def __float__(self) -> float:
            raise LookupError("someone looked")

    monitor = LearnerMonitor(["loss"])

    monitor.record({"loss": Unread()})

    with pytest.raises(LookupError, match="someone looked"):
        monitor.averages()


def test_state_is_a_copy() -> None:
    monitor = LearnerMonitor(["loss"])
    value = torch.tensor(1.0)
    monitor.record({"loss": value})

    state = monitor.state_dict()
    value += 1
    other = LearnerMonitor(["loss"])
    other.load_state_dict(state)

    assert other.averages() == {"loss": 1.0}


def test_log_dict_detaches_whatever_way_a_value_comes_in() -> None:
    loss = torch.ones((), requires_grad=True) * 2

    log = LogDict({"a": loss})
    log["b"] = loss
    log.update({"c": loss})

    assert [value.requires_grad for value in log.values()] == [False] * 3


def test_values_of_one_learner_and_of_all_stand_in_one_window() -> None:
    monitor = LearnerMonitor(["q_value"])
    monitor.record({"q_value": torch.tensor(3.0)})  # averaged over learners
    monitor.record({"q_value": torch.tensor([[1.0, 2.0], [3.0, 4.0]])})  # not averaged: a learner was lost

    assert monitor.averages() == {"q_value": 2.75}
