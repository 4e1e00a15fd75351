"""When batches of an inference server run, on a clock of the test's."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ding_like.comm.channels import Version
from ding_like.comm.zmq.inference import Request
from ding_like.pipeline.seed.servers import Batcher
from tests.support import Clock

NOW = Version(1, 5)


def request(number: int, *, rows: int = 1, least: Version | None = None) -> Request:
    return Request(f"actor{number}", 1, 1, least, {"obs": np.zeros((rows, 2), np.float32)})


def batcher(**settings: float) -> tuple[Batcher, Clock]:
    clock = Clock()
    return Batcher(clock=clock, **settings), clock


def taken(made: Batcher, version: Version = NOW) -> list[str]:
    return [each.request.client for each in made.take(version)]


def test_by_default_whatever_is_there_runs_at_once():
    made, _ = batcher()
    for number in range(5):
        made.add(request(number))

    assert made.wait_s(NOW) == 0
    assert taken(made) == [f"actor{number}" for number in range(5)]
    assert made.wait_s(NOW) == math.inf and taken(made) == [] and len(made) == 0


def test_a_batch_waits_until_it_is_full():
    made, clock = batcher(batchsize=2, delay_s=0.1)
    made.add(request(0))
    clock.now += 0.04

    assert taken(made) == [] and made.wait_s(NOW) == pytest.approx(0.06)
    made.add(request(1))
    assert taken(made) == ["actor0", "actor1"]


def test_a_batch_that_is_not_full_runs_a_delay_after_its_first_request():
    made, clock = batcher(batchsize=4, delay_s=0.1)
    made.add(request(0))
    clock.now += 0.06
    made.add(request(1))
    clock.now += 0.05

    assert taken(made) == ["actor0", "actor1"]


def test_more_requests_than_a_batch_holds_stay_for_the_next():
    made, _ = batcher(batchsize=2, delay_s=0.1)
    for number in range(3):
        made.add(request(number))

    assert taken(made) == ["actor0", "actor1"]
    assert taken(made) == [] and len(made) == 1


def run(made: Batcher, clock: Clock, *numbers: int, took_s: float = 0.004) -> list[str]:
    """Have these clients ask, and run the batch that is there."""
    for number in numbers:
        made.add(request(number))
    batch = made.take(NOW)
    clock.now += took_s
    made.note_batch(batch, took_s)
    return [each.request.client for each in batch]


def test_clients_that_were_answered_last_are_waited_for():
    made, clock = batcher()
    assert len(run(made, clock, 0, 1)) == 2
    made.add(request(2))

    assert taken(made) == [] and made.wait_s(NOW) == pytest.approx(0.004)
    made.add(request(0))
    clock.now += 0.001
    assert taken(made) == []
    made.add(request(1))
    assert taken(made) == ["actor2", "actor0", "actor1"]


def test_clients_that_do_not_come_again_are_waited_for_no_longer():
    made, clock = batcher()
    run(made, clock, 0, 1, 2)
    made.add(request(0))
    made.add(request(1))
    clock.now += 0.0041

    assert taken(made) == ["actor0", "actor1"]


def test_clients_are_waited_for_while_they_keep_coming_within_three_times_a_batch():
    made, clock = batcher()
    run(made, clock, *range(9))
    for number in range(4):
        made.add(request(number))
        assert taken(made) == []
        clock.now += 0.0035
    assert taken(made) == ["actor0", "actor1", "actor2", "actor3"]


@pytest.mark.parametrize(("took_s", "waits_s"), [(0.0005, 0.0), (0.004, 0.004), (25.0, 0.05)])
def test_the_next_batch_waits_as_long_as_one_took_within_bounds(took_s: float, waits_s: float) -> None:
    made, clock = batcher()
    run(made, clock, 0, 1, took_s=took_s)
    made.add(request(0))

    assert made.wait_s(NOW) == pytest.approx(waits_s)
    assert taken(made) == ([] if waits_s else ["actor0"])


def test_what_is_not_worth_it_is_not_waited_for_again():
    made, clock = batcher()
    run(made, clock, 0, 1, 2)
    made.add(request(3))
    assert taken(made) == []
    clock.now += 0.0041
    assert len(run(made, clock)) == 1

    assert [run(made, clock, 4 + number) for number in range(3)] == [["actor4"], ["actor5"], ["actor6"]]


def test_a_client_that_is_alone_is_never_made_to_wait():
    made, clock = batcher()

    assert [run(made, clock, 0) for _ in range(5)] == [["actor0"]] * 5


def test_requests_wait_for_the_weights_that_they_want():
    made, clock = batcher(hold_s=10.0)
    made.add(request(0, least=Version(1, 6)))
    made.add(request(1, least=Version(1, 5)))

    assert taken(made) == ["actor1"]
    assert made.wait_s(NOW) == math.inf
    clock.now += 5
    assert made.take_overdue(NOW) == []
    assert taken(made, Version(2, 0)) == ["actor0"]


def test_requests_do_not_wait_for_weights_for_ever():
    made, clock = batcher(hold_s=10.0)
    made.add(request(0, least=Version(1, 6)))
    clock.now += 1
    made.add(request(1, least=Version(1, 6)))
    clock.now += 9.5

    assert [each.request.client for each in made.take_overdue(NOW)] == ["actor0"]
    assert len(made) == 1 and made.take_overdue(NOW) == []


def test_a_batch_has_a_bound_of_rows():
    made, _ = batcher()
    for number in range(3):
        made.add(request(number, rows=700))

    assert [taken(made), taken(made), taken(made)] == [["actor0"], ["actor1"], ["actor2"]]


def test_a_request_that_is_sent_again_keeps_its_place_and_the_newest_of_a_client_counts():
    made, clock = batcher(batchsize=2, delay_s=0.1)
    made.add(request(0))
    made.add(request(0)._replace(id=2))
    clock.now += 0.06
    made.add(request(0)._replace(id=2), b"new route")
    made.add(request(0))  # late
    assert len(made) == 1 and made.wait_s(NOW) == pytest.approx(0.04)

    clock.now += 0.05
    (found,) = made.take(NOW)

    assert found.request.id == 2 and found.route == b"new route"
