from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.data.batch import TransitionBatch
from ding_like.errors import ConfigError, SchemaError
from ding_like.worker.replay_buffer import priorities as priorities_module
from ding_like.worker.replay_buffer.presets import AdvancedReplayBuffer, PrioritisedSequenceReplayBuffer
from ding_like.worker.replay_buffer.priorities import Priorities


@pytest.fixture
def make(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    def build(size: int = 8, *, seed: int = 0, tb_logger: Any = None, **cfg: Any) -> AdvancedReplayBuffer:
        buffer = AdvancedReplayBuffer(
            {"replay_buffer_size": size, **cfg}, tb_logger, str(tmp_path / "exp"), rng=np.random.default_rng(seed)
        )
        request.addfinalizer(buffer.close)
        return buffer

    return build


def rows(*rewards: float, **columns: Any) -> TransitionBatch:
    reward = np.array(rewards, np.float32)
    extra = {name: np.array(column) for name, column in columns.items()}
    return TransitionBatch({"reward": reward, **extra})


def info(batch: Any, priority: Any) -> dict[str, Any]:
    return {
        "priority": priority,
        "replay_buffer_idx": batch["replay_buffer_idx"],
        "replay_unique_id": batch["replay_unique_id"],
    }


def newest(buffer: AdvancedReplayBuffer) -> Any:
    """Return a sample of the newest row alone."""
    return buffer.sample(1, 0, slice(-1, None))


def priorities(buffer: AdvancedReplayBuffer) -> list[float]:
    """Return the stored priorities, oldest row first."""
    return buffer.state_dict()["data"]["priority"].tolist()


def assert_equal_batches(one: Any, other: Any) -> None:
    assert one.columns.keys() == other.columns.keys()
    for name in one.columns:
        np.testing.assert_array_equal(one[name], other[name])


def log_text(tmp_path: Path) -> str:
    return (tmp_path / "exp/log/buffer/buffer_logger.txt").read_text()


def test_defaults_are_the_seeds() -> None:
    inf = float("inf")
    assert AdvancedReplayBuffer.default_config() == {
        "type": "advanced",
        "replay_buffer_size": 4096,
        "frame_stack": 0,  # ours
        "max_use": inf,
        "max_staleness": inf,
        "alpha": 0.6,
        "beta": 0.4,
        "anneal_step": 1e5,
        "enable_track_used_data": False,
        "deepcopy": False,
        "thruput_controller": {
            "push_sample_rate_limit": {"max": inf, "min": 0},
            "window_seconds": 30,
            "sample_min_limit_ratio": 1,
        },
        "monitor": {
            "sampled_data_attr": {"average_range": 5, "print_freq": 200},
            "periodic_thruput": {"seconds": 60},
        },
        "cfg_type": "AdvancedReplayBufferDict",
    }


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_frequencies_are_the_powers_of_the_priorities(alpha: float, make: Any) -> None:
    given = np.random.default_rng(3).uniform(0.0, 5.0, 50)
    buffer = make(64, alpha=alpha, seed=1)
    buffer.push(rows(*range(50), priority=given), 0)

    # One row a call: rows of one call are stratified, thus not independent.
    drawn = [int(buffer.sample(1, 0)["replay_buffer_idx"][0]) for _ in range(20_000)]

    expected = (given + 1e-5) ** alpha
    expected *= len(drawn) / expected.sum()
    chi_square = (((np.bincount(drawn, minlength=50) - expected) ** 2) / expected).sum()
    assert chi_square < 85.4  # 0.1 % of draws from 49 degrees of freedom are above


def test_a_sample_takes_one_row_from_each_equal_part_of_the_sum(make: Any) -> None:
    buffer = make(8, alpha=1.0)
    buffer.push(rows(0, 1, 2, 3, priority=[1.0, 1.0, 1.0, 5.0]), 0)

    for _ in range(100):
        drawn = np.bincount(buffer.sample(4, 0)["replay_buffer_idx"], minlength=4)
        assert drawn[3] in (2, 3)  # parts 3 and 4 are its own, a half of part 2 as well


def test_beta_rises_to_one_within_the_anneal_steps(make: Any) -> None:
    buffer = make(8, beta=0.2, anneal_step=4)
    buffer.push(rows(1, 2), 0)

    betas = [buffer.beta]
    for _ in range(5):
        buffer.sample(2, 0)
        betas.append(buffer.beta)

    assert betas == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0])
    constant = make(8, beta=0.2, anneal_step=0)
    constant.push(rows(1, 2), 0)
    constant.sample(2, 0)
    assert constant.beta == 0.2


def test_beta_can_be_set(make: Any) -> None:
    buffer = make(8)
    buffer.beta = 0.9
    assert buffer.beta == 0.9
    with pytest.raises(ConfigError, match="beta is 1.5"):
        buffer.beta = 1.5


def test_update_takes_lists_arrays_and_tensors(make: Any) -> None:
    for convert in (list, tuple, np.array, torch.tensor):
        buffer = make(8)
        buffer.push(rows(0, 1), 0)
        batch = newest(buffer)

        buffer.update({name: convert(np.asarray(value).tolist()) for name, value in info(batch, [3.0]).items()})

        assert priorities(buffer) == pytest.approx([1.0, 3.00001]), convert


def test_update_passes_over_places_that_are_none(make: Any) -> None:
    buffer = make(4)
    buffer.push(rows(0, 1, 2, 3), 0)
    batch = buffer.sample(4, 0)

    for shift in (-4, 4):
        beside = {"replay_buffer_idx": batch["replay_buffer_idx"] + shift, "priority": np.full(4, 9.0)}
        buffer.update({"replay_unique_id": batch["replay_unique_id"], **beside})

    assert priorities(buffer) == [1.0] * 4


def test_ids_count_rows_and_places_go_around(make: Any) -> None:
    buffer = make(3)
    buffer.push(rows(0, 1), 0)
    buffer.push(rows(2, 3, 4), 0)

    seen = {int(row["reward"]): (row["replay_unique_id"], int(row["replay_buffer_idx"])) for row in batches(buffer)}

    assert seen == {2: ("buffer_2", 2), 3: ("buffer_3", 0), 4: ("buffer_4", 1)}


def batches(buffer: AdvancedReplayBuffer) -> list[Any]:
    return [buffer.sample(1, 0, slice(age, age + 1))[0] for age in range(buffer.count())]


def test_a_bad_priority_is_refused_and_changes_nothing(make: Any) -> None:
    buffer = make(8)
    buffer.push(rows(0, 1), 0)
    batch = newest(buffer)
    before = buffer.state_dict()

    for bad in ([-1.0], [np.nan], [np.inf], [1e300], [[1.0]], [1.0, 2.0], 1.0, ["high"]):
        with pytest.raises(SchemaError):
            buffer.update(info(batch, bad))

    after = buffer.state_dict()
    np.testing.assert_array_equal(before.pop("data")["priority"], after.pop("data")["priority"])
    assert before["max_priority"] == after["max_priority"]


def test_a_push_with_a_bad_priority_is_refused_and_changes_nothing(make: Any) -> None:
    buffer = make(8)
    for number in range(2):
        for bad in (-1.0, np.nan, np.inf):
            with pytest.raises(SchemaError, match="1 of 2 priorities"):
                buffer.push(rows(0, 1, priority=[1.0, bad]), 0)
        assert (buffer.count(), buffer.push_count) == (number, number)
        buffer.push(rows(0), 0)


def test_an_update_without_ids_is_refused(make: Any) -> None:
    buffer = make(8)
    with pytest.raises(SchemaError, match="lacks replay_buffer_idx"):
        buffer.update({"priority": [1.0], "replay_buffer_idx": None, "replay_unique_id": [0]})


def test_fewer_rows_than_asked_for_do_where_the_ratio_allows(make: Any) -> None:
    buffer = make(8, thruput_controller={"sample_min_limit_ratio": 0.5})
    buffer.push(rows(0, 1), 0)
    assert len(buffer.sample(4, 0)) == 4
    assert buffer.sample(5, 0) is None


@pytest.mark.parametrize("name", ["collect_iter", "policy_version"])
def test_stale_rows_leave(name: str, make: Any) -> None:
    buffer = make(8, max_staleness=10)
    buffer.push(rows(0, 1, 2, **{name: [0, 5, 3]}), 0)

    assert sorted(buffer.sample(3, 9)["staleness"].tolist()) == [4, 6, 9]
    assert buffer.sample(3, 10) is None
    assert set(buffer.sample(2, 12)["reward"].tolist()) == {1.0, 2.0}
    assert buffer.sample(1, 13)["reward"].tolist() == [1.0]
    assert buffer.count() == 1
    ageless = make(8, max_staleness=1)
    ageless.push(rows(0), 0)
    assert ageless.sample(1, 1000)["staleness"].tolist() == [-1]


def test_sample_range_restricts_the_draw_by_age(make: Any) -> None:
    buffer = make(4)
    buffer.push(rows(*range(8)), 0)
    for ages, expected in ((slice(-2, None), {6, 7}), (slice(0, 2), {4, 5}), (slice(1, None, 2), {5, 7})):
        drawn = {int(reward) for _ in range(30) for reward in buffer.sample(2, 0, ages)["reward"]}
        assert drawn == expected, ages


def test_an_empty_sample_has_the_columns(make: Any) -> None:
    buffer = make(4)
    assert buffer.sample(0, 0) == []
    buffer.push(rows(1, 2), 0)
    assert {"reward", "weight", "use"} <= buffer.sample(0, 0).columns.keys()


def test_duplicates_are_independent(make: Any) -> None:
    buffer = make(4, thruput_controller={"sample_min_limit_ratio": 0})
    buffer.push([{"name": ["a"], "x": "text"}], 0)

    one, other = buffer.sample(2, 0)
    one["name"].append("b")

    assert other["name"] == ["a"]
    assert buffer.sample(1, 0)[0]["name"] == ["a"]


def test_objects_have_priorities_too(make: Any) -> None:
    buffer = make(4, alpha=1.0)
    buffer.push([{"x": "a", "priority": 0.0}, {"x": "b", "priority": None}, {"x": "c"}], 0)

    row = buffer.sample(1, 0, slice(-1, None))[0]
    buffer.update({name: [row[name]] for name in ("replay_buffer_idx", "replay_unique_id")} | {"priority": [3.0]})

    assert row["IS"] == row["weight"] < 1
    stored = [row["priority"] for row in buffer.state_dict()["data"]]
    assert stored == pytest.approx([1e-5, 1.0, 3.00001])


def test_what_is_no_mapping_is_refused(make: Any) -> None:
    buffer = make(4)
    with pytest.raises(SchemaError, match="keeps mappings, got a str"):
        buffer.push(["a", "b"], 0)
    assert (buffer.count(), buffer.push_count) == (0, 0)


@pytest.mark.parametrize("cfg", [{"max_use": 3}, {"max_staleness": 30}, {}])
def test_a_loaded_state_samples_as_the_saved_one(cfg: dict[str, Any], make: Any) -> None:
    buffer = make(16, seed=5, **cfg)
    for step in range(5):
        buffer.push(rows(*range(7), collect_iter=[step] * 7), 0)
        batch = buffer.sample(4, step)
        buffer.update(info(batch, batch["reward"]))
    other = make(16, seed=6, **cfg)

    other.load_state_dict(buffer.state_dict())

    assert other.push_count == buffer.push_count
    for step in range(5, 12):
        one, two = buffer.sample(2, step), other.sample(2, step)
        assert_equal_batches(one, two)
        for each in (buffer, other):
            each.update(info(one, one["reward"] / 2))
            each.push(rows(1, 2, collect_iter=[step] * 2), 0)


def test_averages_of_what_was_sampled_are_logged(make: Any, tmp_path: Path) -> None:
    buffer = make(8, monitor={"sampled_data_attr": {"average_range": 2, "print_freq": 3}})
    buffer.push(rows(0), 0)
    for _ in range(3):
        buffer.sample(1, 0)
    assert "use_avg 2.5" in log_text(tmp_path)


def test_nonsense_settings_are_refused(make: Any) -> None:
    nan = float("nan")
    nonsense = {"alpha": [-1], "beta": [-0.1], "max_use": [0, nan], "max_staleness": [0, nan]}
    nonsense["thruput_controller"] = [{"sample_min_limit_ratio": value} for value in (-1, nan)]
    for name, values in nonsense.items():
        for value in values:
            with pytest.raises(ConfigError):
                make(8, **{name: value})


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


@pytest.mark.parametrize("convert", [np.float32, np.float64, list], ids=["float32", "float64", "list"])
@pytest.mark.parametrize("is_compiled", [True, False])
def test_an_update_raises_the_priority_of_new_rows(
    make: Any, monkeypatch: pytest.MonkeyPatch, convert: Any, is_compiled: bool
) -> None:
    if not is_compiled:
        monkeypatch.setattr(priorities_module, "compiled_part", lambda: None)
    buffer = make(8)
    buffer.push(rows(0, 0, 0, 0), 0)
    batch = buffer.sample(4, 0)
    priority = [0.5, 7.0, 0.25, 1.0]
    buffer.update(info(batch, priority if convert is list else np.array(priority, convert)))

    buffer.push(rows(0), 0)

    assert priorities(buffer)[-1] == pytest.approx(7.0, abs=1e-4)


def test_saved_data_raise_the_priority_of_new_rows(make: Any, tmp_path: Path) -> None:
    first, second = make(8), make(8)
    first.push(rows(0, 0, priority=[9.0, 2.0]), 0)
    first.save_data(str(tmp_path / "data"))
    second.load_data(str(tmp_path / "data"))

    second.push(rows(0), 0)

    assert priorities(second)[-1] == pytest.approx(9.0, abs=1e-4)


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_row_that_comes_twice_in_a_sample_is_used_twice(monkeypatch: pytest.MonkeyPatch, is_compiled: bool) -> None:
    if not is_compiled:
        monkeypatch.setattr(priorities_module, "compiled_part", lambda: None)
    priorities = Priorities(4, AdvancedReplayBuffer.config)
    priorities.write_new(slice(0, 4), None)

    described = priorities.describe(np.array([2, 1, 2], np.int64), 0, next_id=4, next_row=0)

    assert priorities.use.tolist() == [0, 1, 2, 0] and described["use"].tolist() == [2, 1, 2]
