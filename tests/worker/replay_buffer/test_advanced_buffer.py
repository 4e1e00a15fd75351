from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.data.batch import TransitionBatch
from ding_like.errors import ConfigError, SchemaError
from ding_like.worker.replay_buffer.presets import AdvancedReplayBuffer


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
