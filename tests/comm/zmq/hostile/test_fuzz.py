"""A little of what `make fuzz-seed` does for five minutes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.comm.zmq.hostile.messages import MAKERS
from tests.comm.zmq.hostile.stage import Stage, Strangers


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()


def test_malformed_messages_disturb_nobody(stage: Stage) -> None:
    strangers = Strangers(stage.endpoints, seed=0)
    try:
        for _ in range(8):
            strangers.send(40)
            stage.check()
    finally:
        strangers.close()

    assert set(strangers.counts) >= {*MAKERS, "replays", "no ZeroMQ"}
    assert stage.rows.counts.garbled > 20 and stage.proxy.counts.malformed > 0 and stage.weights.num_garbled > 20
