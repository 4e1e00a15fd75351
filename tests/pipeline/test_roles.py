"""A run's record, and updates by priority."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ding_like.comm.channels import Segment, Version
from ding_like.comm.local import BatchOnce, LocalRows
from ding_like.data.batch import TransitionBatch
from ding_like.errors import SchemaError
from ding_like.pipeline.record import RunRecord
from ding_like.pipeline.runner import TrainRole
from ding_like.pipeline.update_ratio import UpdateRatio


class NoPriorities:
    """Be a learner whose policy gives none."""

    train_iter = 1
    priority_info: dict[str, object] = {}
    monitor = None
    collector_envstep = 0

    def train(self, data: object, envstep: int) -> None: ...


def once() -> LocalRows:
    return LocalRows(
        BatchOnce(), UpdateRatio.per_segment(1), segment_rows=1, batch_size=1, newest=lambda: Version(0, 0)
    )


def test_a_policy_that_owes_priorities_is_told(tmp_path: Path) -> None:
    rows = once()
    rows.put(Segment(TransitionBatch({"reward": torch.zeros(1).numpy()}), Version(0, 0), 1))

    with pytest.raises(SchemaError, match=r"gave no priorities.*policy.priority=False"):
        TrainRole(NoPriorities(), rows, with_priority=True).train_ready()  # type: ignore[arg-type]


class Console:
    """Keep what is said."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def event(self, text: str) -> None:
        self.events.append(text)


def test_the_record_says_each_better_evaluation_but_not_the_first(tmp_path: Path) -> None:
    record, console = RunRecord(str(tmp_path)), Console()
    for step, best in ((0, 10.0), (100, 10.0), (200, 25.0)):
        record.note_evaluation([best], best=best, env_step=step, duration_s=0.5, console=console)  # type: ignore[arg-type]

    assert console.events == ["env step 200  eval 25 is the best so far -> ckpt/ckpt_best.pth.tar"]
    progress = record.progress(env_step=200, train_iter=3)
    assert progress.eval_returns == [25.0] and progress.best_eval == 25.0 and progress.eval_duration_s == 1.5


def test_a_resumed_record_counts_what_went_before(tmp_path: Path) -> None:
    now = [100.0]
    before = RunRecord(str(tmp_path), clock=lambda: now[0])
    now[0] = 130.0
    state = before.state_dict()
    after = RunRecord(str(tmp_path), clock=lambda: now[0])
    now[0] = 135.0

    after.load_state_dict(state, best=-float("inf"))

    assert after.duration_s == 35.0
    result = after.conclude([1.0, 2.0], stop=True, env_step=7, train_iter=3)
    assert (result.eval_value, result.duration_s, result.eval_duration_s) == (1.5, 35.0, 0.0)
    assert (tmp_path / "result.json").is_file()
