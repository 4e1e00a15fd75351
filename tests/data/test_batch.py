from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ding_like.data.batch import EpisodeBatch, Schema, TransitionBatch
from ding_like.data.rollout import Rollout
from ding_like.data.rows import as_batch, to_tensor_transitions
from ding_like.errors import SchemaError
from ding_like.utils.data import to_device, to_dtype, to_list, to_ndarray, to_tensor


def make_batch(rows: int = 4) -> TransitionBatch:
    return TransitionBatch(
        {
            "obs": np.arange(rows * 2, dtype=np.float32).reshape(rows, 2),
            "action": np.arange(rows),
            "terminated": np.arange(rows) % 2 == 1,
            "truncated": np.arange(rows) % 3 == 2,
            "policy_version": np.full(rows, 7),
        }
    )


def test_batch_is_a_sequence_of_mappings():
    batch = make_batch()

    assert len(batch) == 4
    assert batch[-1]["action"] == 3
    assert [int(row["action"]) for row in batch] == [0, 1, 2, 3]
    assert [int(row["action"]) for row in reversed(batch)] == [3, 2, 1, 0]
    assert [int(row["action"]) for row in batch[1:3]] == [1, 2]
    with pytest.raises(IndexError):
        batch[4]


def test_row_answers_the_keys_of_di_engine():
    row = dict(make_batch()[1])

    assert row["done"] and row["terminated"] and not row["truncated"]
    assert row["collect_iter"] == 7
    assert "IS" not in row


def test_row_is_read_only():
    row = make_batch()[0]

    with pytest.raises(ValueError, match="read-only"):
        row["obs"][0] = 5.0
    with pytest.raises(TypeError):
        row["obs"] = 1


def test_unequal_columns_are_refused():
    with pytest.raises(SchemaError, match="action 3"):
        TransitionBatch({"obs": np.zeros((4, 2)), "action": np.zeros(3)})


def test_unknown_column_names_the_known_ones():
    with pytest.raises(KeyError, match="obs, action"):
        make_batch()["observation"]


def test_take_gives_fresh_memory():
    batch = make_batch()

    taken = batch.take(np.array([2, 0]))

    assert taken["action"].tolist() == [2, 0]
    assert not np.shares_memory(taken["obs"], batch["obs"])


def test_concat_joins_rows_and_refuses_other_schemas():
    batch = make_batch()

    joined = TransitionBatch.concat([batch[:1], batch[3:]])

    assert joined["action"].tolist() == [0, 3]
    with pytest.raises(SchemaError, match=r"float64\[\]"):
        TransitionBatch.concat([batch, batch.with_columns(action=np.zeros(4))])


def test_to_gives_tensors_of_equal_values():
    tensors = make_batch().to("cpu")

    assert tensors["obs"].dtype == torch.float32
    assert tensors["action"].tolist() == [0, 1, 2, 3]
    assert tensors["done"].tolist() == [False, True, True, True]


def test_episode_batch_item_is_one_episode():
    episodes = EpisodeBatch(make_batch(5), np.array([0, 2, 5]))

    assert [len(episode) for episode in episodes] == [2, 3]
    assert episodes[-1]["action"].tolist() == [2, 3, 4]
    assert episodes[1:][0]["action"].tolist() == [2, 3, 4]
    assert len(episodes[1:1]) == 0
    with pytest.raises(SchemaError, match="rise from 0 to 5"):
        EpisodeBatch(make_batch(5), np.array([0, 4]))


COLUMNS = {"obs": np.zeros((3, 4), np.float32), "action": np.zeros(3, np.int64)}


def test_allocate_makes_columns_of_the_schema():
    made = Schema.of(COLUMNS).allocate(5)

    assert Schema.of(COLUMNS).row_bytes == 4 * 4 + 8
    assert made["obs"].shape == (5, 4) and made["obs"].dtype == np.float32
    assert made["action"].shape == (5,)


def test_check_names_every_fault_at_once():
    with pytest.raises(SchemaError) as caught:
        Schema.of(COLUMNS).check({"obs": np.zeros((2, 5), np.float32), "extra": np.zeros(2)}, where="the buffer")

    message = str(caught.value)
    assert "'action' is missing" in message
    assert "'obs' has rows float32[5], the buffer holds float32[4]" in message
    assert "'extra' is not stored" in message


def test_mappings_stack_once_with_the_keys_of_di_engine_translated():
    rows = [{"obs": np.array([1.0, 2.0], np.float32), "reward": 0.5, "done": done, "IS": 1.0} for done in (False, True)]

    batch = as_batch(rows)

    assert batch is not None
    assert batch["obs"].shape == (2, 2)
    assert batch["reward"].dtype == np.float32
    assert batch["terminated"].tolist() == [False, True]
    assert batch["truncated"].tolist() == [False, False]
    assert batch["weight"].tolist() == [1.0, 1.0]


def test_one_mapping_is_one_row_and_a_batch_stays_itself():
    batch = as_batch({"obs": np.zeros(3)})

    assert batch is not None and len(batch) == 1
    assert as_batch(batch) is batch


def test_nested_observations_become_flat_keys():
    batch = as_batch([{"obs": {"image": np.zeros((2, 2)), "arm": {"angle": 1.0}}}])

    assert batch is not None
    assert set(batch.columns) == {"obs/image", "obs/arm/angle"}


def test_what_does_not_stack_is_none():
    shapes, keys = [{"obs": np.zeros(2)}, {"obs": np.zeros(3)}], [{"obs": np.zeros(2)}, {"other": np.zeros(2)}]
    for data in (shapes, keys, [{"name": "text"}], [1, 2], [], "text"):
        assert as_batch(data) is None, data


def test_rows_of_a_batch_stack_back_to_it():
    batch = TransitionBatch(
        {"obs": np.eye(3, dtype=np.float32), "terminated": np.zeros(3, bool), "truncated": np.ones(3, bool)}
    )

    again = as_batch(batch.to_list())

    assert again is not None
    assert {name: column.tolist() for name, column in again.columns.items()} == {
        name: column.tolist() for name, column in batch.columns.items()
    }


def test_tensor_transitions_share_next_obs_within_an_episode():
    data = [{"obs": np.full(2, t), "next_obs": np.full(2, t + 1), "done": t == 1, "reward": 1.0} for t in range(3)]

    out = to_tensor_transitions(data)

    assert out[0]["next_obs"] is out[1]["obs"]
    assert out[1]["next_obs"] is not out[2]["obs"], "an episode ends here: the next obs is of another one"
    assert out[2]["next_obs"].tolist() == [3, 3]
    assert out[0]["done"] is False and isinstance(out[0]["obs"], torch.Tensor)
    assert isinstance(data[0]["obs"], np.ndarray), "the input stays untouched"


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


def test_rows_are_copied_in_and_columns_of_another_schema_are_refused():
    rollout, values = Rollout(1), np.array([5])
    rollout.append({"lane": np.array([0]), "value": values})

    values[0] = 6

    assert rollout["value"].tolist() == [5]
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


class Pair(NamedTuple):
    left: object
    right: object


def test_arrays_are_made_of_numbers_lists_and_tensors_within_trees() -> None:
    made = to_ndarray({"a": [1, 2], "b": (torch.ones(2), 3.0), "c": None, "d": "text"})

    assert made["a"].tolist() == [1, 2] and made["a"].dtype.kind == "i"
    assert made["b"][0].tolist() == [1, 1] and made["b"][1].shape == () and made["c"] is None and made["d"] == "text"


def test_an_array_has_the_dtype_that_is_asked_for() -> None:
    assert to_ndarray([1, 2], dtype=np.float32).dtype == np.float32


def test_tensors_are_made_within_named_tuples_and_scalars_may_stay() -> None:
    made = to_tensor(Pair(np.zeros(2), {"done": True}), dtype=torch.float32, transform_scalar=False)

    assert isinstance(made, Pair) and torch.equal(made.left, torch.zeros(2)) and made.right == {"done": True}


def test_keys_may_be_left_alone() -> None:
    made = to_tensor({"obs": [1.0], "id": [1.0]}, ignore_keys=("id",))

    assert torch.equal(made["obs"], torch.ones(1)) and made["id"] == [1.0]


def test_lists_come_of_arrays_and_tensors() -> None:
    assert to_list({"a": np.arange(2), "b": [torch.tensor(3)]}) == {"a": [0, 1], "b": [3]}


def test_tensors_move_to_a_device_and_a_dtype() -> None:
    moved = to_dtype(to_device([torch.ones(1), "text"], "cpu"), torch.float64)

    assert moved[0].dtype == torch.float64 and moved[1] == "text"
