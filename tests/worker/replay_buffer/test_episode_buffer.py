"""What episode buffers promise: whole episodes of any length, each as likely as any other."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.data.batch import EpisodeBatch, TransitionBatch
from ding_like.errors import ConfigError, SchemaError
from ding_like.worker import EpisodeReplayBuffer


@pytest.fixture
def make(tmp_path: Path) -> Any:
    def make_buffer(size: int = 4, **cfg: Any) -> EpisodeReplayBuffer:
        cfg = {"replay_buffer_size": size, **cfg}
        return EpisodeReplayBuffer(cfg, exp_name=str(tmp_path), rng=np.random.default_rng(0))

    return make_buffer


def episode(number: int, length: int | None = None) -> TransitionBatch:
    """Return an episode whose every row carries its number and step."""
    length = number % 5 + 1 if length is None else length
    step = np.arange(length)
    return TransitionBatch(
        {"number": np.full(length, number), "step": step, "terminated": step == length - 1, "truncated": step < 0}
    )


def numbers(data: Any) -> list[int]:
    found = []
    for each in data:
        assert (each["number"] == each["number"][0]).all() and each["step"].tolist() == list(range(len(each)))
        assert len(each) == int(each["number"][0]) % 5 + 1
        found.append(int(each["number"][0]))
    return found


def test_push_takes_episodes_in_every_form(make: Any) -> None:
    buffer = make(10)
    rows = TransitionBatch.concat([episode(1), episode(2)])
    buffer.push(EpisodeBatch(rows, np.array([0, 2, 5])), 0)
    buffer.push([episode(3), episode(4).to_list()], 0)
    buffer.push(episode(5), 0)
    buffer.push(episode(6).to_list(), 0)

    assert buffer.count() == 6 and buffer.push_count == 6
    assert sorted(numbers(buffer.sample(6, 0))) == [1, 2, 3, 4, 5, 6]


def test_the_newest_episodes_stay(make: Any) -> None:
    buffer = make(3)
    for number in range(8):
        buffer.push([episode(number)], 0)

    assert sorted(numbers(buffer.sample(3, 0))) == [5, 6, 7]
    assert buffer.num_bytes == (1 + 2 + 3) * (8 + 8 + 2)


def test_long_episodes_are_no_likelier_than_short_ones(make: Any) -> None:
    buffer = make(5)
    buffer.push([episode(number) for number in range(5)], 0)

    counts: Counter[int] = Counter()
    for _ in range(500):
        counts.update(numbers(buffer.sample(2, 0)))

    assert set(counts) == set(range(5))
    assert all(abs(count - 200) < 5 * np.sqrt(200) for count in counts.values())


def test_padding_gives_a_rectangle_with_a_mask(make: Any) -> None:
    buffer = make(padding=True)
    buffer.push([episode(1), episode(3)], 0)

    data = buffer.sample(2, 0)

    assert data["step"].shape == (2, 4)
    by_number = {int(data["number"][i, 0]): i for i in range(2)}
    assert data["mask"][by_number[1]].tolist() == [True, True, False, False]
    assert data["step"][by_number[1]].tolist() == [0, 1, 0, 0]
    assert data["step"][by_number[3]].tolist() == [0, 1, 2, 3]


def test_rows_that_do_not_stack_stay_lists(make: Any, tmp_path: Path) -> None:
    ragged = [{"obs": np.zeros(2)}, {"obs": np.zeros(3)}]
    buffer, other = make(), make()
    buffer.push([ragged, ragged], 0)
    buffer.save_data(str(tmp_path / "data"))
    other.load_data(str(tmp_path / "data"))

    for each in (buffer, other):
        data = each.sample(2, 0)
        assert [[len(row["obs"]) for row in one] for one in data] == [[2, 3], [2, 3]]


def test_other_columns_are_refused_whole(make: Any) -> None:
    buffer = make()
    buffer.push([episode(1)], 0)

    with pytest.raises(SchemaError, match="'extra' is not stored"):
        buffer.push([episode(2), episode(3).with_columns(extra=np.zeros(4))], 0)

    assert buffer.count() == 1 and numbers(buffer.sample(1, 0)) == [1]


def test_frame_stack_is_refused(make: Any) -> None:
    with pytest.raises(ConfigError, match="frame_stack is 4"):
        make(frame_stack=4)
