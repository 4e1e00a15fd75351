from __future__ import annotations

import pytest

from ding_like.errors import ConfigError
from ding_like.worker.replay_buffer.limiter import RateLimiter
from tests.support import Clock


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
