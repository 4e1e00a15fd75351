"""The index: whose weight a row has, whose priority is changed, and what the update ratio allows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ding_like.comm.rest import messages as m
from ding_like.pipeline.parallel.core.index import BufferIndex
from ding_like.pipeline.update_ratio import UpdateRatio, least_lead
from ding_like.worker import AdvancedReplayBuffer
from tests.pipeline.parallel.service_parts import announced

SIZE = 64


def prioritised(folder: Path) -> BufferIndex:
    cfg = {"replay_buffer_size": SIZE, "alpha": 1.0, "beta": 1.0}
    buffer = AdvancedReplayBuffer(cfg, exp_name=str(folder), instance_name="buffer", rng=np.random.default_rng(0))
    return BufferIndex(buffer, SIZE)


def add(index: BufferIndex, number: int, *, rows: int = 8) -> None:
    index.add(index.number(announced("w", number, rows=rows)))


def weights_by_row(batches: m.Batches) -> dict[int, set[float]]:
    assert batches.weights is not None
    found: dict[int, set[float]] = {}
    for unique_id, weight in zip(batches.unique_ids.tolist(), batches.weights.tolist(), strict=True):
        found.setdefault(unique_id, set()).add(weight)
    return found


def test_rows_in_place_of_unreadable_ones_have_their_own_weights(tmp_path: Path) -> None:
    index = prioritised(tmp_path)
    for number in range(8):
        add(index, number)
    places = np.arange(SIZE)
    unique_ids = (places // 8 + 1) * m.ROWS_PER_SEGMENT + places % 8
    index.set_priorities(places, unique_ids, np.linspace(0.1, 9.0, SIZE).astype(np.float32))
    for number in range(5):
        index.quarantine(f"w.{number:08d}")

    batches = index.draw(SIZE, 1, 0)

    assert batches is not None
    assert (batches.unique_ids // m.ROWS_PER_SEGMENT > 5).all()
    # Importance weights are 1/p up to a factor: p * w is one number, whoever was replaced.
    priorities = np.linspace(0.1, 9.0, SIZE)[batches.places]
    products = priorities * np.asarray(batches.weights)
    assert products.max() / products.min() < 1.001
    assert all(len(weights) == 1 for weights in weights_by_row(batches).values())


def test_a_priority_for_a_row_that_is_gone_is_not_written_to_the_one_in_its_place(tmp_path: Path) -> None:
    index = prioritised(tmp_path)
    for number in range(8):
        add(index, number)
    places = np.arange(SIZE)
    unique_ids = (places // 8 + 1) * m.ROWS_PER_SEGMENT + places % 8
    index.set_priorities(places, unique_ids, np.full(SIZE, 1.0, np.float32))
    for number in range(8, 12):  # half of the rows are others now
        add(index, number)
    new_ids = unique_ids.copy()
    new_ids[:32] += 8 * m.ROWS_PER_SEGMENT
    assert index.set_priorities(places, new_ids, np.full(SIZE, 1.0, np.float32)) == SIZE

    written = index.set_priorities(places, unique_ids, np.where(places < 32, 1e6, 1.0).astype(np.float32))

    assert written == 32, "only rows that are still there"
    batches = index.draw(SIZE, 1, 0)
    assert batches is not None and batches.weights is not None
    assert np.ptp(batches.weights) < 1e-6 and 0.3 < (batches.places < 32).mean() < 0.7, "all rows are equally likely"


def test_priorities_go_to_the_rows_they_are_for(tmp_path: Path) -> None:
    index = prioritised(tmp_path)
    for number in range(11):  # rows have been overwritten
        add(index, number)
    place, unique_id = np.array([3]), np.array([9 * m.ROWS_PER_SEGMENT + 3])

    assert index.set_priorities(place, unique_id, np.array([1e9], np.float32)) == 1

    batches = index.draw(32, 1, 0)
    assert batches is not None and (batches.places == 3).mean() > 0.9


@pytest.mark.parametrize(
    ("granted", "env_step", "credit"), [(0, 0, 26), (1, 0, 29), (2, 0, 31), (3, 0, 34), (1, 29, 0)]
)
def test_the_env_steps_that_updates_need_are_rounded_up(granted: int, env_step: int, credit: int) -> None:
    assert UpdateRatio(warmup_steps=16, steps=5, updates=2, max_lead=10).credit(env_step, granted) == credit


def test_updates_are_rounded_down() -> None:
    ratio = UpdateRatio(warmup_steps=16, steps=5, updates=2, max_lead=10)

    assert [ratio.allowed_updates(16 + steps) for steps in range(7)] == [0, 0, 0, 1, 1, 2, 2]


def test_the_least_lead_reaches_to_the_next_update() -> None:
    assert least_lead(warmup_steps=10, steps=5, updates=2, segment_steps=8, batch_steps=32) == 22 + 8 + 3


@pytest.mark.parametrize(("warmup", "steps", "updates"), [(0, 5, 2), (16, 3, 7), (7, 1, 1), (0, 64, 3)])
def test_with_the_least_lead_neither_side_waits_for_ever(warmup: int, steps: int, updates: int) -> None:
    lead = least_lead(warmup_steps=warmup, steps=steps, updates=updates, segment_steps=8, batch_steps=32)
    ratio = UpdateRatio(warmup, steps, updates, lead)
    env_step = granted = 0
    for _ in range(2000):
        while ratio.credit(env_step, granted) >= 8:
            env_step += 8
        allowed = ratio.allowed_updates(env_step) - granted if env_step >= 32 else 0
        granted += min(allowed, 1)

    assert granted >= 1990  # the first few rounds wait for the first batch
