"""What windows by priority promise: those of a slow list, each with its own priority, weight, use and age."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ding_like.data.batch import TransitionBatch
from ding_like.errors import ConfigError, SchemaError
from ding_like.utils.checkpoint import load_state, save_state
from ding_like.worker import PrioritisedSequenceReplayBuffer
from tests.worker.replay_buffer.test_sequence_buffer import Lanes, all_windows, check_windows

Key = tuple[int, int, int]  # lane, episode, step


@pytest.fixture
def make(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    def build(size: int = 60, *, length: int = 4, seed: int = 0, **cfg: Any) -> PrioritisedSequenceReplayBuffer:
        cfg = {"replay_buffer_size": size, "sequence_length": length, "thruput_controller": ANY_SIZE, **cfg}
        buffer = PrioritisedSequenceReplayBuffer(cfg, exp_name=str(tmp_path / "exp"), rng=np.random.default_rng(seed))
        request.addfinalizer(buffer.close)
        return buffer

    return build


# Samples may be larger than the buffer.
ANY_SIZE = {"sample_min_limit_ratio": 0}


def keys_of(data: Any) -> list[Key]:
    return [(int(a), int(b), int(c)) for a, b, c in data["obs"][:, 0]]


def info(data: Any, priority: Any) -> dict[str, Any]:
    names = ("replay_buffer_idx", "replay_unique_id")
    return {**{name: data.per_window[name] for name in names}, "priority": priority}


def everything(buffer: PrioritisedSequenceReplayBuffer) -> dict[Key, float]:
    """Return all windows that can be drawn, with their priorities: many draws find each."""
    data = buffer.sample(60 * max(buffer.count(), 1), 0)
    return {} if data is None else dict(zip(keys_of(data), data["priority"].tolist(), strict=True))


class SlowModel:
    """Reference buffer: a list of (lane, episode, step) for each lane's ring, and a priority for each window so far."""

    def __init__(self, ring_size: int, length: int) -> None:
        self.rings: dict[int, list[Key]] = {}
        self.ring_size, self.length = ring_size, length
        self.priority: dict[Key, float] = {}
        self.largest = 1.0

    def push(self, rows: TransitionBatch) -> None:
        for lane, episode, step in rows["obs"].astype(int).tolist():
            self.rings[lane] = [*self.rings.get(lane, []), (lane, episode, step)][-self.ring_size :]
        windows = all_windows([key for ring in self.rings.values() for key in ring], self.length)
        self.priority = {key: self.priority.get(key, self.largest) for key in windows}

    def update(self, keys: list[Key], priorities: list[float]) -> None:
        told = {key: float(np.float32(value + 1e-5)) for key, value in zip(keys, priorities, strict=True)}
        for key in told.keys() & self.priority.keys():
            self.priority[key] = told[key]
            self.largest = max(self.largest, told[key])


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    num_lanes=st.integers(1, 3),
    length=st.integers(1, 5),
    size=st.integers(6, 40),
    pushes=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    ready=st.sampled_from([1.0, 0.6]),
)
def test_windows_and_priorities_are_those_of_a_slow_list(
    tmp_path_factory: Any, seed: int, num_lanes: int, length: int, size: int, pushes: list[int], ready: float
) -> None:
    cfg = dict(
        replay_buffer_size=size, num_streams=num_lanes, sequence_length=length, thruput_controller=ANY_SIZE, alpha=0.2
    )
    rng = np.random.default_rng(seed)
    buffer = PrioritisedSequenceReplayBuffer(cfg, exp_name=str(tmp_path_factory.mktemp("b")), rng=rng)
    lanes, model, last = Lanes(num_lanes, seed), SlowModel(size // num_lanes, length), None
    for num_ticks in pushes:
        rows = lanes.rows(num_ticks, ready=ready)
        buffer.push(rows, 0)
        model.push(rows)
        if last is not None:  # some of its windows may have left
            given = np.arange(1.0, 7.0)
            buffer.update(info(last, given))
            model.update(keys_of(last), given.tolist())

        assert buffer.count() == len(model.priority)
        last = buffer.sample(6, 0)
        assert (last is None) == (not model.priority)
        if last is not None:
            check_windows(last, length)
        found = everything(buffer)
        assert found.keys() == model.priority.keys()
        assert all(found[key] == pytest.approx(model.priority[key], rel=1e-6) for key in found)
    buffer.close()


@pytest.mark.parametrize("alpha", [0.0, 0.7])
def test_frequencies_and_weights_follow_the_priorities(make: Any, alpha: float) -> None:
    buffer = make(40, alpha=alpha, beta=0.5, anneal_step=0)
    buffer.push(Lanes(2).rows(15), 0)
    names = sorted(everything(buffer))
    for _ in range(5):
        data = buffer.sample(60, 0)
        buffer.update(info(data, np.array([1.0 + names.index(key) for key in keys_of(data)])))

    drawn = [key for _ in range(300) for key in keys_of(buffer.sample(1, 0))]
    data = buffer.sample(64, 0)

    powers = np.array([1.0 + i + 1e-5 for i in range(len(names))]) ** alpha
    expected = powers * len(drawn) / powers.sum()
    counts = np.array([drawn.count(name) for name in names])
    assert (((counts - expected) ** 2) / expected).sum() < len(names) + 4.5 * np.sqrt(2 * len(names))
    weights = (len(names) * powers / powers.sum()) ** -0.5
    weights /= weights.max()
    assert data["weight"].dtype == np.float32
    np.testing.assert_allclose(data["weight"], [weights[names.index(key)] for key in keys_of(data)], rtol=1e-5)


def test_a_window_has_the_priority_that_its_first_row_was_pushed_with(make: Any) -> None:
    buffer, lanes = make(length=3), Lanes(1)
    rows = lanes.rows(4, length=100)
    buffer.push(rows.with_columns(priority=np.array([3.0, 0.5, 9.0, 9.0])), 0)
    buffer.push(lanes.rows(2, length=100), 0)
    buffer.push(lanes.rows(1, length=100), 0)

    given = {(0, 0, 0): 3.00001, (0, 0, 1): 0.50001, (0, 0, 2): 9.00001, (0, 0, 3): 9.00001}
    assert everything(buffer) == pytest.approx({**given, (0, 0, 4): 9.00001}), "the largest that there was, where none"


def test_windows_leave_after_max_use_and_are_not_brought_back(make: Any) -> None:
    buffer, lanes = make(length=3, max_use=2), Lanes(1)
    buffer.push(lanes.rows(3, length=100), 0)

    first, second = buffer.sample(1, 0), buffer.sample(1, 0)
    buffer.update(info(second, [9.0]))
    buffer.push(lanes.rows(1, length=100), 0)

    assert [data["use"].tolist() for data in (first, second)] == [[1], [2]]
    assert everything(buffer) == {(0, 0, 1): 1.0}


def test_windows_get_stale_with_their_first_row(make: Any) -> None:
    buffer = make(length=3, max_staleness=10)
    rows = Lanes(1).rows(5, length=100)
    buffer.push(rows.with_columns(policy_version=np.array([0, 5, 6, 7, 8])), 0)

    assert sorted(set(buffer.sample(30, 9)["staleness"].tolist())) == [3, 4, 9]
    assert {key[2] for key in keys_of(buffer.sample(30, 10))} == {1, 2}
    assert buffer.count() == 2


def test_sample_range_is_by_age_of_first_rows(make: Any) -> None:
    buffer = make(100, length=3)
    buffer.push(Lanes(2).rows(30, length=100), 0)

    found = keys_of(buffer.sample(64, 0, slice(-5, None)))

    assert set(found) == {(lane, 1000 * lane, step) for lane in (0, 1) for step in (25, 26, 27)}


def test_padding_lets_windows_begin_at_every_row(make: Any) -> None:
    buffer = make(length=8, padding=True)
    buffer.push(Lanes(1).rows(10, length=5), 0)

    data = buffer.sample(200, 0)

    assert buffer.count() == 10 and len(set(keys_of(data))) == 10
    assert data["mask"].sum(axis=1).tolist() == [5 - step for _, _, step in keys_of(data)]


def test_a_lane_that_is_new_moves_windows_with_their_priorities(make: Any) -> None:
    buffer = make(24, length=3)
    rows = Lanes(3).rows(6, length=100)
    is_of_new_lane = rows["lane"] == 2
    buffer.push(rows.take(np.flatnonzero(~is_of_new_lane)), 0)
    old = buffer.sample(30, 0)
    buffer.update(info(old, [2.0 + lane + step for lane, _, step in keys_of(old)]))
    before = everything(buffer)

    buffer.push(rows.take(np.flatnonzero(is_of_new_lane)), 0)

    expected = {**before, **{(2, 2000, step): 6.00001 for step in range(4)}}
    assert len(before) == 8 and everything(buffer) == pytest.approx(expected)
    buffer.update(info(old, np.full(30, 1.0)))  # by places of before: lane 1 is elsewhere now
    after = everything(buffer)
    assert {key for key in after if after[key] != pytest.approx(expected[key])} == {(0, 0, step) for step in range(4)}


@pytest.mark.parametrize("cfg", [{}, {"max_use": 4}, {"max_staleness": 30}, {"padding": True}])
def test_a_loaded_state_goes_on_with_equal_samples(make: Any, tmp_path: Path, cfg: dict[str, Any]) -> None:
    lanes, buffer, other = Lanes(3), make(40, seed=5, **cfg), make(40, seed=6, **cfg)
    other.push(Lanes(1).rows(5), 0)
    for step in range(6):
        rows = lanes.rows(4)
        buffer.push(rows.with_columns(policy_version=np.full(len(rows), step)), 0)
        data = buffer.sample(5, step)
        buffer.update(info(data, data["obs"][:, 0, 2]))
    save_state(tmp_path / "state", buffer.state_dict())

    other.load_state_dict(load_state(tmp_path / "state"))

    assert (other.count(), other.push_count) == (buffer.count(), buffer.push_count)
    for step in range(6, 12):
        one, two = buffer.sample(5, step), other.sample(5, step)
        for name in (*one.columns, *one.per_window):
            np.testing.assert_array_equal(one[name], two[name])
        rows = lanes.rows(2)
        for each in (buffer, other):
            each.update(info(one, one["obs"][:, 0, 2] / 2))
            each.push(rows.with_columns(policy_version=np.full(len(rows), step)), 0)


def test_a_smaller_buffer_takes_over_the_newest_windows(make: Any) -> None:
    first, second = make(60, length=5), make(20, length=5)
    first.push(Lanes(2).rows(30, length=100), 0)
    data = first.sample(500, 0)
    first.update(info(data, [1.0 + step for _, _, step in keys_of(data)]))

    second.load_state_dict(first.state_dict())

    expected = {(lane, 1000 * lane, step): 1.00001 + step for lane in (0, 1) for step in range(20, 26)}
    assert everything(second) == pytest.approx(expected)


def test_clear_forgets_windows_and_the_largest_priority(make: Any) -> None:
    buffer, lanes = make(length=3), Lanes(1)
    buffer.push(lanes.rows(5, length=100), 0)
    old = buffer.sample(2, 0)
    buffer.update(info(old, [7.0, 7.0]))

    buffer.clear()
    buffer.push(lanes.rows(3, length=100), 0)
    buffer.update(info(old, [9.0, 9.0]))

    assert everything(buffer) == {(0, 0, 5): 1.0}


def test_a_bad_row_or_priority_changes_nothing(make: Any) -> None:
    buffer = make(length=3, num_streams=2)
    buffer.push(Lanes(2).rows(5, length=100), 0)
    before = everything(buffer)
    data = buffer.sample(2, 0)

    with pytest.raises(SchemaError, match="do not fit 2 streams"):
        buffer.push(Lanes(3).rows(2), 0)
    with pytest.raises(SchemaError, match="1 of 2 priorities"):
        buffer.update(info(data, [1.0, np.nan]))
    with pytest.raises(SchemaError, match="1 of 4 priorities"):
        buffer.push(Lanes(2).rows(2).with_columns(priority=np.array([1.0, 1.0, -1.0, 1.0])), 0)

    assert everything(buffer) == before


def test_windows_without_a_row_to_learn_from_are_refused(make: Any) -> None:
    with pytest.raises(ConfigError, match="sequence_length is 3 and burn_in 3"):
        make(length=3, burn_in=3)
