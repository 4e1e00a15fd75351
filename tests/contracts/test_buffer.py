"""Hold every replay buffer to what IBuffer promises, against a list that does the same slowly."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from ding_like.data.batch import TransitionBatch
from ding_like.utils.checkpoint import load_state, save_state
from ding_like.worker import EpisodeReplayBuffer, IBuffer, NaiveReplayBuffer, ReplayBuffer
from ding_like.worker.replay_buffer.buffer import StreamStore
from ding_like.worker.replay_buffer.sampler import WindowSampler, WindowShape

SIZE = 7


@dataclass(frozen=True)
class Case:
    """Constructor of one buffer, and of rows that encode numbers in it."""

    name: str
    make: Callable[[str, int], IBuffer]  # (folder, seed)
    rows: Callable[[list[int]], Any]  # what is pushed for several numbers
    row: Callable[[int], Any]  # what is pushed for one
    number: Callable[[Any], int]  # which number a sampled row stands for
    spoil: Callable[[Any], None]  # write into what push was given or sample returned


def make_naive(folder: str, seed: int) -> NaiveReplayBuffer:
    return NaiveReplayBuffer({"replay_buffer_size": SIZE}, exp_name=folder, rng=np.random.default_rng(seed))


def column_rows(numbers: list[int]) -> TransitionBatch:
    value = np.array(numbers, np.int64)
    return TransitionBatch({"value": value, "obs": np.stack([value, value], axis=1).astype(np.float32)})


def column_row(number: int) -> dict[str, Any]:
    return {"value": number, "obs": np.full(2, number, np.float32)}


def column_number(row: Any) -> int:
    assert (row["obs"] == row["value"]).all(), "columns of one row came apart"
    return int(row["value"])


def spoil_columns(batch: Any) -> None:
    columns = batch.columns.values() if isinstance(batch, TransitionBatch) else [batch["obs"]]
    for column in columns:
        column[...] = -1


def object_row(number: int) -> dict[str, Any]:
    return {"id": str(number), "obs": np.full(number % 3, number)}


def object_rows(numbers: list[int]) -> list[dict[str, Any]]:
    return [object_row(number) for number in numbers]


def object_number(row: Any) -> int:
    assert (row["obs"] == int(row["id"])).all(), "parts of one object came apart"
    return int(row["id"])


def spoil_objects(data: Any) -> None:
    for item in data if isinstance(data, list) else [data]:
        item["id"] = "-1"
        item["obs"][...] = -1


def make_frames(folder: str, seed: int) -> NaiveReplayBuffer:
    cfg = {"replay_buffer_size": SIZE, "frame_stack": 2}
    return NaiveReplayBuffer(cfg, exp_name=folder, rng=np.random.default_rng(seed))


def frame_rows(numbers: list[int]) -> TransitionBatch:
    value = np.array(numbers, np.int64)
    frames = np.repeat(value[:, None, None] + np.arange(3)[:, None], 4, axis=2).astype(np.int16)  # [B, 3, 4]
    return TransitionBatch({"value": value, "obs": frames[:, :2], "next_obs": frames[:, 1:]})


def frame_row(number: int) -> dict[str, Any]:
    return {name: column[0].copy() for name, column in frame_rows([number]).columns.items()}


def frame_number(row: Any) -> int:
    expected = frame_rows([int(row["value"])])
    assert all((row[name] == column[0]).all() for name, column in expected.columns.items()), "frames were mixed up"
    return int(row["value"])


def make_episodes(folder: str, seed: int) -> EpisodeReplayBuffer:
    return EpisodeReplayBuffer({"replay_buffer_size": SIZE}, exp_name=folder, rng=np.random.default_rng(seed))


def episode(number: int) -> TransitionBatch:
    return column_rows([number] * (number % 3 + 1))


def episodes(numbers: list[int]) -> list[TransitionBatch]:
    return [episode(number) for number in numbers]


def episode_number(rows: Any) -> int:
    number = int(rows["value"][0])
    assert len(rows) == number % 3 + 1 and (rows["value"] == number).all(), "an episode came apart"
    return number


def spoil_episodes(data: Any) -> None:
    for each in [data] if isinstance(data, TransitionBatch) else data:
        spoil_columns(each)


def make_windows(folder: str, seed: int) -> ReplayBuffer:
    sampler = WindowSampler(WindowShape(1))
    return ReplayBuffer(StreamStore(SIZE), sampler, exp_name=folder, rng=np.random.default_rng(seed))


def window_number(rows: Any) -> int:
    assert len(rows) == 1
    return column_number({"value": rows["value"][0], "obs": rows["obs"][0]})


def spoil_windows(data: Any) -> None:
    for column in [data["obs"]] if isinstance(data, dict) else data.columns.values():
        column[...] = -1


CASES = [
    Case("naive columns", make_naive, column_rows, column_row, column_number, spoil_columns),
    Case("naive objects", make_naive, object_rows, object_row, object_number, spoil_objects),
    Case("naive frames", make_frames, frame_rows, frame_row, frame_number, spoil_columns),
    Case("windows of one row", make_windows, column_rows, column_row, window_number, spoil_windows),
    Case("episodes", make_episodes, episodes, episode, episode_number, spoil_episodes),
]


class BufferMachine(RuleBasedStateMachine):
    """State machine that does the same to a buffer and to a list of numbers, oldest first."""

    case: Case

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.buffer = self.case.make(self.folder.name, 0)
        self.model: list[int] = []
        self.next_number = 0

    def teardown(self) -> None:
        self.buffer.close()
        self.folder.cleanup()

    def take_numbers(self, num: int) -> list[int]:
        numbers = list(range(self.next_number, self.next_number + num))
        self.next_number += num
        self.model = [*self.model, *numbers][-SIZE:]
        return numbers

    def sample(self, size: int, **kwargs: Any) -> list[int] | None:
        data = self.buffer.sample(size, 0, **kwargs)
        if data is None:
            return None
        numbers = [self.case.number(row) for row in data]
        if numbers:
            self.case.spoil(data)
        return numbers

    @rule(num=st.integers(0, 2 * SIZE + 1))
    def push_several(self, num: int) -> None:
        rows = self.case.rows(self.take_numbers(num))
        self.buffer.push(rows, 0)
        self.case.spoil(rows)

    @rule()
    def push_one(self) -> None:
        row = self.case.row(self.take_numbers(1)[0])
        self.buffer.push(row, 0)
        self.case.spoil(row)

    @rule(size=st.integers(0, SIZE + 1))
    def sample_without_replacement(self, size: int) -> None:
        numbers = self.sample(size)

        if size > len(self.model):
            assert numbers is None
        else:
            assert numbers is not None
            assert len(numbers) == len(set(numbers)) == size
            assert set(numbers) <= set(self.model)

    @precondition(lambda self: self.model)
    @rule(size=st.integers(1, 3 * SIZE))
    def sample_with_replacement(self, size: int) -> None:
        numbers = self.sample(size, replace=True)

        assert numbers is not None
        assert len(numbers) == size
        assert set(numbers) <= set(self.model)

    @rule()
    def clear(self) -> None:
        self.buffer.clear()
        self.model = []

    @rule()
    def save_and_load_the_state(self) -> None:
        path = Path(self.folder.name, "state")
        save_state(path, self.buffer.state_dict())
        other = self.case.make(self.folder.name, 1)
        other.push(self.case.row(10**6), 0)
        other.load_state_dict(load_state(path))

        old, self.buffer = self.buffer, other
        size = len(self.model) // 2
        expected = [self.case.number(row) for row in old.sample(size, 0) or []]
        assert self.sample(size) == expected
        old.close()

    @rule()
    def save_and_load_the_data(self) -> None:
        path = str(Path(self.folder.name, "data"))
        self.buffer.save_data(path)
        self.buffer.close()
        self.buffer = self.case.make(self.folder.name, 2)
        self.buffer.load_data(path)

    @invariant()
    def holds_what_the_list_holds_in_its_order(self) -> None:
        assert self.buffer.count() == len(self.model)
        by_age = [self.sample(1, sample_range=slice(age, age + 1)) for age in range(len(self.model))]
        assert by_age == [[number] for number in self.model]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_buffer_does_what_a_list_does(case: Case) -> None:
    machine = type("Machine", (BufferMachine,), {"case": case})

    run_state_machine_as_test(
        machine, settings=settings(max_examples=20, stateful_step_count=15, deadline=None, derandomize=True)
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_push_count_counts_rows(case: Case, tmp_path: Path) -> None:
    buffer = case.make(str(tmp_path), 0)

    buffer.push(case.rows(list(range(SIZE + 3))), 0)
    buffer.push(case.row(1), 0)

    assert buffer.push_count == SIZE + 4
    buffer.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_default_config_names_its_class(case: Case, tmp_path: Path) -> None:
    buffer = case.make(str(tmp_path), 0)

    assert type(buffer).default_config().cfg_type == type(buffer).__name__ + "Dict"
    buffer.close()
