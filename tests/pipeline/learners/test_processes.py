"""Processes of the other ranks of a group, by their heartbeats."""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import Mock

import pytest

from ding_like.comm.learner_group import LEFT, Seen
from ding_like.pipeline.learners.synced import processes_of


def test_a_rank_is_running_lost_or_ended_by_what_its_heartbeats_say() -> None:
    beaten_s = time.monotonic() - 2.0
    group: Any = Mock(
        others=lambda: {
            1: (Seen(beaten_s=beaten_s), 11),
            2: (Seen(beaten_s=beaten_s, ended="was killed by SIGKILL"), 12),
            3: (Seen(beaten_s=beaten_s, ended=LEFT), None),
        }
    )

    found = processes_of(group, "learner")

    assert [(each.name, each.pid, each.host, each.state) for each in found] == [
        ("learner rank 1", 11, "", "running"),
        ("learner rank 2", 12, "", "lost"),
        ("learner rank 3", None, "not known", "ended"),
    ]
    assert found[1].note == "was killed by SIGKILL" and found[0].heartbeat_s == pytest.approx(2.0, abs=1.0)
