import numpy as np
import pytest
import torch

from ding_like.data.batch import EpisodeBatch, TransitionBatch
from ding_like.errors import SchemaError


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
