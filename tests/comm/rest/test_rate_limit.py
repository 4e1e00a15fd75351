"""A caller that asks too often is told so; others are not."""

from __future__ import annotations

import pytest

from ding_like.comm.rest.rate_limit import RateLimit
from ding_like.comm.rest.refusal import RefusedError


def test_a_caller_is_held_to_its_rate() -> None:
    now = [0.0]
    limit = RateLimit(10.0, 5.0, clock=lambda: now[0])

    for _ in range(5):
        limit.check("a")
    with pytest.raises(RefusedError) as caught:
        limit.check("a")
    assert caught.value.status == 429 and caught.value.retryable and caught.value.retry_after_s == pytest.approx(0.1)
    limit.check("b")
    now[0] += 0.1
    limit.check("a")
    with pytest.raises(RefusedError):
        limit.check("a")
    now[0] += 100.0
    for _ in range(5):
        limit.check("a")
    with pytest.raises(RefusedError):
        limit.check("a")
