"""Columns in a file are arrays like any other; random rows and passes over them touch no page of the mapping."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ding_like.data.batch import TransitionBatch
from ding_like.data.mapped import PIECE_BYTES, FileColumn, pieces
from ding_like.data.rollout import Rollout
from ding_like.data.segment_file import load_columns, map_columns, save_columns
from ding_like.errors import SchemaError
from ding_like.policy.rows import NStepRows

RNG = np.random.default_rng(0)
COLUMNS = {
    "obs": RNG.normal(size=(50, 3)).astype(np.float32),
    "action": RNG.integers(0, 9, 50),
    "half": RNG.normal(size=(50, 2, 2)).astype(np.float16),
    "terminated": RNG.random(50) < 0.5,
    "truncated": np.zeros(50, bool),
    "lane": np.zeros(50, np.int64),
    "byte": RNG.integers(0, 255, (50, 5), np.uint8),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.safetensors"
    save_columns(path, COLUMNS)
    return path


def test_mapped_columns_are_those_that_were_saved(file: Path) -> None:
    mapped, loaded = map_columns(file), load_columns(file)

    assert list(mapped) == list(loaded) == list(COLUMNS)
    for name, column in COLUMNS.items():
        assert mapped[name].dtype == column.dtype and np.array_equal(mapped[name], column)
        assert isinstance(mapped[name], FileColumn) and not mapped[name].flags.writeable


@pytest.mark.parametrize("index", [[3, 3, 49, 0], [], [7]])
def test_rows_are_taken_as_of_an_array_into_memory_of_their_own(file: Path, index: list[int]) -> None:
    for name, column in map_columns(file).items():
        for rows in (np.array(index, np.uint32), np.array(index, np.int64)):
            taken = column.take(rows, axis=0)
            assert type(taken) is np.ndarray and taken.flags.writeable
            assert taken.dtype == column.dtype and np.array_equal(taken, COLUMNS[name].take(rows, axis=0))


@pytest.mark.parametrize("index", [[50], [-1], [2, 2**40]])
def test_rows_that_are_not_there_are_refused(file: Path, index: list[int]) -> None:
    with pytest.raises(IndexError, match="of a column of 50"):
        map_columns(file)["obs"].take(np.array(index), axis=0)


def test_views_and_results_are_arrays_as_any(file: Path) -> None:
    obs = map_columns(file)["obs"]

    assert np.array_equal(obs[10:].take([0, 1], axis=0), COLUMNS["obs"][10:12])
    assert np.array_equal((obs * 2).take([4], axis=0), COLUMNS["obs"][[4]] * 2)
    assert np.array_equal(obs.take([1], axis=1), COLUMNS["obs"][:, [1]])
    assert obs.take(5) == COLUMNS["obs"].take(5)


def test_pieces_are_all_rows_in_order(file: Path, tmp_path: Path) -> None:
    large = np.arange(3 * PIECE_BYTES // 16, dtype=np.int64).reshape(-1, 2)
    save_columns(tmp_path / "b.safetensors", {"large": large, "row": np.arange(len(large))})
    mapped = map_columns(tmp_path / "b.safetensors")

    for columns in ((large, np.arange(len(large))), (mapped["large"], mapped["row"])):
        found = list(pieces(*columns))
        assert len(found) == 2 and [start for start, _ in found] == [0, PIECE_BYTES // 16]
        assert np.array_equal(np.concatenate([parts[0] for _, parts in found]), large)
        assert all(np.array_equal(parts[1], start + np.arange(len(parts[1]))) for start, parts in found)
    for name, column in map_columns(file).items():
        assert np.array_equal(np.concatenate([part for _, (part,) in pieces(column)]), COLUMNS[name])


def test_one_step_rows_are_the_columns_of_the_file_themselves(file: Path) -> None:
    columns = map_columns(file)

    rows, keep = NStepRows(1, 0.99).segment(Rollout.over(columns))

    assert isinstance(rows, TransitionBatch) and not keep.any()
    assert all(rows.columns[name] is column for name, column in columns.items())


def test_a_file_that_becomes_shorter_is_one_error(file: Path) -> None:
    columns = map_columns(file)
    with open(file, "r+b") as handle:
        handle.truncate(400)

    with pytest.raises(SchemaError, match="has become shorter since it was opened: put the whole file back"):
        columns["byte"].take(np.array([49]), axis=0)
