import numpy as np
import torch

from ding_like.data.batch import TransitionBatch
from ding_like.data.rows import as_batch, to_tensor_transitions


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
