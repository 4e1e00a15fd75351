"""When batches of an inference server run, on a clock of the test's."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ding_like.comm.channels import Version
from ding_like.comm.zmq.inference_messages import Request
from ding_like.pipeline.roles.batcher import Batcher

NOW = Version(1, 5)


class Clock:
    now = 10.0

    def __call__(self) -> float:
        return self.now


def request(number: int, *, rows: int = 1, least: Version | None = None) -> Request:
    return Request(f"actor{number}", 1, 1, least, "", {"obs": np.zeros((rows, 2), np.float32)}, None, None, {})


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


def test_nobody_is_waited_for_where_all_clients_have_asked():
    made, _ = batcher(delay_s=0.1)
    made.num_clients = 2
    made.add(request(0))
    assert taken(made) == []
    made.add(request(1))

    assert taken(made) == ["actor0", "actor1"]


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

    assert [each.client for each in made.take_overdue(NOW)] == ["actor0"]
    assert len(made) == 1 and made.take_overdue(NOW) == []


def test_a_batch_has_a_bound_of_rows():
    made, _ = batcher()
    for number in range(3):
        made.add(request(number, rows=700))

    assert [taken(made), taken(made), taken(made)] == [["actor0"], ["actor1"], ["actor2"]]
