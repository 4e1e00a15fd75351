"""The prioritised buffer takes and gives what DI-engine's does: rows that are dicts, with ids that are text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.data.batch import TransitionBatch
from ding_like.errors import SchemaError
from ding_like.worker.replay_buffer import priorities as priorities_module
from ding_like.worker.replay_buffer.presets import AdvancedReplayBuffer, PrioritisedSequenceReplayBuffer
from ding_like.worker.replay_buffer.priorities import Priorities
from tests.worker.replay_buffer.test_advanced_buffer import make, newest, priorities, rows

__all__ = ["make"]  # a fixture


def test_rows_without_a_priority_get_the_largest_beside_rows_that_have_one(make: Any) -> None:
    buffer = make(8)
    buffer.push([{"reward": 0.0, "priority": 4.0}, {"reward": 1.0, "priority": None}, {"reward": 2.0}], 0)
    buffer.push({"reward": 3.0, "priority": None}, 0)
    buffer.push([{"reward": 4.0, "priority": None}, {"reward": 5.0, "priority": 0.5}], 0)

    assert priorities(buffer) == pytest.approx([4.00001, 4.00001, 4.00001, 4.00001, 4.00001, 0.50001])
    assert isinstance(buffer.sample(6, 0), TransitionBatch), "rows are columns all the same"


def test_a_window_whose_first_row_says_no_priority_gets_the_largest(tmp_path: Path) -> None:
    buffer = PrioritisedSequenceReplayBuffer({"sequence_length": 2}, None, str(tmp_path / "exp"))
    step = {"done": False, "obs": np.zeros(2, np.float32)}
    buffer.push([{**step, "priority": 3.0}, {**step, "priority": None}, {**step, "priority": 1.0}], 0)

    drawn = buffer.sample(2, 0)
    buffer.close()

    assert drawn["priority"].tolist() == pytest.approx([3.00001, 3.00001])


def test_a_priority_in_a_row_may_be_an_array_or_tensor_of_one_number(make: Any) -> None:
    buffer = make(8)
    given = [np.array([2.0]), torch.tensor(3.0), torch.tensor([4.0]), 5]
    buffer.push([{"reward": 0.0, "priority": priority} for priority in given], 0)

    assert priorities(buffer) == pytest.approx([2.00001, 3.00001, 4.00001, 5.00001])


def test_an_update_takes_what_sampled_rows_say_of_themselves(make: Any) -> None:
    buffer = make(8)
    buffer.push([{"obs": np.zeros(2), "reward": float(number)} for number in range(8)], 0)
    drawn = buffer.sample(4, 0, slice(-4, None))
    places = sorted(set(drawn["replay_buffer_idx"].tolist()))

    info = {name: [row[name] for row in drawn] for name in ("replay_unique_id", "replay_buffer_idx")}
    buffer.update({**info, "priority": [2.0] * 4})

    expected = [2.00001 if place in places else 1.0 for place in range(8)]
    assert priorities(buffer) == pytest.approx(expected)


def test_a_bad_priority_beside_rows_without_one_is_refused(make: Any) -> None:
    buffer = make(8)
    with pytest.raises(SchemaError, match="1 of 1 priorities"):
        buffer.push([{"reward": 0.0, "priority": np.nan}, {"reward": 1.0, "priority": None}], 0)
    assert buffer.count() == 0


def test_floats_after_whole_numbers_widen_the_column_exactly_and_say_so_once(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    buffer = make(8)
    buffer.push([{"reward": 1, "big": 2**24 + 1}, {"reward": 2, "big": 2**24 + 3}], 0)

    for reward in (0.5, 3, 0.1):
        buffer.push([{"reward": reward, "big": 0.5}], 0)

    data = buffer.state_dict()["data"]
    assert data["reward"].dtype == np.float32, "as wide as it must be: policies learn in float32"
    assert data["reward"].tolist() == [1.0, 2.0, 0.5, 3.0, np.float32(0.1)]
    assert data["big"].tolist() == [2**24 + 1, 2**24 + 3, 0.5, 0.5, 0.5]
    assert sum("'reward'" in line for line in caplog.messages) == 1
    assert sum("'big'" in line for line in caplog.messages) == 1


def test_whole_numbers_after_floats_stay_exact(make: Any) -> None:
    buffer = make(8)
    buffer.push([{"reward": 0.5}], 0)
    buffer.push([{"reward": 7}], 0)
    assert buffer.state_dict()["data"]["reward"].dtype == np.float32

    buffer.push([{"reward": 2**24 + 1}], 0)

    assert buffer.state_dict()["data"]["reward"].tolist() == [0.5, 7.0, 2**24 + 1]


def test_a_whole_number_that_no_float_holds_is_refused_and_changes_nothing(make: Any) -> None:
    buffer = make(8)
    buffer.push([{"reward": 2**62 + 1}], 0)

    with pytest.raises(SchemaError, match="'reward'"):
        buffer.push([{"reward": 0.5}], 0)

    assert buffer.state_dict()["data"]["reward"].tolist() == [2**62 + 1]


def test_a_column_beside_stacks_of_frames_widens_too(make: Any) -> None:
    buffer = make(8, frame_stack=2)
    stacks = {"obs": np.zeros((2, 3), np.uint8), "next_obs": np.ones((2, 3), np.uint8)}
    buffer.push([{**stacks, "reward": 1}], 0)
    buffer.push([{**stacks, "reward": 0.5}], 0)

    assert sorted(buffer.sample(2, 0)["reward"].tolist()) == [0.5, 1.0]


def test_rows_have_ids_as_text_and_an_update_takes_them(make: Any) -> None:
    buffer = make(8)
    buffer.push(rows(0, 1), 0)
    drawn = newest(buffer)

    assert drawn[0]["replay_unique_id"] == "buffer_1"
    assert [row["replay_unique_id"] for row in drawn.to_list()] == ["buffer_1"]
    assert drawn[:1][0]["replay_unique_id"] == "buffer_1"
    assert drawn["replay_unique_id"].tolist() == [1], "the column stays one of numbers"
    buffer.update({"replay_unique_id": ["buffer_1"], "replay_buffer_idx": [1], "priority": [3.0]})

    assert priorities(buffer) == pytest.approx([1.0, 3.00001])


@pytest.mark.parametrize("convert", [list, np.array])
def test_an_update_passes_over_rows_of_another_buffer(make: Any, convert: Any) -> None:
    buffer = make(8)
    buffer.push(rows(0, 1), 0)

    buffer.update({"replay_unique_id": convert(["other_1"]), "replay_buffer_idx": [1], "priority": [3.0]})

    assert priorities(buffer) == [1.0, 1.0]


def test_an_id_that_is_none_is_refused(make: Any) -> None:
    buffer = make(8)
    buffer.push(rows(0, 1), 0)
    with pytest.raises(SchemaError, match="'buffer', expected a number or a text like 'buffer_17'"):
        buffer.update({"replay_unique_id": ["buffer"], "replay_buffer_idx": [1], "priority": [3.0]})


def test_sampled_rows_can_be_pushed_again_as_dicts(make: Any) -> None:
    buffer = make(8)
    buffer.push(rows(0, 1), 0)

    buffer.push(buffer.sample(2, 0).to_list(), 0)

    assert buffer.count() == 4
    assert set(buffer.state_dict()["data"]) == {"reward", "priority"}


def test_what_is_no_dict_is_left_out_of_a_list_and_logged(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    buffer = make(8)

    buffer.push([{"reward": 0.0}, None, {"reward": 1.0}, "text"], 0)

    assert (buffer.count(), buffer.push_count) == (2, 2)
    assert "2 of 4 pushed items are none (None, say) and were left out" in caplog.text


@pytest.mark.parametrize("kind", ["columns", "objects"])
def test_a_sample_of_nothing_anneals_nothing_and_removes_nothing(make: Any, kind: str) -> None:
    buffer = make(8, max_use=1, max_staleness=1, anneal_step=10, monitor={"sampled_data_attr": {"print_freq": 1}})
    buffer.push([{"reward": 0.0 if kind == "columns" else "zero", "collect_iter": 0}], 0)
    before = buffer.beta

    assert len(buffer.sample(0, 1000)) == 0

    assert (buffer.beta, buffer.count()) == (before, 1)


def test_a_sample_of_nothing_is_given_while_the_rate_lets_no_row_out(make: Any) -> None:
    buffer = make(8, thruput_controller={"push_sample_rate_limit": {"min": 1}})
    buffer.push(rows(0, 1), 0)
    buffer.sample(2, 0)
    assert buffer.sample(2, 0) is None

    assert len(buffer.sample(0, 0)) == 0


def test_push_count_and_ids_go_on_after_a_clear(make: Any) -> None:
    buffer = make(8)
    buffer.push(rows(0, 1), 0)

    buffer.clear()
    buffer.push(rows(2), 0)

    assert (buffer.count(), buffer.push_count) == (1, 3)
    assert newest(buffer)["replay_unique_id"].tolist() == [2]


def test_a_sample_that_would_go_below_the_rate_is_refused_at_once(make: Any) -> None:
    buffer = make(8, thruput_controller={"push_sample_rate_limit": {"min": 0.5}, "window_seconds": 1e6})
    buffer.push(rows(0, 1, 2), 0)
    buffer.sample(3, 0)

    assert buffer.sample(4, 0) is None
    assert buffer.sample(3, 0) is not None, "3 rows for 6 are the limit"
    assert buffer.sample(1, 0) is None


def test_a_push_that_would_go_above_the_rate_is_dropped_whole(make: Any) -> None:
    buffer = make(8, thruput_controller={"push_sample_rate_limit": {"max": 2}, "window_seconds": 1e6})
    buffer.push(rows(0, 1), 0)
    buffer.sample(2, 0)

    buffer.push(rows(2, 3, 4), 0)
    assert buffer.push_count == 2
    buffer.push([{"reward": 2.0}, {"reward": 3.0}], 0)
    assert buffer.push_count == 4


def test_a_narrow_rate_never_stops_pushes_and_samples_for_good(make: Any) -> None:
    limits = {"push_sample_rate_limit": {"min": 1, "max": 1}, "window_seconds": 1e6}
    buffer = make(64, thruput_controller=limits)
    buffer.push(rows(*range(8)), 0)
    sampled = 0
    for _ in range(40):
        buffer.push(rows(*range(8)), 0)
        sampled += buffer.sample(16, 0) is not None

    assert buffer.push_count >= 8 * 16
    assert sampled >= 8


def zeros(size: int) -> TransitionBatch:
    return TransitionBatch({"reward": np.zeros(size, np.float32)})


def newest_priority(buffer: AdvancedReplayBuffer) -> float:
    return float(buffer.state_dict()["data"]["priority"][-1])


@pytest.mark.parametrize("convert", [np.float32, np.float64, list], ids=["float32", "float64", "list"])
@pytest.mark.parametrize("is_compiled", [True, False])
def test_an_update_raises_the_priority_of_new_rows(
    make: Any, monkeypatch: pytest.MonkeyPatch, convert: Any, is_compiled: bool
) -> None:
    if not is_compiled:
        monkeypatch.setattr(priorities_module, "compiled_part", lambda: None)
    buffer = make(8)
    buffer.push(zeros(4), 0)
    batch = buffer.sample(4, 0)
    priority = [0.5, 7.0, 0.25, 1.0]
    buffer.update(
        {
            "replay_buffer_idx": batch["replay_buffer_idx"],
            "replay_unique_id": batch["replay_unique_id"],
            "priority": priority if convert is list else np.array(priority, convert),
        }
    )

    buffer.push(zeros(1), 0)

    assert newest_priority(buffer) == pytest.approx(7.0, abs=1e-4)


def test_saved_data_raise_the_priority_of_new_rows(make: Any, tmp_path: Path) -> None:
    first, second = make(8), make(8)
    first.push(TransitionBatch({"reward": np.zeros(2, np.float32), "priority": np.array([9.0, 2.0])}), 0)
    first.save_data(str(tmp_path / "data"))
    second.load_data(str(tmp_path / "data"))

    second.push(zeros(1), 0)

    assert newest_priority(second) == pytest.approx(9.0, abs=1e-4)


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_row_that_comes_twice_in_a_sample_is_used_twice(monkeypatch: pytest.MonkeyPatch, is_compiled: bool) -> None:
    if not is_compiled:
        monkeypatch.setattr(priorities_module, "compiled_part", lambda: None)
    priorities = Priorities(4, AdvancedReplayBuffer.config)
    priorities.write_new(slice(0, 4), None)

    described = priorities.describe(np.array([2, 1, 2], np.int64), 0, next_id=4, next_row=0)

    assert priorities.use.tolist() == [0, 1, 2, 0] and described["use"].tolist() == [2, 1, 2]
