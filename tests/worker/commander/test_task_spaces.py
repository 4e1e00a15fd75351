"""Task spaces that a parallel run cannot have are refused."""

from __future__ import annotations

from typing import Any

import pytest

from ding_like.errors import ConfigError
from ding_like.worker import create_parallel_commander


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("learner_task_space", 2, "learner_task_space is 2, but a parallel run has one learn task.*--learners N"),
        ("learner_task_space", 0, "learner_task_space is 0, but"),
        ("collector_task_space", -1, "collector_task_space is -1; give a whole number, 0 or more"),
        ("collector_task_space", "two", "collector_task_space is 'two'; give a whole number"),
    ],
)
def test_a_task_space_that_cannot_be_is_refused(key: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create_parallel_commander({key: value})
