"""The audit of a run by Ray's workers finds what it is there to find; made-up rows and gradients stand for the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.comm.workers.host import Resources
from ding_like.comm.workers.threads import ThreadHost
from ding_like.data.batch import TransitionBatch
from tests.chaos.counting_env import checksum, recognise
from tests.chaos.counting_policy import APPLIED, CountingPolicy, marks_of
from tests.chaos.ray_audit import Rows, Updates, audit_rows, audit_updates, strikes_of
from tests.chaos.recording_host import RecordingHost


def observations(uid: int, number: int, *, first: int = 0) -> Any:
    """Return observations [B, 5] of steps of one episode of an env with that number."""
    whole = np.array([[uid, 1, 1, step] for step in range(first, first + number)], np.uint64)
    return (np.column_stack([whole, checksum(whole)]) / 2.0**24).astype(np.float32)


def keys(uid: int, number: int = 8) -> Any:
    obs, after = observations(uid, number), observations(uid, number, first=1)
    found = recognise({"obs": obs, "next_obs": after, "action": np.zeros(number), "reward": np.zeros(number)})
    assert found.torn == 0
    return found.keys


# --- rows


def test_rows_that_are_stored_once_are_fine() -> None:
    segments = [keys(uid) for uid in range(5)]

    assert audit_rows(segments, np.concatenate(segments)) == Rows(40, 40, 0, 0, 0, 0)


def test_a_segment_that_is_not_stored_is_lost() -> None:
    segments = [keys(uid) for uid in range(5)]

    assert audit_rows(segments, np.concatenate([*segments[:2], *segments[3:]])).lost == 8


def test_a_single_row_that_is_not_stored_is_lost() -> None:
    segments = [keys(uid) for uid in range(5)]

    assert audit_rows(segments, np.concatenate(segments)[np.arange(40) != 17]).lost == 1


def test_a_part_of_the_last_segment_is_lost_and_not_waiting() -> None:
    segments = [keys(uid) for uid in range(5)]

    found = audit_rows(segments, np.concatenate(segments)[:39])

    assert (found.lost, found.waiting) == (1, 0)


def test_the_segments_that_came_last_may_wait() -> None:
    segments = [keys(uid) for uid in range(5)]

    found = audit_rows(segments, np.concatenate(segments[:3]))

    assert (found.lost, found.waiting) == (0, 16)


def test_rows_that_are_stored_twice_or_come_from_nowhere_are_found() -> None:
    segments = [keys(uid) for uid in range(3)]

    found = audit_rows(segments, np.concatenate([*segments, segments[1][:3], keys(77, 2)]))

    assert (found.doubled, found.unknown) == (3, 2)


# --- updates


@pytest.fixture
def drawn() -> Any:
    return np.random.default_rng(0).integers(-512, 512, (20, 16)) / 64.0


def test_gradients_that_are_applied_once_in_any_order_are_fine(drawn: Any) -> None:
    assert audit_updates(drawn, drawn[::-1]) == Updates(20, 20, 0, 0)


def test_a_batch_that_is_never_applied_is_lost(drawn: Any) -> None:
    assert audit_updates(drawn, drawn[1:]) == Updates(20, 19, 1, 0)


def test_a_batch_that_is_applied_twice_is_found(drawn: Any) -> None:
    assert audit_updates(drawn, np.concatenate([drawn, drawn[:1]])) == Updates(20, 21, 0, 1)


def test_a_share_that_is_missing_makes_a_gradient_of_no_batch(drawn: Any) -> None:
    applied = drawn.copy()
    applied[3] += 1 / 64

    assert audit_updates(drawn, applied) == Updates(20, 20, 1, 1)


def test_negative_zero_is_zero(drawn: Any) -> None:
    drawn[0, 0] = 0.0
    applied = drawn.copy()
    applied[0, 0] = -0.0

    assert audit_updates(drawn, applied) == Updates(20, 20, 0, 0)


# --- what makes rows and batches recognisable


@pytest.fixture
def policy() -> CountingPolicy:
    config = CountingPolicy.default_config()
    config.model = dict(obs_shape=5, action_shape=2, encoder_hidden_size_list=[8, 8])
    return CountingPolicy(config)


def batch_of(obs: Any) -> TransitionBatch:
    number = len(obs)
    columns = {"obs": obs, "next_obs": obs, "action": np.zeros(number, np.int64), "reward": np.zeros(number)}
    return TransitionBatch({**columns, "terminated": np.zeros(number, bool)})


def test_the_mean_of_two_shares_is_the_gradient_of_the_whole_batch_exactly(policy: CountingPolicy) -> None:
    obs = np.concatenate([observations(uid, 8) for uid in range(8)])
    gradients = []
    for rows in (obs, obs[:32], obs[32:]):
        policy.grad(batch_of(rows))
        gradients.append(policy._params.grad_vector.clone())

    whole, first, second = gradients
    assert torch.equal(whole, first * 0.5 + second * 0.5)
    assert np.array_equal(whole[:16].double().numpy(), marks_of({"obs": obs}).mean(0))


def test_each_gradient_that_is_applied_is_noted(policy: CountingPolicy) -> None:
    before = len(APPLIED.all())
    policy.grad(batch_of(observations(3, 64)))

    policy.apply()

    assert np.array_equal(APPLIED.all()[before:], [marks_of({"obs": observations(3, 64)}).mean(0)])


def test_marks_tell_rows_apart() -> None:
    obs = np.concatenate([observations(uid, 500) for uid in range(8)])

    assert len(np.unique(marks_of({"obs": obs}), axis=0)) == 4000


# --- what is seen of workers


class Worker:
    def collect_data(self) -> int:
        return 7

    def ready(self) -> None:
        pass


@pytest.fixture
def taken() -> list[int]:
    return []


@pytest.fixture
def host(taken: list[int]) -> Iterator[RecordingHost]:
    host = RecordingHost(ThreadHost(), {"collect_data": taken.append})
    yield host
    host.close()


def test_what_is_handed_over_is_noted_once_where_it_is_taken(host: RecordingHost, taken: list[int]) -> None:
    worker = host.start(Worker, name="collector1", resources=Resources())
    call = worker.call("collect_data")
    assert host.wait([call], timeout_s=10.0) == [call]
    before = list(taken)

    assert [call.result(), call.result()] == [7, 7]

    assert before == [] and taken == [7]


def test_workers_are_at_work_from_their_first_call_to_their_end(host: RecordingHost) -> None:
    worker = host.start(Worker, name="collector1", resources=Resources())
    host.wait([worker.call("ready")], timeout_s=10.0)
    before = host.at_work("collector")
    host.wait([worker.call("collect_data")], timeout_s=10.0)
    during = host.at_work("collector")
    host.kill(worker)
    host.wait([worker.ended], timeout_s=10.0)

    assert (before, during, host.at_work("collector")) == ([], [worker], [])
    assert host.ended_s["collector1"] > host.works_s["collector1"]


def test_a_strike_is_put_together_from_all_that_was_seen() -> None:
    struck = [{"worker": "collector1", "what": "killed", "at": 5.0}, {"worker": "g1", "what": "stopped", "at": 6.0}]
    seen = {"ended": {"collector1": 5.02}, "works": {"collector1": 1.0, "collector3": 5.05}}
    rows = [{"worker": "collector1", "replaced_by": "collector3", "replaced_ms": 12.0}]

    first, second = strikes_of(struck, seen, rows)

    assert first == ("collector1", "killed", 5.0, 5.02, "collector3", 5.05, 12.0)
    assert second == ("g1", "stopped", 6.0, None, None, None, None)
