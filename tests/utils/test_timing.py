from __future__ import annotations

import pytest

from ding_like.utils import measure as timing
from ding_like.utils.measure import EasyTimer


def test_a_timer_tells_how_long_its_block_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing.time, "perf_counter", iter([10.0, 12.5]).__next__)

    with EasyTimer() as measured:
        pass

    assert measured.value == 2.5
