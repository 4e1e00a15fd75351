"""Errors of the other learners when one is lost, and from where the run can be resumed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ding_like.entry.serial_entry import _add_how_to_resume
from ding_like.errors import CommError
from ding_like.pipeline.checkpoint import resume_store


def what_is_said(exp: Path, of_lost: str) -> str:
    group: Any = SimpleNamespace(rank=0, world_size=2)
    cfg: Any = SimpleNamespace(exp_name=str(exp))
    with pytest.raises(CommError) as raised, _add_how_to_resume(cfg, group):
        raise CommError(of_lost)
    return str(raised.value)


@pytest.mark.parametrize(("steps", "goes_on"), [(((20, 30), (10,)), False), (((20, 30), (20,)), True)])
def test_a_run_can_go_on_from_points_that_all_have(tmp_path: Path, steps: Any, goes_on: bool) -> None:
    for rank, of_rank in enumerate(steps):
        for step in of_rank:
            resume_store(str(tmp_path), rank=rank, keep=3).save(step, {}, {})

    said = what_is_said(tmp_path, "learner rank 1 of 2 is lost.")

    assert said.startswith(f"learner rank 1 of 2 is lost; logs are in {tmp_path / 'log/learners'}/; ")
    assert (f"go on with  ding --resume {tmp_path}" in said) == goes_on
    assert ("no point was saved" in said) != goes_on
