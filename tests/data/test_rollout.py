import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ding_like.data.rollout import Rollout
from ding_like.errors import SchemaError


def append(rollout: Rollout, lanes: list[int], values: list[int]) -> None:
    rollout.append({"lane": np.array(lanes, np.int64), "value": np.array(values, np.int64)})


def by_lane(rollout: Rollout) -> list[list[int]]:
    lanes = rollout.as_lanes()
    return [
        [int(v) for v in rollout["value"][lanes.row[lanes.valid[:, lane], lane]]] for lane in range(rollout.num_lanes)
    ]


def test_full_steps_are_a_rectangle():
    rollout = Rollout(2)
    append(rollout, [0, 1], [10, 20])
    append(rollout, [0, 1], [11, 21])

    assert rollout.is_rectangular
    assert by_lane(rollout) == [[10, 11], [20, 21]]


def test_partial_steps_are_sorted_by_lane_in_order_of_time():
    rollout = Rollout(3)
    append(rollout, [2, 0], [30, 10])
    append(rollout, [0], [11])
    append(rollout, [2], [31])

    assert by_lane(rollout) == [[10, 11], [], [30, 31]]


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

    rollout.drop_last(1, 2)

    assert by_lane(rollout) == [[0, 1, 2], [10]]


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


def test_state_round_trip_keeps_rows_and_shape():
    rollout, again = Rollout(2), Rollout(2)
    append(rollout, [0, 1], [1, 2])
    append(rollout, [1], [3])

    again.load_state_dict(rollout.state_dict())

    assert by_lane(again) == by_lane(rollout) == [[1], [2, 3]]
    assert not again.is_rectangular
