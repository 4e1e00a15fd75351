"""Weights over ZeroMQ: the newest arrives whole, at once, wherever a reader joins, from any publisher."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from ding_like.comm.channels import Version, Weights
from ding_like.comm.keys import load_seed_keys, make_seed_keys
from ding_like.comm.zmq.sockets import EndpointFolder, Poller, Socket, encode, open_socket
from ding_like.comm.zmq.weights import Broadcaster, WeightSocket
from ding_like.errors import CommError
from tests.support import wait_until

SOON_S = 60.0
MOMENT_S = 0.05


@pytest.fixture
def endpoint() -> Iterator[str]:
    with EndpointFolder() as folder:
        yield folder.endpoint("weights")


@pytest.fixture
def broadcaster(endpoint: str) -> Iterator[Broadcaster]:
    with Broadcaster(endpoint=endpoint) as broadcaster:
        broadcaster.start()
        yield broadcaster


def weights(update: int, *, size: int = 4, policy_id: str = "policy") -> Weights:
    return Weights(policy_id, Version(0, update), {"w": torch.full((size,), float(update)), "n~int": torch.tensor(7)})


def assert_is(found: Weights | None, update: int) -> None:
    assert found is not None
    assert found.version == Version(0, update)
    assert torch.all(found.state["w"] == update) and found.state["n~int"] == 7


def test_a_reader_that_joins_late_gets_the_newest_at_once(broadcaster: Broadcaster) -> None:
    for update in range(5):
        broadcaster.publish(weights(update))

    with closing(WeightSocket(broadcaster.endpoint)) as reader:
        assert_is(reader.wait(SOON_S), 4)
        assert reader.wait(MOMENT_S) is None


def test_a_slow_reader_gets_the_newest_and_none_in_between(broadcaster: Broadcaster) -> None:
    with closing(WeightSocket(broadcaster.endpoint)) as slow:
        broadcaster.publish(weights(0))
        assert_is(slow.wait(SOON_S), 0)
        broadcaster.publish(weights(1))
        assert slow.socket.raw.poll(1000 * SOON_S)  # it has come, and is not taken
        for update in range(2, 500):
            broadcaster.publish(weights(update))

        assert_is(slow.wait(SOON_S), 1)
        assert_is(slow.wait(SOON_S), 499)


def test_a_reader_may_be_there_before_its_publisher(endpoint: str) -> None:
    with closing(WeightSocket(endpoint)) as reader:
        assert reader.wait(MOMENT_S) is None
        with Broadcaster(endpoint=endpoint) as broadcaster:
            broadcaster.publish(weights(3))  # before it is started, too
            broadcaster.start()

            assert_is(reader.wait(SOON_S), 3)


def test_a_reader_follows_a_publisher_that_takes_over(endpoint: str) -> None:
    with closing(WeightSocket(endpoint)) as reader:
        with Broadcaster(endpoint=endpoint) as first:
            first.start()
            assert first.publish(weights(1)) and not first.publish(weights(1))
            assert_is(reader.wait(SOON_S), 1)
        with Broadcaster(endpoint=endpoint) as second:
            second.start()
            second.publish(weights(0))  # older: the reader keeps what it has
            assert reader.wait(MOMENT_S) is None
            second.publish(weights(2))

            assert_is(reader.wait(SOON_S), 2)
        with pytest.raises(CommError, match="was closed"):
            second.publish(weights(3))


@pytest.fixture
def wire(endpoint: str) -> Iterator[Socket]:
    """Give the end of a publisher whose messages a test writes."""
    with open_socket("router", bind=endpoint) as socket:
        yield socket


def identity_of_asker(wire: Socket) -> bytes:
    assert Poller(wire).wait(SOON_S)
    frames = wire.receive()
    assert frames is not None
    return bytes(frames[0])


def frames_of(update: int) -> list[Any]:
    """Return the message that a broadcaster sends."""
    with Broadcaster() as broadcaster:
        broadcaster.start()
        broadcaster.publish(weights(update))
        with open_socket("dealer", connect=broadcaster.endpoint) as asker:
            asker.send(encode({"kind": "ask", "has": None}))
            assert Poller(asker).wait(SOON_S)
            frames = asker.receive()
    assert frames is not None
    return list(frames)


def test_a_torn_message_is_never_loaded(wire: Socket) -> None:
    with closing(WeightSocket(wire.endpoint)) as reader:
        asker, (head, body) = identity_of_asker(wire), frames_of(1)
        messages = [[head], [head, bytes(body)[: len(body) // 2]], [body], [b""]]
        for frames in messages:
            wire.send([asker, *frames])
            assert Poller(reader.socket).wait(SOON_S)

            assert reader.take() is None


def test_weights_that_were_garbled_are_asked_for_again(wire: Socket) -> None:
    with closing(WeightSocket(wire.endpoint)) as reader:
        wire.send([identity_of_asker(wire), b"garbled"])
        assert reader.wait(MOMENT_S) is None

        answer = threading.Timer(0.0, lambda: wire.send([identity_of_asker(wire), *frames_of(1)]))  # a second later
        answer.start()
        assert_is(reader.wait(SOON_S), 1)
        answer.join()


def test_a_publisher_outlives_what_is_no_question(broadcaster: Broadcaster) -> None:
    broadcaster.publish(weights(1))
    messages = [
        [b""],
        [b"{}"],
        [b"[" * 100_000],
        [b'{"kind":"ask","has":3,"arrays":[]}'],
        [b'{"kind":"ask","has":[1],"arrays":[]}'],
        [b'{"kind":"ask","has":[1,2],"arrays":[["x","uint8",[1]]]}', b"1"],
        [b"x"] * 5_000,
    ]
    with open_socket("dealer", connect=broadcaster.endpoint) as stranger:
        for number, frames in enumerate(messages, 1):
            stranger.send(frames)
            wait_until(lambda number=number: broadcaster.num_garbled == number, f"{frames[0][:50]!r} to be counted")

        with closing(WeightSocket(broadcaster.endpoint)) as reader:
            assert_is(reader.wait(SOON_S), 1)


def test_a_snapshot_is_of_the_moment_it_is_taken(endpoint: str) -> None:
    model = torch.nn.Linear(2, 1)
    with Broadcaster(model, 0.0, endpoint=endpoint) as broadcaster:
        assert broadcaster.start() == 0  # ipc has no port
        assert broadcaster.snapshot()
        expected = model.weight.detach().clone()
        with torch.no_grad():
            model.weight.add_(1.0)  # an update begins

        with closing(WeightSocket(endpoint)) as reader:
            found = reader.wait(SOON_S)

    assert found is not None and found.version == Version(0, 1)
    assert torch.equal(found.state["weight"], expected)


def test_a_broadcaster_says_its_port_and_publishes_its_model_at_the_start() -> None:
    with Broadcaster(torch.nn.Linear(2, 1), 2.5) as broadcaster:
        port = broadcaster.start()
        with closing(WeightSocket(f"tcp://127.0.0.1:{port}")) as reader:
            found = reader.wait(SOON_S)

    assert found is not None and found.version == Version(0, 0)


def test_a_snapshot_before_the_period_has_passed_is_not_taken(endpoint: str) -> None:
    with Broadcaster(torch.nn.Linear(2, 1), 1000.0, endpoint=endpoint) as broadcaster:
        broadcaster.start()

        assert not broadcaster.is_due
        assert not broadcaster.snapshot()
    for period in (-1.0, float("nan"), float("inf")):
        with pytest.raises(CommError, match="period"):
            Broadcaster(None, period)


def test_weights_go_to_those_with_a_key_only(tmp_path: Path) -> None:
    driver_file, worker_file = make_seed_keys(tmp_path / "keys.json", ["worker"])
    keys = load_seed_keys(driver_file)
    with Broadcaster(keys=keys) as broadcaster:
        broadcaster.start()
        broadcaster.publish(weights(1))
        with (
            closing(WeightSocket(broadcaster.endpoint)) as stranger,
            closing(WeightSocket(broadcaster.endpoint, keys=load_seed_keys(worker_file))) as worker,
        ):
            assert_is(worker.wait(SOON_S), 1)
            assert stranger.wait(MOMENT_S) is None
