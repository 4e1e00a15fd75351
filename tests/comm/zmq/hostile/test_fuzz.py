"""A little of what `make fuzz-seed` does for five minutes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ding_like.comm.keys import client_file, load_seed_keys, make_seed_keys, renew_clients
from tests.comm.zmq.hostile.messages import MAKERS
from tests.comm.zmq.hostile.stage import Stage, Strangers


def state_of(stage: Stage) -> object:
    """Return what a message of any sender might change."""
    rows = stage.rows
    return (
        {name: state.run_id for name, state in rows.sources().items()},
        (rows.counts["garbled"], rows.counts["refused"], rows.counts["rows"] - 3 * stage.turns),
        stage.weights.num_garbled,
    )


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()


def test_malformed_messages_disturb_nobody(stage: Stage) -> None:
    strangers = Strangers(stage.endpoints, seed=0)
    try:
        for _ in range(4):
            strangers.send(40)
            stage.check()
    finally:
        strangers.close()

    assert set(strangers.counts) >= {*MAKERS, "replays", "no ZeroMQ"}
    assert stage.rows.counts["garbled"] > 10 and stage.weights.num_garbled > 10


def test_where_there_are_keys_nothing_of_a_stranger_is_read(tmp_path: Path) -> None:
    make_seed_keys(tmp_path / "keys.json", ["one"])
    old = load_seed_keys(client_file(tmp_path / "keys.json", "one"))
    renew_clients(tmp_path / "keys.json", ["one"])
    stage = Stage(load_seed_keys(tmp_path / "keys.json"))
    strangers = Strangers(stage.endpoints, seed=1, keys=old, wait_s=0.0)
    try:
        before = state_of(stage)
        for _ in range(2):
            strangers.send(40)
            stage.check()
        assert state_of(stage) == before
    finally:
        strangers.close()
        stage.close()
