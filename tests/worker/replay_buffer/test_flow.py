"""Rate limits, sums for the log, and the files of rows that leave a buffer."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ding_like.errors import ConfigError
from ding_like.utils.measure import Interval
from ding_like.worker.replay_buffer.buffer import RateLimiter, UsedDataRemover
from tests.support import Clock

logger = logging.getLogger(__name__)


def test_pushes_stop_at_the_maximum_until_samples_catch_up() -> None:
    limiter = RateLimiter(0, 2, 30, clock=Clock())
    limiter.add(pushed=20, sampled=10)

    assert not limiter.may_push()
    limiter.add(sampled=1)
    assert limiter.may_push()


def test_samples_stop_below_the_minimum_until_pushes_catch_up() -> None:
    limiter = RateLimiter(0.5, 10, 30, clock=Clock())
    limiter.add(pushed=4, sampled=9)

    assert not limiter.may_sample()
    limiter.add(pushed=1)
    assert limiter.may_sample()


def test_everything_passes_before_the_first_sample() -> None:
    limiter = RateLimiter(3, 3, 30, clock=Clock())
    limiter.add(pushed=1_000_000)

    assert limiter.may_push()
    assert limiter.may_sample()


def test_counts_fade_to_one_percent_in_a_window() -> None:
    clock = Clock()
    limiter = RateLimiter(0, 1, 30, clock=clock)
    limiter.add(pushed=1000, sampled=10)
    clock.now += 30

    limiter.add(sampled=10)  # 10 pushed against 10.1 sampled
    assert not limiter.may_push()
    limiter.add(sampled=1)
    assert limiter.may_push()


def test_how_often_it_is_asked_does_not_matter() -> None:
    clock = Clock()
    limiter = RateLimiter(0, 1, 30, clock=clock)
    limiter.add(pushed=1000, sampled=10)
    for _ in range(300):
        clock.now += 0.1
        limiter.may_push()

    limiter.add(sampled=10)
    assert not limiter.may_push()
    limiter.add(sampled=1)
    assert limiter.may_push()


def test_a_loaded_limiter_goes_on_where_the_saved_one_was() -> None:
    clock, later = Clock(), Clock()
    limiter, other = RateLimiter(0, 1, 30, clock=clock), RateLimiter(0, 1, 30, clock=later)
    limiter.add(pushed=1000, sampled=10)
    clock.now += 30
    later.now += 5000  # time between save and load does not count

    other.load_state_dict(limiter.state_dict())

    other.add(sampled=10)  # 10 pushed against 10.1 sampled
    assert not other.may_push()
    other.add(sampled=1)
    assert other.may_push()


def test_no_limits_need_no_limiter() -> None:
    cfg = {"push_sample_rate_limit": {"max": float("inf"), "min": 0}, "window_seconds": 30}

    assert RateLimiter.from_cfg(cfg) is None


def test_nonsense_is_refused() -> None:
    for low, high, window_s in ((-1, 2, 30), (3, 2, 30), (0, 2, 0), (0, 2, float("nan"))):
        with pytest.raises(ConfigError):
            RateLimiter(low, high, window_s)


@pytest.mark.parametrize("starts_due", [False, True])
def test_interval_passes_once_in_its_seconds(starts_due: bool) -> None:
    clock = Clock(0.0)
    interval = Interval(10, starts_due=starts_due, clock=clock)

    answers = []
    for clock.now in (0, 9, 10, 11, 19, 25):
        answers.append(interval.pass_s())

    assert answers[1:] == [0, 10, 0, 0, 15] and bool(answers[0]) is starts_due


def test_a_file_that_is_gone_already_is_no_fault(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    remover = UsedDataRemover(logger)
    remover.paths.append(str(tmp_path / "gone"))

    remover.delete()

    assert not caplog.records


def test_a_file_that_cannot_be_deleted_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    remover = UsedDataRemover(logger)
    remover.paths.append(str(tmp_path))

    remover.delete()

    assert str(tmp_path) in caplog.text
