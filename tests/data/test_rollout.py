from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ding_like.data.rollout import Rollout
from ding_like.errors import SchemaError


def append(rollout: Rollout, lanes: list[int], values: list[int]) -> None:
    rollout.append({"lane": np.array(lanes, np.int64), "value": np.array(values, np.int64)})


def by_lane(rollout: Rollout, kind: type = int) -> list[list[Any]]:
    lanes = rollout.as_lanes()
    return [
        [kind(v) for v in rollout["value"][lanes.row[lanes.valid[:, lane], lane]]] for lane in range(rollout.num_lanes)
    ]


@given(
    st.lists(st.lists(st.integers(0, 3), unique=True, min_size=1), min_size=1, max_size=30),
    st.lists(st.integers(0, 5), min_size=4, max_size=4),
)
def test_lanes_and_kept_rows_equal_a_list_per_lane(steps, keep):
    rollout, model = Rollout(4, capacity=2), [[] for _ in range(4)]
    for number, lanes in enumerate(steps):
        append(rollout, lanes, [number * 10 + lane for lane in lanes])
        for lane in lanes:
            model[lane].append(number * 10 + lane)
    assert by_lane(rollout) == model

    kept = np.minimum(keep, [len(rows) for rows in model])
    rollout.keep_last(kept)

    model = [rows[len(rows) - count :] for rows, count in zip(model, kept, strict=True)]
    assert by_lane(rollout) == model
    append(rollout, [0, 1, 2, 3], [1, 2, 3, 4])
    assert by_lane(rollout) == [[*rows, lane + 1] for lane, rows in enumerate(model)]


def test_drop_last_forgets_rows_of_one_lane_only():
    rollout = Rollout(2)
    for step in range(3):
        append(rollout, [0, 1], [step, 10 + step])

    assert rollout.is_rectangular
    rollout.drop_last(1, 2)

    assert by_lane(rollout) == [[0, 1, 2], [10]] and not rollout.is_rectangular


def test_rows_are_copied_in():
    rollout, values = Rollout(1), np.array([5])
    rollout.append({"lane": np.array([0]), "value": values})

    values[0] = 6

    assert rollout["value"].tolist() == [5]


def test_columns_of_another_schema_are_refused():
    rollout = Rollout(1)
    append(rollout, [0], [1])

    with pytest.raises(SchemaError, match="'value' is missing"):
        rollout.append({"lane": np.array([0])})
    with pytest.raises(SchemaError, match="'other' is not stored"):
        rollout.append({"lane": np.array([0]), "other": np.array([1])})


def of_two_lanes(**columns) -> dict[str, np.ndarray]:
    """Return rows of two lanes with an int64 action, a float32 reward and an observation [2, 2]."""
    rows = {
        "lane": np.array([0, 1]),
        "action": np.array([1, 2]),
        "reward": np.zeros(2, np.float32),
        "obs": np.zeros((2, 2), np.float32),
    }
    return {**rows, **columns}


@pytest.mark.parametrize(
    ("name", "column", "seen", "expected"),
    [
        ("action", np.array([0.7, 1.9]), r"float64\[\]", r"int64\[\]"),
        ("action", np.array([True, False]), r"bool\[\]", r"int64\[\]"),
        ("action", np.array([1, 2], np.uint8), r"uint8\[\]", r"int64\[\]"),
        ("reward", np.array([1e300, 0.0]), r"float64\[\]", r"float32\[\]"),
        ("reward", np.array([1, 2]), r"int64\[\]", r"float32\[\]"),
        ("reward", np.zeros((2, 1), np.float32), r"float32\[1\]", r"float32\[\]"),
        ("obs", np.zeros((2, 1), np.float32), r"float32\[1\]", r"float32\[2\]"),
        ("obs", np.zeros(2, np.float32), r"float32\[\]", r"float32\[2\]"),
        ("obs", np.zeros((2, 3), np.float32), r"float32\[3\]", r"float32\[2\]"),
    ],
)
def test_what_would_be_cast_or_broadcast_is_refused_and_nothing_kept(name, column, seen, expected):
    rollout = Rollout(2)
    rollout.append(of_two_lanes())

    with pytest.raises(SchemaError, match=f"column '{name}' has rows {seen}, the rollout holds {expected}"):
        rollout.append(of_two_lanes(**{name: column}))

    assert len(rollout) == 2
    rollout.append(of_two_lanes())
    assert rollout["action"].tolist() == [1, 2, 1, 2]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_column_of_another_number_of_rows_is_refused(is_first):
    rollout = Rollout(2)
    if not is_first:
        rollout.append(of_two_lanes())

    for column in (np.array([7]), np.array(7), np.array([7, 8, 9])):
        with pytest.raises(SchemaError, match="'action'"):
            rollout.append(of_two_lanes(action=column))


def test_a_narrower_dtype_of_the_same_kind_is_widened_without_loss():
    rollout = Rollout(2)
    rollout.append({"lane": np.array([0, 1]), "value": np.array([0.0, 1.0])})

    rollout.append({"lane": np.array([0, 1], np.int32), "value": np.array([0.1, 0.2], np.float32)})

    assert rollout["value"].dtype == np.float64
    assert rollout["value"][2:].astype(np.float32).tolist() == np.array([0.1, 0.2], np.float32).tolist()
    assert by_lane(rollout, float) == [[0.0, np.float32(0.1)], [1.0, np.float32(0.2)]]


def test_state_round_trip_keeps_rows_and_shape():
    rollout, again = Rollout(2), Rollout(2)
    append(rollout, [0, 1], [1, 2])
    append(rollout, [1], [3])

    again.load_state_dict(rollout.state_dict())

    assert by_lane(again) == by_lane(rollout) == [[1], [2, 3]]
    assert not again.is_rectangular
