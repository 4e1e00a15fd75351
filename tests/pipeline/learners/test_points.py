"""The saved point from which several learners go on: the newest that is whole for all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ding_like.errors import CheckpointError
from ding_like.pipeline.learners.synced import newest_of_all
from ding_like.utils.resume import ResumeStore
from tests.pipeline.learners.group_of_threads import ThreadGroup, run_ranks


def store(folder: Path, *steps: int) -> ResumeStore:
    made = ResumeStore(folder, keep=9, durable=False)
    for step in steps:
        made.save(step, {"run": {"step": step}}, {"arguments": {"of": step}})
    return made


def damage(made: ResumeStore, step: int) -> None:
    (made.folder / str(step) / "run.pt").write_bytes(b"torn")


def find(stores: list[ResumeStore]) -> list[Any]:
    def work(group: ThreadGroup) -> Any:
        return newest_of_all(group, stores[group.rank])  # type: ignore[arg-type]  # threads stand for ranks

    return run_ranks(work, len(stores))


def test_all_go_on_from_the_newest_step_that_all_have_whole(tmp_path: Path) -> None:
    stores = [store(tmp_path / "0", 10, 20, 30), store(tmp_path / "1", 10, 20, 30), store(tmp_path / "2", 10, 20)]
    damage(stores[1], 20)

    found = find(stores)

    assert [each.step for each in found] == [10, 10, 10]
    assert found[2].parts["run"] == {"step": 10}


def test_newer_steps_are_forgotten_so_that_they_are_made_again_by_all(tmp_path: Path) -> None:
    stores = [store(tmp_path / "0", 10, 20), store(tmp_path / "1", 10)]

    find(stores)

    assert [each.steps() for each in stores] == [[10], [10]]


def test_without_a_common_step_all_say_what_each_has(tmp_path: Path) -> None:
    stores = [store(tmp_path / "0", 20), store(tmp_path / "1", 10)]

    with pytest.raises(CheckpointError, match=r"whole for all 2 learners \(rank 0 has \[20\]; rank 1 has \["):
        find(stores)


def test_what_a_run_was_started_with_is_read_without_its_files(tmp_path: Path) -> None:
    made = store(tmp_path, 10, 20)
    damage(made, 20)
    (tmp_path / "30").mkdir()

    assert made.newest_meta() == {"arguments": {"of": 20}} and made.whole_steps() == [10]
    with pytest.raises(CheckpointError, match="nothing to resume"):
        ResumeStore(tmp_path / "nothing").newest_meta()
