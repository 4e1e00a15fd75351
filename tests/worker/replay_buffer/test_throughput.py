from __future__ import annotations

from ding_like.utils.timing import Interval
from ding_like.worker.replay_buffer.buffer import ThroughputMeter
from tests.support import Clock


def test_interval_says_yes_once_in_its_seconds() -> None:
    clock = Clock(0.0)
    interval = Interval(10, clock=clock)

    answers = []
    for clock.now in (0, 9, 10, 11, 19, 25):
        answers.append(interval.pass_s())

    assert answers == [0, 0, 10, 0, 0, 15]


def test_interval_may_start_with_a_yes() -> None:
    clock = Clock(0.0)
    interval = Interval(10, starts_due=True, clock=clock)

    assert bool(interval.pass_s())
    assert not interval.pass_s()


def test_meter_adds_up_each_window() -> None:
    clock = Clock(0.0)
    meter = ThroughputMeter(10, clock=clock)

    assert meter.add(pushed_in=3) is None
    clock.now = 12
    first = meter.add(sampled_out=64, removed=2)
    clock.now = 25
    second = meter.add(pushed_in=1)

    assert first == {"pushed_in": 3, "sampled_out": 64, "removed": 2, "window_s": 12}
    assert second == {"pushed_in": 1, "sampled_out": 0, "removed": 0, "window_s": 13}
