"""Record of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ding_like.pipeline.record import RunRecord


class Console:
    """Console that keeps its events."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.evaluations: list[tuple[list[float], int]] = []

    def event(self, text: str) -> None:
        self.events.append(text)

    def note_evaluation(self, returns: Sequence[float], *, env_step: int, train_iter: int) -> None:
        self.evaluations.append((list(returns), env_step))


def test_the_record_reports_each_better_evaluation_but_not_the_first(tmp_path: Path) -> None:
    record, console = RunRecord(str(tmp_path)), Console()
    for step, best in ((0, 10.0), (100, 10.0), (200, 25.0)):
        record.note_evaluation([best], best, step, 0.5, console, {})  # type: ignore[arg-type]

    assert console.events == ["env step 200  eval 25 is the best so far -> ckpt/ckpt_best.pth.tar"]
    assert console.evaluations == [([10.0], 0), ([10.0], 100), ([25.0], 200)], "watchers have all of them"
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
