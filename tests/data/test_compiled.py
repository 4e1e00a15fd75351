"""What runs in C gives what numpy gives, and refuses what would leave its arrays."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ding_like.data import sum_tree
from ding_like.data.sum_tree import first_distinct, take_rows
from ding_like.worker.replay_buffer import priorities as priorities_module
from ding_like.worker.replay_buffer.presets import AdvancedReplayBuffer
from ding_like.worker.replay_buffer.priorities import Priorities

PART = sum_tree.compiled_part()
pytestmark = pytest.mark.skipif(PART is None, reason="there was no compiler; numpy alone is tested elsewhere")


def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sum_tree, priorities_module):
        monkeypatch.setattr(module, "compiled_part", lambda: None)


def test_rows_are_those_that_numpy_takes() -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(-50, 50, 30)
    shapes, dtypes = [(), (4,), (2, 2), (3,), (17,), (0,)], [np.float32, np.float64, np.int64, bool, np.uint8, complex]
    for shape, dtype in itertools.product(shapes, dtypes):
        columns = {"a": rng.integers(0, 200, (50, *shape)).astype(dtype), "b": np.arange(50)}
        taken = take_rows(columns, rows, 50)

        for name, column in columns.items():
            assert taken[name].dtype == column.dtype and np.array_equal(taken[name], column.take(rows, 0)), dtype
            assert not np.shares_memory(taken[name], column)
        assert take_rows(columns, rows[:0], 50)["a"].shape == (0, *shape)
        assert np.array_equal(take_rows(columns, rows[::-2], 50)["b"], columns["b"].take(rows[::-2]))


def test_rows_outside_are_refused() -> None:
    for row in (50, -51, 2**40):
        with pytest.raises(IndexError):
            take_rows({"a": np.zeros(50)}, np.array([0, row]), 50)


@pytest.mark.parametrize(("num", "size"), [(10, 10), (100_000, 256), (3, 5)])
def test_distinct_numbers_are_those_of_numpy(num: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = np.random.default_rng(0).random(3 * size)
    here = first_distinct(draws, num, size)
    without_compiler(monkeypatch)

    assert np.array_equal(here, first_distinct(draws, num, size))
    assert len(np.unique(here)) == len(here) and ((here >= 0) & (here < num)).all()


def full_priorities(size: int) -> Priorities:
    priorities = Priorities(size, AdvancedReplayBuffer.config)
    given = np.r_[0.0, np.linspace(0.5, 1, size - 1)].astype(np.float32)
    priorities.write(slice(0, size), given, np.arange(size) % 7, np.arange(size))
    return priorities


def test_descriptions_of_rows_are_those_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    places = np.random.default_rng(0).integers(1, 60, 40)  # some twice
    found = []
    for _ in range(2):
        priorities = full_priorities(60)
        priorities.collect_iter[:10] = priorities_module.NO_ITER
        described = priorities.describe(places, 5, next_id=1000, next_row=13)
        found.append([*described.values(), priorities.use])
        without_compiler(monkeypatch)

    for here, there in zip(*found, strict=True):
        assert here.dtype == there.dtype and np.array_equal(here, there)


def test_updates_are_kept_for_rows_that_are_there() -> None:
    priorities, where = full_priorities(20), {"next_id": 500, "next_row": 4}
    before = priorities.priority.copy()
    places = np.array([0, 3, 4, 19, 25, -1, 7])
    ids = priorities_module.ids_of(places, 20, **where)
    ids[-1] += 20  # of a row that has been overwritten
    info = {"replay_buffer_idx": places, "replay_unique_id": ids}
    for bad in (np.nan, np.inf, -1.0, 1e39):
        assert not priorities.update_current({**info, "priority": np.array([1.0] * 6 + [bad])}, **where)
    assert (priorities.priority == before).all()

    assert priorities.update_current({**info, "priority": np.arange(7, dtype=np.float32)}, **where)

    changed = np.flatnonzero(priorities.priority != before)
    assert changed.tolist() == [3, 4, 19], "0 has left, 25 and -1 are no places, 7 holds another row"
    assert priorities.priority[changed].tolist() == pytest.approx([1.0, 2.0, 3.0], abs=1e-4)
    assert priorities.max_priority == pytest.approx(3.0, abs=1e-4)


def test_the_c_functions_refuse_arrays_that_do_not_fit() -> None:
    assert PART is not None
    rows = PART.rows
    for call in (
        lambda: rows.first_distinct(np.zeros(3, np.float32), 5.0, np.zeros(2, np.int64)),
        lambda: rows.take_rows((np.zeros(5),), np.zeros(2, np.int64), (np.zeros(3),), 5),
        lambda: rows.take_rows((np.zeros(5),), np.zeros(2, np.int32), (np.zeros(2),), 5),
        lambda: rows.take_rows((), np.zeros(2, np.int64), (np.zeros(2),), 5),
        lambda: rows.take_rows((np.zeros((4, 4)).T,), np.zeros(2, np.int64), (np.zeros((2, 4)),), 4),
        lambda: PART.sum_tree.set_powers(np.zeros(32, np.float32), np.zeros(1, np.float32), (np.zeros(32),),
                                         np.array([99]), np.ones(1), np.ones(1, np.float32), 0.0, 1.0),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError, IndexError, BufferError)):
            call()
