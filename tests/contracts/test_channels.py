"""Every transport keeps the promises of the protocols in ding_like/comm/channels.py that it implements."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.comm.channels import Segment, Version, Weights
from ding_like.data.batch import TransitionBatch
from ding_like.errors import CommError
from tests.contracts.channel_cases import BATCH, SEGMENT, RowEnds, Transport, WeightEnds, transports

TRANSPORTS = transports()
SOON_S = 60.0  # what is under way has come by then; nothing here waits for so long
MOMENT_S = 0.05
WITH_ROWS = [
    pytest.param(name, kind, id=f"{name}-{kind}")
    for name, each in TRANSPORTS.items()
    if each.rows is not None
    for kind in each.kinds
]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


# --- weights


def ways_of_weights(*, encoded: bool) -> list[Any]:
    """Return the transports of weights; with `encoded` those too that differ only in how numbers travel."""
    return [
        pytest.param(name, marks=[pytest.mark.ray] * each.needs_ray + [pytest.mark.slow] * each.is_slow)
        for name, each in TRANSPORTS.items()
        if each.weights is not None and (encoded or "," not in name)
    ]


# What does not depend on how numbers travel.
each_transport = pytest.mark.parametrize("way_of_weights", ways_of_weights(encoded=False), indirect=True)


@pytest.fixture(scope="module", params=ways_of_weights(encoded=True))
def way_of_weights(request: pytest.FixtureRequest) -> Transport:
    transport = TRANSPORTS[request.param]
    if transport.needs_ray:
        request.getfixturevalue("ray_cluster")  # before a test looks what there is
    return transport


@pytest.fixture
def weight_ends(way_of_weights: Transport, stack: ExitStack, tmp_path: Path) -> WeightEnds:
    assert way_of_weights.weights is not None
    return way_of_weights.weights(stack, tmp_path)


def weights(update: int, *, attempt: int = 1, policy_id: str = "policy") -> Weights:
    generator = torch.Generator().manual_seed(1000 * attempt + update)
    state = {
        "model/weight": torch.randn(3, 2, generator=generator),
        "model/bias": torch.randn(3, generator=generator, dtype=torch.float64),
        "model/frozen": torch.arange(2048, dtype=torch.int32),  # whole blocks that a delta leaves out
        "returns/count~int": torch.tensor(update),
    }
    return Weights(policy_id, Version(attempt, update), state)


def assert_equal(found: Weights | None, expected: Weights, dtype: str = "exact") -> None:
    """Compare what arrived with what was published, or with that rounded."""
    assert found is not None
    assert (found.policy_id, found.version) == (expected.policy_id, expected.version)
    assert found.state.keys() == expected.state.keys()
    for name, tensor in expected.state.items():
        if dtype == "bfloat16" and tensor.dtype is torch.float32:
            tensor = tensor.bfloat16().float()
        assert found.state[name].dtype == tensor.dtype and torch.equal(found.state[name], tensor), name


def test_weights_arrive_as_they_were_when_they_were_published(weight_ends: WeightEnds) -> None:
    assert weight_ends.reader.newest("policy", timeout_s=MOMENT_S) is None
    own = weights(1)
    weight_ends.publisher.publish(own, wait_s=SOON_S)
    for tensor in own.state.values():
        tensor.zero_()

    assert_equal(weight_ends.reader.newest("policy", timeout_s=SOON_S), weights(1), weight_ends.dtype)


@each_transport
def test_only_what_is_newer_than_the_reader_has_is_returned(weight_ends: WeightEnds) -> None:
    publisher, reader, dtype = weight_ends
    publisher.publish(weights(1), wait_s=SOON_S)
    first = reader.newest("policy", timeout_s=SOON_S)
    assert first is not None
    assert reader.newest("policy", newer_than=first.version, timeout_s=MOMENT_S) is None

    publisher.publish(weights(2), wait_s=SOON_S)

    assert_equal(reader.newest("policy", newer_than=first.version, timeout_s=SOON_S), weights(2), dtype)
    for update in (2, 1):
        assert publisher.publish(weights(update), wait_s=SOON_S).skipped
    assert_equal(reader.newest("policy", timeout_s=SOON_S), weights(2), dtype)


def test_the_newest_of_many_is_read(weight_ends: WeightEnds) -> None:
    for update in range(1, 6):
        receipt = weight_ends.publisher.publish(weights(update), wait_s=SOON_S)
        assert receipt.delivered and not receipt.failed

    newest = weight_ends.reader.newest("policy", newer_than=Version(1, 4), timeout_s=SOON_S)
    assert_equal(newest, weights(5), weight_ends.dtype)


@each_transport
def test_a_waiting_reader_gets_weights_when_they_are_published(weight_ends: WeightEnds) -> None:
    publisher, reader, dtype = weight_ends
    publishing = threading.Timer(MOMENT_S, lambda: publisher.publish(weights(1), wait_s=SOON_S))
    publishing.start()

    found = reader.newest("policy", timeout_s=SOON_S)

    publishing.join(SOON_S)
    assert_equal(found, weights(1), dtype)


@each_transport
def test_no_weights_go_out_once_the_publisher_is_closed(weight_ends: WeightEnds) -> None:
    weight_ends.publisher.publish(weights(1), wait_s=SOON_S)
    weight_ends.publisher.close()
    weight_ends.publisher.close()

    with pytest.raises(CommError):
        weight_ends.publisher.publish(weights(2), wait_s=SOON_S)


# --- rows


@pytest.fixture
def row_ends(name: str, kind: Any, stack: ExitStack, tmp_path: Path) -> RowEnds:
    make = TRANSPORTS[name].rows
    assert make is not None
    return make(stack, tmp_path, kind)


def segment(number: int, *, env_steps: int = SEGMENT) -> Segment:
    """Return segment `number`, of rows whose obs tells which they are."""
    row = np.arange(SEGMENT, dtype=np.int64) + number * SEGMENT
    columns = {
        "row": row,
        "obs": np.stack([row, row + 0.5, -row], axis=1).astype(np.float32),
        "reward": (row * 0.25).astype(np.float32),
    }
    return Segment(TransitionBatch(columns), Version(0, 0), env_steps)


def draw(ends: RowEnds) -> TransitionBatch:
    batch = ends.source.next(timeout_s=SOON_S)
    assert isinstance(batch, TransitionBatch)
    return batch


def learn(ends: RowEnds, train_iter: int, priority: Any = None) -> TransitionBatch:
    """Draw a batch and report an update with it."""
    batch = draw(ends)
    ends.source.feedback(train_iter, priority=priority, info=dict)
    return batch


def updates_of(kind: str) -> int:
    return 1 if kind == "once" else 2


each_kind = pytest.mark.parametrize(("name", "kind"), WITH_ROWS)
# What does not depend on how rows become batches.
each_with_rows = pytest.mark.parametrize(
    ("name", "kind"), [each for each in WITH_ROWS if each.values[1] == TRANSPORTS[str(each.values[0])].kinds[0]]
)


@each_kind
def test_batches_are_rows_that_were_put_bit_for_bit(row_ends: RowEnds, kind: str) -> None:
    sent = segment(0).batch
    assert isinstance(sent, TransitionBatch)
    row_ends.sink.put(segment(0))

    for update in range(updates_of(kind)):
        batch = learn(row_ends, update + 1)
        assert len(batch) == (SEGMENT if kind == "once" else BATCH)
        for name, column in sent.columns.items():
            assert batch[name].dtype == column.dtype
            np.testing.assert_array_equal(batch[name], column[batch["row"]])
        if kind == "once":
            np.testing.assert_array_equal(batch["row"], sent["row"])
        if kind == "priority":
            assert batch["weight"].shape == (BATCH,)


@each_kind
def test_a_segment_allows_its_updates_and_then_the_collector_goes_on(row_ends: RowEnds, kind: str) -> None:
    assert row_ends.sink.put(segment(0)).rows == 0
    assert row_ends.sink.order(timeout_s=MOMENT_S).rows == 0

    for update in range(updates_of(kind)):
        learn(row_ends, update + 1)

    assert row_ends.source.next(timeout_s=MOMENT_S) is None
    assert row_ends.sink.order(timeout_s=SOON_S).rows == SEGMENT


@each_with_rows
def test_both_ends_know_the_env_steps(row_ends: RowEnds, kind: str) -> None:
    for number in range(2):
        row_ends.sink.put(segment(number, env_steps=10 + number))
        for update in range(updates_of(kind)):
            learn(row_ends, 1 + update + number * updates_of(kind))

    assert row_ends.sink.order(timeout_s=MOMENT_S).env_step == row_ends.source.env_step == 21


@each_with_rows
def test_whoever_puts_may_change_its_rows_once_they_are_learned_from(row_ends: RowEnds, kind: str) -> None:
    sent = segment(0)
    row_ends.sink.put(sent)
    batch = draw(row_ends)
    before = {name: column.copy() for name, column in batch.columns.items()}
    if kind != "once":  # of rows that are used once the batch may be the very segment
        assert isinstance(sent.batch, TransitionBatch)
        for column in sent.batch.columns.values():
            column[:] = -1

    for name, column in before.items():
        np.testing.assert_array_equal(batch[name], column)


@each_with_rows
def test_a_waiting_learner_gets_rows_when_they_are_put(row_ends: RowEnds) -> None:
    order = row_ends.sink.order(timeout_s=SOON_S)
    assert not order.finish and order.rows == SEGMENT and order.env_step == 0
    assert row_ends.source.next(timeout_s=MOMENT_S) is None and not row_ends.source.finished
    putting = threading.Timer(MOMENT_S, lambda: row_ends.sink.put(segment(0)))
    putting.start()

    batch = row_ends.source.next(timeout_s=SOON_S)

    putting.join(SOON_S)
    assert batch is not None


@each_with_rows
def test_the_end_is_told_on_both_ends(row_ends: RowEnds) -> None:
    row_ends.finish()

    assert row_ends.source.next(timeout_s=SOON_S) is None
    assert row_ends.source.finished
    order = row_ends.sink.order(timeout_s=SOON_S)
    assert order.finish and order.rows == 0
    with closing(row_ends.source):
        row_ends.source.close()


@pytest.mark.parametrize(
    ("name", "kind"),
    [each for each in WITH_ROWS if each.values[1] == "priority" and TRANSPORTS[str(each.values[0])].priorities_at_once],
)
def test_rows_of_no_priority_are_not_drawn_again(row_ends: RowEnds) -> None:
    used: set[int] = set()
    for number in range(6):
        row_ends.sink.put(segment(number))
        drawn: set[int] = set()
        # Both updates that a segment allows may be drawn before the first is reported.
        for update in range(2):
            batch = learn(row_ends, 2 * number + update + 1, np.full(BATCH, 1e-9, np.float32))
            drawn |= set(batch["row"].tolist())

        assert not drawn & used
        used |= drawn
