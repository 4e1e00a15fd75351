"""Any store goes with the samplers of its storage and with a limiter; pipelines sample them all alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.data.batch import EpisodeBatch, SequenceBatch, TransitionBatch
from ding_like.errors import SchemaError
from ding_like.types import SampleUnit
from ding_like.worker import ReplayBuffer, create_buffer, create_pipeline_buffer
from ding_like.worker.replay_buffer.buffer import RateLimiter, RowStore, Store, StreamStore
from ding_like.worker.replay_buffer.presets import AdvancedReplayBuffer, EpisodeSampler, EpisodeStore
from ding_like.worker.replay_buffer.sampler import (
    PrioritisedSampler,
    PrioritisedWindowSampler,
    Sampler,
    UniformSampler,
    WindowSampler,
    WindowShape,
)
from tests.worker.replay_buffer.test_sequence_buffer import Lanes, check_windows

SETTINGS = AdvancedReplayBuffer.config
# kind: (parts, what one item of a sample is)
KINDS: dict[str, tuple[Callable[[], tuple[Store[Any], Sampler[Any]]], SampleUnit]] = {
    "rows": (lambda: (RowStore(50), UniformSampler()), "row"),
    "rows by priority": (lambda: (RowStore(50), PrioritisedSampler(50, SETTINGS)), "row"),
    "windows": (lambda: (StreamStore(50), WindowSampler(WindowShape(4))), "window"),
    "windows by priority": (
        lambda: (StreamStore(50), PrioritisedWindowSampler(50, SETTINGS, WindowShape(4))),
        "window",
    ),
    "episodes": (lambda: (EpisodeStore(50), EpisodeSampler(padding=False)), "episode"),
}
BATCHES: dict[SampleUnit, type] = {"row": TransitionBatch, "window": SequenceBatch, "episode": EpisodeBatch}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def make(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    def build(limiter: RateLimiter | None = None) -> ReplayBuffer:
        store, sampler = KINDS[kind][0]()
        buffer = ReplayBuffer(store, sampler, limiter, exp_name=str(tmp_path / "exp"), rng=np.random.default_rng(0))
        request.addfinalizer(buffer.close)
        return buffer

    return build


def limits(low: float, high: float) -> RateLimiter:
    """Return a limiter whose counts do not fade, as no time passes."""
    return RateLimiter(low, high, 30.0, clock=lambda: 0.0)


def push(buffer: ReplayBuffer, num_ticks: int = 40) -> None:
    rows = Lanes(1).rows(num_ticks, length=10)
    if buffer.unit == "episode":
        buffer.push([rows[start : start + 10] for start in range(0, num_ticks, 10)], 0)
    else:
        buffer.push(rows, 0)


def test_a_sample_is_of_its_unit(make: Any, kind: str) -> None:
    buffer = make()
    push(buffer)

    data = buffer.sample(3, 0)

    assert buffer.unit == KINDS[kind][1]
    assert isinstance(data, BATCHES[buffer.unit]) and len(data) == 3
    assert len(buffer.sample(0, 0)) == 0


def test_too_little_gives_none_and_a_reason(make: Any, tmp_path: Path) -> None:
    buffer = make()

    assert buffer.sample(1, 0) is None
    push(buffer)
    assert buffer.sample(51, 0) is None

    assert "no sample of 1 rows: there are 0" in (tmp_path / "exp/log/buffer/buffer_logger.txt").read_text()
    with pytest.raises(SchemaError, match="a sample of -1"):
        buffer.sample(-1, 0)


def test_a_limiter_drops_pushes_until_samples_catch_up(make: Any) -> None:
    buffer = make(limits(0, 2))
    push(buffer)
    pushed = buffer.push_count
    assert buffer.sample(1, 0) is not None

    push(buffer)

    assert buffer.push_count == pushed == buffer.state_dict()["limiter"]["pushed"]
    while buffer.state_dict()["limiter"]["sampled"] <= pushed:
        buffer.sample(2, 0)
    push(buffer)
    assert buffer.push_count == 2 * pushed


def test_a_limiter_refuses_samples_until_pushes_catch_up(make: Any) -> None:
    buffer = make(limits(4, 1e9))
    push(buffer)
    sizes = [0 if buffer.sample(1, 0) is None else 1 for _ in range(20)]

    assert sizes == sorted(sizes, reverse=True) and sum(sizes) == buffer.push_count // 4
    push(buffer)
    assert buffer.sample(1, 0) is not None


def test_an_update_is_taken_or_said_to_be_ignored(make: Any, kind: str, tmp_path: Path) -> None:
    buffer = make()
    push(buffer)
    data = buffer.sample(2, 0)
    own = data.per_window if isinstance(data, SequenceBatch) else getattr(data, "columns", {})

    names = ("replay_buffer_idx", "replay_unique_id")
    buffer.update({**{name: own.get(name) for name in names}, "priority": np.array([50.0, 50.0])})

    log = tmp_path / "exp/log/buffer/buffer_logger.txt"
    is_ignored = log.exists() and "priorities are ignored" in log.read_text()
    assert is_ignored == ("priority" not in kind)
    if not is_ignored:
        assert buffer.sample(20, 0)["priority"].max() == pytest.approx(50.00001)


def test_state_goes_on_with_equal_samples(make: Any, kind: str) -> None:
    buffer, other = make(limits(0, 1e9)), make(limits(0, 1e9))
    push(buffer)
    buffer.sample(2, 0)

    other.load_state_dict(buffer.state_dict())

    assert other.count() == buffer.count() and other.state_dict()["limiter"] == buffer.state_dict()["limiter"]
    for _ in range(3):
        one, two = (each.sample(3, 1) for each in (buffer, other))
        one, two = (getattr(data, "batch", data) for data in (one, two))
        assert np.array_equal(one["obs"], two["obs"])


def test_pipelines_sample_windows_of_the_length_in_the_config(tmp_path: Path) -> None:
    cfg = dict(type="sequence", replay_buffer_size=60, sequence_length=6, burn_in=1, initial_columns=["hidden"])
    for_pipeline = create_pipeline_buffer(cfg, exp_name=str(tmp_path / "a"), rng=np.random.default_rng(4))
    by_hand: Any = create_buffer(cfg, exp_name=str(tmp_path / "b"), rng=np.random.default_rng(4))
    rows = Lanes(2).rows(40, length=9)
    for buffer in (for_pipeline, by_hand):
        buffer.push(rows.with_columns(hidden=rows["obs"]), 0)

    one: Any = for_pipeline.sample(5, 0)
    two = by_hand.sample(5, 6, 0)

    check_windows(one, 6)
    assert np.array_equal(one["obs"], two["obs"]) and np.array_equal(one.initial["hidden"], one["obs"][:, 0])
    assert np.array_equal(one["mask"], two["mask"]) and not one["mask"][:, 0].any()
