"""Stacks of frames come back bit by bit, and take the memory of one frame a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ding_like.data.batch import TransitionBatch
from ding_like.errors import ConfigError, SchemaError
from ding_like.worker import AdvancedReplayBuffer, NaiveReplayBuffer
from ding_like.worker.replay_buffer.storage import ColumnStorage, FrameStorage

SHAPE = (5, 3)


class Screens:
    """Play lanes of an env that shows random frames, stacked; padding at a reset by `padding`."""

    def __init__(self, num_lanes: int, *, stack: int, padding: str, seed: int, shades: int = 256) -> None:
        self.rng = np.random.default_rng(seed)
        self.stack, self.padding, self.shades = stack, padding, shades
        self.episodes = np.arange(num_lanes) * 100
        self.history: list[list[Any]] = [[] for _ in range(num_lanes)]
        for lane in range(num_lanes):
            self._reset(lane)

    def _frame(self) -> Any:
        return self.rng.integers(0, self.shades, SHAPE, dtype=np.uint8)

    def _reset(self, lane: int) -> None:
        first = self._frame()
        before = {"repeat": first, "zero": np.zeros_like(first)}.get(self.padding)
        pad = [before if before is not None else self._frame() for _ in range(self.stack - 1)]
        self.history[lane] = [*pad, first]
        self.episodes[lane] += 1

    def rows(self, num_ticks: int, *, n: int, end: float, ready: float, drop: float) -> TransitionBatch | None:
        found: dict[str, list[Any]] = {name: [] for name in ("obs", "next_obs", "lane", "action")}
        for _ in range(num_ticks):
            for lane in range(len(self.history)):
                if self.rng.random() >= ready:
                    continue
                steps = int(self.rng.integers(1, n + 1))
                history = self.history[lane]
                before = np.stack(history[-self.stack :])
                ahead = [*history, *(self._frame() for _ in range(steps))]
                if self.rng.random() >= drop:
                    found["obs"].append(before)
                    found["next_obs"].append(np.stack(ahead[-self.stack :]))
                    found["lane"].append(lane)
                    found["action"].append(int(self.rng.integers(9)))
                self.history[lane] = ahead[: len(history) + 1]
                if self.rng.random() < end:
                    self._reset(lane)
        if not found["lane"]:
            return None
        return TransitionBatch({name: np.array(column) for name, column in found.items()})


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    num_lanes=st.integers(1, 3),
    stack=st.integers(2, 4),
    padding=st.sampled_from(["repeat", "zero", "stored"]),
    capacity=st.integers(3, 40),
    pushes=st.lists(st.integers(1, 20), min_size=1, max_size=8),
    n=st.sampled_from([1, 3]),
    end=st.sampled_from([0.0, 0.1, 0.6]),
    ready=st.sampled_from([1.0, 0.5]),
    drop=st.sampled_from([0.0, 0.3]),
    shades=st.sampled_from([1, 2, 256]),
)
def test_rows_are_those_of_a_plain_storage(
    seed: int,
    num_lanes: int,
    stack: int,
    padding: str,
    capacity: int,
    pushes: list[int],
    n: int,
    end: float,
    ready: float,
    drop: float,
    shades: int,
) -> None:
    screens = Screens(num_lanes, stack=stack, padding=padding, seed=seed, shades=shades)
    plain: ColumnStorage | None = None
    frames: FrameStorage | None = None
    for num_ticks in pushes:
        rows = screens.rows(num_ticks, n=n, end=end, ready=ready, drop=drop)
        if rows is None:
            continue
        if plain is None or frames is None:
            plain, frames = ColumnStorage(capacity, rows.schema), FrameStorage(capacity, rows.schema, stack)
        plain.append(rows)
        frames.append(rows)

        check_equal(frames, plain.gather(plain.all_places()))


def check_equal(storage: FrameStorage, expected: TransitionBatch) -> None:
    found = storage.gather(storage.all_places())
    assert len(found) == len(expected) and list(found.columns) == list(expected.columns)
    for name in expected.columns:
        assert np.array_equal(found[name], expected[name]), name


@pytest.mark.parametrize("pushes", [[700] * 9, [2000, 2000, 500]])
def test_frames_that_are_shared_over_a_long_push_stay(pushes: list[int]) -> None:
    rng = np.random.default_rng(0)
    stacks = []
    while len(stacks) < sum(pushes):  # the black frame of each reset is one that rows far apart show
        frames = [np.zeros(SHAPE, np.uint8)] * 3 + list(rng.integers(1, 255, (1101, *SHAPE), dtype=np.uint8))
        stacks += [np.stack(frames[step : step + 5]) for step in range(1100)]
    pairs = np.stack(stacks)
    rows = TransitionBatch({"obs": pairs[:, :4], "next_obs": pairs[:, 1:]})
    plain, frames_once = ColumnStorage(2000, rows.schema), FrameStorage(2000, rows.schema, 4)

    start = 0
    for num_rows in pushes:
        plain.append(rows[start : start + num_rows])
        frames_once.append(rows[start : start + num_rows])
        start += num_rows

        check_equal(frames_once, plain.gather(plain.all_places()))


@pytest.mark.parametrize("lane", [-1, 10**9])
def test_a_lane_may_have_any_number(lane: int) -> None:
    rows = steady(20, size=8).with_columns(lane=np.full(20, lane))
    storage = FrameStorage(20, rows.schema, 4)

    storage.append(rows)

    check_equal(storage, rows)


def steady(num_rows: int, size: int = 84, episode: int = 1000) -> TransitionBatch:
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 255, (num_rows + 4, size, size), dtype=np.uint8)
    stacks = np.lib.stride_tricks.sliding_window_view(frames, 4, axis=0)[: num_rows + 1]
    stacks = np.moveaxis(stacks, -1, 1)
    return TransitionBatch(
        {"obs": stacks[:num_rows], "next_obs": stacks[1 : num_rows + 1], "lane": np.zeros(num_rows, int)}
    )


def test_a_transition_takes_the_memory_of_one_frame() -> None:
    storage = FrameStorage(5000, steady(4).schema, 4)
    rows = steady(6000)
    for start in range(0, 6000, 100):
        storage.append(rows[start : start + 100])

    assert storage.count == 5000
    assert storage.num_bytes / storage.count < 7300


def test_a_buffer_keeps_frames_once_where_told(tmp_path: Any) -> None:
    rows = steady(60, size=8)
    cfg = {"replay_buffer_size": 50, "frame_stack": 4}
    buffer, other = (NaiveReplayBuffer(cfg, exp_name=str(tmp_path), rng=np.random.default_rng(0)) for _ in range(2))
    for start in range(0, 60, 10):
        buffer.push(rows[start : start + 10], 0)

    buffer.save_data(str(tmp_path / "data"))
    other.load_data(str(tmp_path / "data"))

    for each in (buffer, other):
        data = each.sample(50, 0)
        order = np.lexsort(data["obs"].reshape(50, -1).T)
        expected = rows[10:]
        wanted = np.lexsort(expected["obs"].reshape(50, -1).T)
        assert np.array_equal(data["obs"][order], expected["obs"][wanted])
        assert np.array_equal(data["next_obs"][order], expected["next_obs"][wanted])


def test_rows_without_stacks_are_refused(tmp_path: Any) -> None:
    buffer = NaiveReplayBuffer({"frame_stack": 4}, exp_name=str(tmp_path))

    with pytest.raises(ConfigError, match="frame_stack is 4, but no observation is a stack"):
        buffer.push([{"obs": np.zeros(4), "next_obs": np.zeros(4)}], 0)


def test_rows_of_another_shape_are_refused_whole() -> None:
    rows = steady(10, size=8)
    storage = FrameStorage(20, rows.schema, 4)
    storage.append(rows)

    with pytest.raises(SchemaError, match="the buffer refuses"):
        storage.append(steady(3, size=9))

    assert storage.count == 10 and np.array_equal(storage.gather(np.arange(10))["obs"], rows["obs"])


def test_priorities_and_frames_go_together(tmp_path: Any) -> None:
    rows = steady(60, size=8)
    cfg = {"replay_buffer_size": 50, "frame_stack": 4}
    buffer, other = (AdvancedReplayBuffer(cfg, exp_name=str(tmp_path), rng=np.random.default_rng(0)) for _ in range(2))
    for start in range(0, 60, 10):
        buffer.push(rows[start : start + 10].with_columns(priority=np.arange(start, start + 10) + 1.0), 0)

    other.load_state_dict(buffer.state_dict())

    by_first_pixels = {rows["obs"][row].tobytes(): row for row in range(60)}
    for _ in range(5):
        one, two = buffer.sample(8, 0), other.sample(8, 0)
        assert np.array_equal(one["obs"], two["obs"]) and np.array_equal(one["priority"], two["priority"])
        for obs, next_obs, priority in zip(one["obs"], one["next_obs"], one["priority"], strict=True):
            row = by_first_pixels[obs.tobytes()]
            assert np.array_equal(next_obs, rows["next_obs"][row]) and abs(priority - (row + 1)) < 1e-3
