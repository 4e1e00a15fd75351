"""What sequence buffers promise: windows of rows that follow each other, each as likely as any other."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ding_like.data.batch import TransitionBatch
from ding_like.errors import ConfigError, SchemaError
from ding_like.worker import SequenceReplayBuffer


class Lanes:
    """Source of rows whose episodes have recognisable numbers: obs is (lane, episode, step)."""

    def __init__(self, num_lanes: int, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.episode = np.arange(num_lanes) * 1000
        self.step = np.zeros(num_lanes, np.int64)
        self.num_lanes = num_lanes

    def rows(self, num_ticks: int, *, length: int = 7, ready: float = 1.0, drop: float = 0.0) -> TransitionBatch:
        found: list[tuple[int, int, int, bool]] = []
        for _ in range(num_ticks):
            for lane in range(self.num_lanes):
                if self.rng.random() >= ready:
                    continue
                done = bool(self.step[lane] == length - 1 + lane)
                if self.rng.random() >= drop:
                    found.append((lane, int(self.episode[lane]), int(self.step[lane]), done))
                self.step[lane] += 1
                if done:
                    self.episode[lane] += 1
                    self.step[lane] = 0
        data = np.array(found, np.int64).reshape(-1, 4)
        return TransitionBatch(
            {
                "obs": data[:, :3].astype(np.float32),
                "lane": data[:, 0],
                "episode_id": data[:, 1],
                "step": data[:, 2],
                "terminated": data[:, 3].astype(bool),
            }
        )


@pytest.fixture
def make(tmp_path: Path) -> Any:
    def make_buffer(size: int = 60, **cfg: Any) -> SequenceReplayBuffer:
        cfg = {"replay_buffer_size": size, **cfg}
        return SequenceReplayBuffer(cfg, exp_name=str(tmp_path), rng=np.random.default_rng(0))

    return make_buffer


def check_windows(data: Any, length: int) -> None:
    obs = data["obs"]
    assert obs.shape[1:] == (length, 3)
    assert (obs[:, :, :2] == obs[:, :1, :2]).all(), "a window crosses lanes or episodes"
    assert (np.diff(obs[:, :, 2], axis=1) == 1).all(), "a window has a gap"
    assert (data["lane"] == obs[:, :, 0]).all() and (data["step"] == obs[:, :, 2]).all()


def all_windows(rows: list[tuple[int, int, int]], length: int) -> set[tuple[int, int, int]]:
    """List the windows of stored rows (lane, episode, step) slowly: by their first row."""
    there = set(rows)
    return {
        (lane, episode, step)
        for lane, episode, step in there
        if all((lane, episode, step + k) in there for k in range(length))
    }


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    num_lanes=st.integers(1, 4),
    length=st.integers(1, 6),
    size=st.integers(4, 60),
    pushes=st.lists(st.integers(0, 25), min_size=1, max_size=6),
    ready=st.sampled_from([1.0, 0.6]),
    drop=st.sampled_from([0.0, 0.1]),
)
def test_windows_are_those_of_a_slow_list(
    tmp_path_factory: Any,
    seed: int,
    num_lanes: int,
    length: int,
    size: int,
    pushes: list[int],
    ready: float,
    drop: float,
) -> None:
    lanes = Lanes(num_lanes, seed)
    cfg = {"replay_buffer_size": size, "num_streams": num_lanes}
    buffer = SequenceReplayBuffer(cfg, exp_name=str(tmp_path_factory.mktemp("b")), rng=np.random.default_rng(seed))
    kept: dict[int, list[tuple[int, int, int]]] = {lane: [] for lane in range(num_lanes)}
    for num_ticks in pushes:
        rows = lanes.rows(num_ticks, ready=ready, drop=drop)
        buffer.push(rows, 0)
        for lane, episode, step in zip(rows["lane"], rows["episode_id"], rows["step"], strict=True):
            kept[int(lane)] = [*kept[int(lane)], (int(lane), int(episode), int(step))][-(size // num_lanes) :]
    expected = all_windows([row for rows in kept.values() for row in rows], length)

    assert buffer.count() == sum(map(len, kept.values()))
    data = buffer.sample(len(expected), length, 0) if expected else None
    assert buffer.sample(len(expected) + 1, length, 0) is None

    if data is not None:
        check_windows(data, length)
        found = [tuple(int(value) for value in window[0]) for window in data["obs"]]
        assert set(found) == expected and len(found) == len(expected)


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize("batch", [8, 32])  # drawn by trial; chosen from a list of all windows
def test_windows_are_drawn_evenly(make: Any, batch: int, replace: bool) -> None:
    buffer = make(120)
    lanes = Lanes(3)
    buffer.push(lanes.rows(60), 0)
    rows = buffer.state_dict()["data"]
    expected = all_windows([tuple(int(v) for v in row) for row in rows["obs"]], 4)

    counts: Counter[Any] = Counter()
    for _ in range(3200 // batch):
        data = buffer.sample(batch, 4, 0, replace=replace)
        counts.update(tuple(int(value) for value in window[0]) for window in data["obs"])

    assert set(counts) == expected
    mean = 3200 / len(expected)
    chi_square = sum((count - mean) ** 2 / mean for count in counts.values())
    # 99.99 % of a chi-square variable lie below its mean plus four standard deviations and a little.
    assert chi_square < len(expected) + 4.5 * np.sqrt(2 * len(expected))


def test_rare_windows_are_found(make: Any) -> None:
    buffer = make(3000)
    buffer.push(Lanes(1).rows(2900, length=2), 0)
    buffer.push(Lanes(1).rows(40, length=30), 0)

    data = buffer.sample(3, 28, 0)

    check_windows(data, 28)
    assert sorted(data["step"][:, 0].tolist()) == [0, 1, 2]


def test_a_lane_that_is_new_gets_its_part(make: Any) -> None:
    buffer, lanes = make(30), Lanes(3)
    rows = lanes.rows(15, length=100)
    by_lane = [rows.take(np.flatnonzero(rows["lane"] == lane)) for lane in range(3)]
    buffer.push(by_lane[0][:12], 0)
    buffer.push(by_lane[2], 0)
    buffer.push(by_lane[0][12:], 0)

    data = buffer.sample(2, 10, 0)

    check_windows(data, 10)
    assert {(int(window["lane"][0]), int(window["step"][0])) for window in data} == {(0, 5), (2, 5)}
    assert buffer.sample(3, 10, 0) is None


def test_what_leaves_a_ring_is_counted(tmp_path: Path) -> None:
    class Scalars:
        def __init__(self) -> None:
            self.removed: list[float] = []

        def add_scalar(self, tag: str, value: float, step: int) -> None:
            if tag == "buffer_step/removed":
                self.removed.append(value)

    scalars = Scalars()
    cfg = {"replay_buffer_size": 8, "num_streams": 2, "periodic_thruput_seconds": 1e-9}
    buffer = SequenceReplayBuffer(cfg, scalars, str(tmp_path))

    buffer.push(Lanes(1).rows(3), 0)
    buffer.push(Lanes(1).rows(3), 0)

    assert scalars.removed == [0, 2]


def test_padding_marks_what_is_beyond_the_episode(make: Any) -> None:
    buffer = make(padding=True)
    buffer.push(Lanes(2).rows(20, length=5), 0)

    data = buffer.sample(32, 8, 0, replace=True)

    mask, obs = data["mask"], data["obs"]
    assert mask[:, 0].all() and not mask.all()
    assert (np.diff(mask.astype(int), axis=1) <= 0).all()
    assert (obs[~mask] == 0).all()
    assert ((np.diff(obs[:, :, 2], axis=1) == 1) | ~mask[:, 1:]).all()


def test_burn_in_and_recurrent_state(make: Any) -> None:
    buffer = make(burn_in=2, initial_columns=["hidden"])
    rows = Lanes(1).rows(30, length=20)
    buffer.push(rows.with_columns(hidden=rows["obs"] * 10), 0)

    data = buffer.sample(4, 5, 0)

    assert data["mask"].tolist() == [[False, False, True, True, True]] * 4
    assert "hidden" not in data.columns
    assert (data.initial["hidden"] == data["obs"][:, 0] * 10).all()


def test_a_window_is_a_list_of_rows_as_in_the_seed(make: Any) -> None:
    buffer = make()
    buffer.push(Lanes(2).rows(20), 0)

    data = buffer.sample(3, 4, 0)

    assert len(data) == 3 and [len(window) for window in data] == [4, 4, 4]
    assert [row["step"] - data[1][0]["step"] for row in data[1]] == [0, 1, 2, 3]


def test_rows_of_the_seed_without_numbers_end_at_done(make: Any) -> None:
    buffer = make()
    done = [False, False, True, False, False, False, True]
    buffer.push([{"obs": np.float32(i), "done": end} for i, end in enumerate(done)], 0)

    starts = {float(buffer.sample(1, 3, 0)["obs"][0, 0]) for _ in range(100)}

    assert starts == {0.0, 3.0, 4.0}


def test_sample_range_takes_the_newest(make: Any) -> None:
    buffer = make(200)
    buffer.push(Lanes(1).rows(100, length=1000), 0)

    data = buffer.sample(50, 3, 0, sample_range=slice(-10, None), replace=True)

    assert data["step"][:, 0].min() >= 90


def test_a_smaller_buffer_takes_over_the_newest_windows(make: Any) -> None:
    first, second = make(60), make(20)
    first.push(Lanes(2).rows(40, length=100), 0)

    second.load_state_dict(first.state_dict())

    data = second.sample(2, 10, 0)
    check_windows(data, 10)
    assert data["step"][:, 0].tolist() == [30, 30]


def test_loaded_data_ends_where_new_rows_begin(make: Any, tmp_path: Path) -> None:
    first, second = make(), make()
    rows = [{"obs": np.float32(i), "done": False} for i in range(4)]
    first.push(rows, 0)
    first.save_data(str(tmp_path / "data"))

    second.load_data(str(tmp_path / "data"))
    second.push(rows, 0)

    starts = {float(second.sample(1, 3, 0)["obs"][0, 0]) for _ in range(60)}
    assert starts == {0.0, 1.0}
    assert second.sample(1, 5, 0) is None


@pytest.mark.parametrize(("batch", "sequence"), [(0, 3), (3, 0), (-1, 2)])
def test_sizes_below_one_are_refused(make: Any, batch: int, sequence: int) -> None:
    with pytest.raises(SchemaError, match="give numbers from 1"):
        make().sample(batch, sequence, 0)


@pytest.mark.parametrize("cfg", [{"frame_stack": 4}, {"burn_in": -1}, {"num_streams": 0}])
def test_settings_that_mean_nothing_are_refused(make: Any, cfg: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(cfg))):
        make(**cfg)


def test_windows_of_burn_in_alone_are_refused(make: Any) -> None:
    with pytest.raises(SchemaError, match="all burn-in"):
        make(burn_in=3).sample(1, 3, 0)


def test_bad_rows_are_refused_whole(make: Any) -> None:
    buffer = make(num_streams=2)
    buffer.push(Lanes(2).rows(10), 0)
    before = buffer.state_dict()["data"]

    for bad, said in (
        (Lanes(3).rows(2), "do not fit 2 streams"),
        (Lanes(2).rows(2).with_columns(extra=np.zeros(4)), "'extra' is not stored"),
        ([{"obs": np.zeros(3)}, {"obs": np.zeros(2)}], "does not stack"),
    ):
        with pytest.raises(SchemaError, match=said):
            buffer.push(bad, 0)

    after = buffer.state_dict()["data"]
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_too_few_rows_give_none(make: Any) -> None:
    buffer = make()
    assert buffer.sample(1, 2, 0) is None

    buffer.push(Lanes(1).rows(3), 0)

    assert buffer.sample(1, 4, 0) is None and buffer.sample(2, 3, 0) is None
    assert buffer.sample(1, 3, 0) is not None
