"""What is said of a run with central inference before it starts."""

from __future__ import annotations

import pytest

from ding_like.pipeline.build.seed_run import _warn_of_waits
from ding_like.pipeline.seed.settings import SeedSettings


def test_batches_that_never_fill_are_said_with_what_they_cost(caplog: pytest.LogCaptureFixture) -> None:
    for given, warns in (
        (dict(actor_threads=1, inference_batchsize=4, inference_delay=0.1), True),
        (dict(actor_threads=2, inference_batchsize=4, inference_delay=0.1), False),
        (dict(actor_threads=2, inference_batchsize=4, inference_delay=0.1, inference_servers=2), True),
        (dict(actor_threads=1, inference_batchsize=4), False),
        (dict(), False),
    ):
        caplog.clear()

        _warn_of_waits(SeedSettings(**given))

        assert ("batches do not fill" in caplog.text) == warns, given
