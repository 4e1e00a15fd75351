"""Rows reach the driver once and in order, orders are the credit, and nothing is lost where messages are."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.comm.channels import Segment, Version
from ding_like.comm.keys import SeedKeys, load_seed_keys, make_seed_keys
from ding_like.comm.zmq import rows as zmq_rows
from ding_like.comm.zmq.rows import PROTOCOL, DataLink, RowServer, ZmqRowSink, join_as_host
from ding_like.comm.zmq.sockets import Socket, encode, open_socket, reached_by, tcp_endpoint
from ding_like.data.batch import TransitionBatch
from ding_like.errors import CommError, ConfigError, SchemaError
from tests.comm.zmq.faulty_relay import FaultyRelay
from tests.support import wait_until

ROWS = 4
SOON_S = 60.0  # what is under way has come by then
MOMENT_S = 0.05
AGAIN_S = 0.05  # after which what is not answered is said again


@pytest.fixture
def serve(stack: ExitStack, tmp_path: Path) -> Callable[..., RowServer]:
    def make(**settings: Any) -> RowServer:
        server = RowServer(settings.pop("endpoint", f"ipc://{tmp_path}/data"), **settings)
        stack.callback(server.close)
        return server.start()

    return make


@pytest.fixture
def connect(stack: ExitStack) -> Callable[..., ZmqRowSink]:
    def make(endpoint: str, *, name: str = "actor1", run_id: int = 1, **settings: Any) -> ZmqRowSink:
        sink = ZmqRowSink(
            endpoint, name=name, run_id=run_id, **{"timeout_s": AGAIN_S, "patience_s": SOON_S, **settings}
        )
        stack.callback(sink.close)
        return sink

    return make


@pytest.fixture
def raw(stack: ExitStack) -> Callable[[str], Socket]:
    def make(endpoint: str) -> Socket:
        return stack.enter_context(open_socket("dealer", connect=endpoint))

    return make


def segment(number: int, *, rows: int = ROWS, **other: Any) -> Segment:
    """Return segment `number`, whose rows say which they are."""
    row = number * ROWS + np.arange(rows)
    columns = {"row": row, "obs": np.stack([row, -row], 1).astype(np.float32), **other}
    return Segment(
        TransitionBatch(columns), Version(1, number), 2 * rows, {"return": 1.5}, {"0.ObsNorm/mean": np.full(3, number)}
    )


def give(server: RowServer, source: str = "actor1", **settings: Any) -> Any:
    return server.give(source, ROWS, **{"env_step": 0, "newest": None, **settings})


def rows_of(arrived: Any) -> list[int]:
    return [int(row) for each in arrived for row in each.segment.batch["row"]]


def until(is_so: Callable[[], Any]) -> Any:
    """Return what `is_so` returns once it is so."""
    found: list[Any] = []
    wait_until(lambda: found.append(is_so()) or found[-1])
    return found[-1]


def put_and_settle(sink: ZmqRowSink, found: Segment) -> None:
    """Put a segment and wait for what becomes of it, which may be known before `put` returns."""
    sink.put(found)
    assert sink.settle(SOON_S)


@pytest.fixture
def pair(serve: Any, connect: Any) -> Callable[..., tuple[RowServer, ZmqRowSink]]:
    """Return what makes a server, and a source that has joined it and received the first of so many orders."""

    def make(*, orders: int = 0, run_id: int = 1, **settings: Any) -> tuple[RowServer, ZmqRowSink]:
        server = serve(**settings)
        sink = joined(connect(server.endpoint, run_id=run_id))
        for _ in range(orders):
            give(server)
        assert not orders or sink.order(timeout_s=SOON_S).rows == ROWS
        return server, sink

    return make


def joined(sink: ZmqRowSink) -> ZmqRowSink:
    sink.join()
    return sink


# --- joining


def test_sources_that_join_receive_the_welcome_and_send_their_numbers(serve: Any, connect: Any, stack: Any) -> None:
    server = serve(welcome={"clients": "ipc:///somewhere"})
    link = stack.enter_context(closing(DataLink(server.endpoint, name="server1", run_id=1)))

    assert connect(server.endpoint).join() == link.join() == {"clients": "ipc:///somewhere"}
    link.send_stats({"mean_batch": 3.5})

    state = server.sources()["actor1"]
    assert (state.role, state.run_id, state.connected, state.orders) == ("actor", 1, True, {})
    assert until(lambda: server.sources()["server1"].stats) == {"mean_batch": 3.5}


def test_a_driver_that_does_not_answer_is_an_error_at_the_source(connect: Any, tmp_path: Path) -> None:
    with pytest.raises(CommError, match=r"has not answered actor1 .* for 0\.2 s: it has ended"):
        connect(f"ipc://{tmp_path}/absent", patience_s=0.2).join()


def test_a_second_process_needs_a_later_run_id(serve: Any, connect: Any) -> None:
    server = serve()
    joined(connect(server.endpoint, run_id=7))

    for run_id in (7, 6):
        with pytest.raises(CommError, match="run 7 of actor1 has joined already; start it with a later run id"):
            connect(server.endpoint, run_id=run_id).join()


def test_a_program_of_another_protocol_is_refused_with_the_reason(serve: Any, raw: Any) -> None:
    server = serve()
    socket = raw(server.endpoint)
    hello = {"kind": "hello", "name": "actor1", "run_id": 1, "instance": "x", "role": "actor", "protocol": PROTOCOL + 1}
    socket.send(encode(hello))

    answer = until(socket.receive)
    assert b"install the ding-like" in bytes(answer[0]) and server.sources() == {}


def test_a_reported_failure_ends_the_wait_for_rows(pair: Any) -> None:
    server, sink = pair(run_id=3)
    telling = threading.Timer(MOMENT_S, lambda: sink.send_error("EnvError: it broke"))
    telling.start()

    assert server.take(SOON_S) == []
    telling.join(SOON_S)
    assert server.errors() == [("actor1", "EnvError: it broke")]
    assert server.errors() == []


# --- whose names are whose


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, SeedKeys]:
    files = make_seed_keys(tmp_path / "keys.json", ["one", "two"])
    return dict(zip(("own", "one", "two"), map(load_seed_keys, files), strict=True))


def test_a_source_comes_back_by_the_key_of_its_machine_only(serve: Any, connect: Any, keys: Any) -> None:
    server = serve(endpoint=tcp_endpoint("127.0.0.1"), keys=keys["own"], own_names=["actor1"])
    tries = [
        ("actor1", 2**52, "one", False),  # nor may it come first
        ("actor1", 1, "own", True),
        ("actor1", 2**52, "one", False),
        ("actor101", 1, "one", True),
        ("actor101", 2, "two", False),
        ("actor101", 2, "one", True),
    ]
    for name, run_id, key, is_taken in tries:
        with nullcontext() if is_taken else pytest.raises(CommError, match=f"{name} is of another machine"):
            connect(server.endpoint, name=name, run_id=run_id, keys=keys[key]).join()

    assert {name: state.run_id for name, state in server.sources().items()} == {"actor1": 1, "actor101": 2}


# --- orders and rows


def test_an_order_and_its_segment_come_as_they_were_given(pair: Any) -> None:
    server, sink = pair()
    number = give(server, env_step=77, newest=Version(2, 9), extra={"eps": 0.25})

    order = sink.order(timeout_s=SOON_S)
    assert order == (False, ROWS, 77, Version(2, 9)) and sink.extra == {"eps": 0.25}
    assert sink.order(timeout_s=MOMENT_S) == order  # until it is done
    sink.put(segment(5))

    (arrived,), sent = server.take(SOON_S), segment(5)
    assert (arrived.source, (arrived.run_id, arrived.number), arrived.asked) == ("actor1", number, ROWS)
    assert arrived.segment.version == sent.version and arrived.segment.env_steps == 2 * ROWS
    assert arrived.segment.stats == {"return": 1.5}
    for name, column in sent.batch.columns.items():  # type: ignore[union-attr]
        found = arrived.segment.batch[name]
        assert found.dtype == column.dtype and found.flags.writeable
        np.testing.assert_array_equal(found, column)
    np.testing.assert_array_equal(arrived.segment.observed["0.ObsNorm/mean"], np.full(3, 5))


def test_a_driver_that_stores_nothing_lets_actors_wait(pair: Any) -> None:
    server, sink = pair(credit=2)
    assert give(server) and give(server) and give(server) is None
    for number in range(2):
        assert sink.order(timeout_s=SOON_S).rows == ROWS
        sink.put(segment(number))

    assert sink.order(timeout_s=MOMENT_S).rows == 0
    until(lambda: server.queue_depth == 2)
    assert give(server) is None
    server.acknowledge(server.take(SOON_S)[0])
    assert give(server) is not None
    assert sink.order(timeout_s=SOON_S).rows == ROWS


def test_statistics_come_once_to_each_run_of_a_source(connect: Any, pair: Any) -> None:
    server, sink = pair(credit=3)
    mean = np.arange(3.0)
    server.use_statistics({"0.ObsNorm/mean": mean})
    mean[:] = -1
    give(server)
    give(server)

    sink.order(timeout_s=SOON_S)
    first = sink.take_statistics()
    sink.put(segment(0))
    sink.order(timeout_s=SOON_S)

    assert first is not None and first["0.ObsNorm/mean"].tolist() == [0, 1, 2]
    assert sink.take_statistics() is None
    again = joined(connect(server.endpoint, run_id=2))
    give(server)
    again.order(timeout_s=SOON_S)
    assert again.take_statistics() is not None, "it was started again"


def test_all_sources_receive_stop_also_those_that_join_later(connect: Any, pair: Any) -> None:
    server, first = pair()
    server.stop_all()

    for sink in (first, joined(connect(server.endpoint, name="actor2"))):
        assert sink.order(timeout_s=SOON_S) == (True, 0, 0, None)
    assert give(server) is None


# --- what is refused


def test_rows_of_another_schema_are_refused_whole_with_the_reason(pair: Any) -> None:
    server, sink = pair(orders=3, credit=4)
    with pytest.raises(ConfigError, match="do not stack"):
        sink.put(Segment([{"obs": 1}], Version(0, 0), 1))
    sink.put(segment(0))

    with pytest.raises(CommError, match="refuses segment 2 of actor1: .*column 'more' is not stored"):
        put_and_settle(sink, segment(1, more=np.zeros(ROWS)))
    sink.put(segment(2))

    assert rows_of(until(lambda: server.queue_depth == 2) and server.take(SOON_S)) == [0, 1, 2, 3, 8, 9, 10, 11]
    assert server.counts["refused"] == 1
    assert "segment 2 of it was refused" in server.errors()[0][1]


def test_what_a_check_of_the_driver_raises_is_the_reason(pair: Any) -> None:
    def check(found: Segment) -> None:
        if len(found.batch) != ROWS:
            raise SchemaError("too many")

    server, sink = pair(orders=1, check=check)

    with pytest.raises(CommError, match="refuses segment 1 of actor1: too many"):
        put_and_settle(sink, segment(0, rows=ROWS + 1))
    assert server.take(MOMENT_S) == [] and give(server) is not None  # the order is done with


def test_a_source_of_bad_segments_is_counted_and_cut_off_and_others_go_on(serve: Any, connect: Any) -> None:
    def check(found: Segment) -> None:
        if found.stats["return"] > 1.5:
            raise SchemaError("too good")

    server = serve(credit=4, check=check)
    good, bad = (joined(connect(server.endpoint, name=name)) for name in ("actor1", "actor2"))
    for _ in range(4):
        give(server, "actor2")
    bad.order(timeout_s=SOON_S)

    for number in range(1, 5):  # it goes on, whatever it is answered
        with pytest.raises(CommError, match="too good"):
            put_and_settle(bad, replace(segment(number), stats={"return": 2.0}))

    state = server.sources()["actor2"]
    assert (state.refused, state.connected, state.orders) == (4, False, {}) and give(server, "actor2") is None
    assert "it is cut off: 4 segments of it were" in server.errors()[-1][1]
    with pytest.raises(CommError, match=r"actor2 \(run 2\) cannot join: it is cut off: 4 segments .* as too good"):
        connect(server.endpoint, name="actor2", run_id=2).join()
    give(server)
    good.order(timeout_s=SOON_S)
    good.put(segment(0))
    assert rows_of(until(lambda: server.take(MOMENT_S))) == [0, 1, 2, 3]
    assert server.sources()["actor1"].refused == 0


def test_a_segment_whose_head_is_wrong_is_refused_with_the_reason(serve: Any, raw: Any) -> None:
    server = serve()
    for number, (change, reason) in enumerate(
        (
            ({}, "order 1 was not given"),
            ({"rows": 3}, "a segment of 3 rows has columns of shapes"),
            ({"rows": 0}, "a segment of 0 rows has columns of shapes"),
            ({"version": [1]}, "'version' is"),
            ({"version": [1, -1]}, "'version' is"),
            ({"env_steps": 1.5}, "'env_steps' is 1.5"),
            ({"stats": []}, "'stats' is"),
        ),
        1,
    ):
        socket, sender = raw(server.endpoint), {"name": f"actor{number}", "run_id": 1, "instance": "x"}
        socket.send(encode({"kind": "hello", **sender, "role": "actor", "protocol": PROTOCOL}))
        until(socket.receive)
        if change:
            give(server, sender["name"])
            until(socket.receive)
        head = {"kind": "segment", **sender, "number": 1, "rows": 2, "version": [1, 0], "env_steps": 2}
        socket.send(encode({**head, "stats": {}, **change}, {"columns/obs": np.zeros(2)}))

        assert reason.encode() in bytes(until(socket.receive)[0])
    assert server.queue_depth == 0


def test_messages_that_are_none_are_dropped_and_counted(serve: Any, connect: Any, raw: Any) -> None:
    server = serve()
    messages = [
        [b""],
        [b"{}"],
        [b"\xff" * 64],
        [b'{"kind": "segment", "arrays": []}'],
        [b'{"kind": "hello", "arrays": [], "name": 3}'],
        [b'{"kind": "hello", "arrays": [], "name": "a", "run_id": -1, "instance": "x", "role": "actor"}'],
        [b'{"kind": "hello", "arrays": [], "name": "a", "run_id": 1, "instance": "x", "role": "king"}'],
        [b'{"kind": "hello", "arrays": [["x", "float64", [4]]]}', b"short"],
        [b'{"kind": "hello", "arrays": []}', b"one too many"],
    ]
    socket = raw(server.endpoint)
    for number, frames in enumerate(messages, 1):
        socket.send(frames)
        wait_until(lambda number=number: server.counts["garbled"] == number, f"{frames} to be counted")

    joined(connect(server.endpoint))
    assert list(server.sources()) == ["actor1"]


# --- sources and drivers that are started again


def test_a_source_that_came_back_takes_the_place_of_its_earlier_run(pair: Any, connect: Any) -> None:
    server, old = pair(orders=2, credit=2)
    old.put(segment(0))
    until(lambda: server.queue_depth == 1)

    new = joined(connect(server.endpoint, run_id=2))

    # What the old one has handed over counts, and no more of it; its orders are gone; all credit is the new one's.
    state = server.sources()["actor1"]
    assert (state.run_id, state.orders) == (2, {}) and server.queue_depth == 0
    (arrived,) = server.take(0.0)
    assert rows_of([arrived]) == rows_of_segment(0)
    with pytest.raises(CommError, match="run 2 of actor1 has taken its place"):
        put_and_settle(old, segment(1))
    assert server.take(MOMENT_S) == [] and server.queue_depth == 0
    server.acknowledge(arrived)  # late
    assert give(server) and give(server) and give(server) is None
    new.order(timeout_s=SOON_S)
    new.put(segment(9))
    assert rows_of(server.take(SOON_S)) == rows_of_segment(9)


def rows_of_segment(number: int) -> list[int]:
    return list(range(number * ROWS, (number + 1) * ROWS))


def test_a_restarted_driver_gets_hello_and_new_rows_only(serve: Any, pair: Any) -> None:
    first, sink = pair(orders=1)
    put_and_settle(sink, segment(0))
    give(first)
    sink.order(timeout_s=SOON_S)
    first.close()
    sink.put(segment(0))  # to a driver that is not there

    second = serve()
    until(lambda: sink.order(timeout_s=MOMENT_S) and second.sources())

    assert sink.num_joined == 2 and sink.dropped_rows == ROWS
    give(second)
    sink.order(timeout_s=SOON_S)
    sink.put(segment(1))
    assert rows_of(second.take(SOON_S)) == rows_of_segment(1)


def test_rows_that_a_driver_of_before_ordered_are_dropped(serve: Any, pair: Any) -> None:
    first, sink = pair(orders=1)
    first.close()
    second = serve()
    until(lambda: sink.send_stats({}) or sink.stopped or second.sources())
    until(lambda: sink.stopped or sink.num_joined == 2)
    give(second)

    order = sink.put(segment(0))

    assert sink.dropped_rows == ROWS and second.queue_depth == 0
    assert (order if order.rows else sink.order(timeout_s=SOON_S)).rows == ROWS


# --- lost, repeated, late and garbled messages


class Storm:
    """Actors that put segments through a relay with faults while a driver stores them."""

    def __init__(self, server: RowServer, endpoint: str, *, num_actors: int, segments: int, timeout_s: float) -> None:
        self._server = server
        self._segments = segments
        self.stored: list[tuple[str, int]] = []
        self.unacknowledged = 0
        self._sinks = [
            ZmqRowSink(endpoint, name=f"actor{n}", run_id=1, timeout_s=timeout_s, patience_s=SOON_S)
            for n in range(1, num_actors + 1)
        ]

    def run(self) -> None:
        threads = [threading.Thread(target=self._collect, args=(sink,)) for sink in self._sinks]
        for thread in threads:
            thread.start()
        wanted = self._segments * len(self._sinks)
        ordered = dict.fromkeys((sink.name for sink in self._sinks), 0)
        deadline = time.monotonic() + 60
        while len(self.stored) < wanted and time.monotonic() < deadline:
            for name in ordered:
                if ordered[name] < self._segments and give(self._server, name, env_step=ordered[name]):
                    ordered[name] += 1
            for arrived in self._server.take(0.01):
                self.stored.append((arrived.source, int(arrived.segment.batch["row"][0])))
                self._server.acknowledge(arrived)
        for thread in threads:
            thread.join(SOON_S)

    def _collect(self, sink: ZmqRowSink) -> None:
        try:
            for number in range(self._segments):
                while not (order := sink.order(timeout_s=1.0)).rows:
                    pass
                assert order.env_step == number
                sink.put(segment(number))
            sink.settle(SOON_S)
        finally:
            self.unacknowledged += not sink.settle(0.0)
            sink.close()


def test_no_row_is_lost_doubled_or_out_of_order_where_messages_are(
    serve: Any, stack: ExitStack, tmp_path: Path
) -> None:
    faults = dict(lost=0.1, repeated=0.1, late=0.1, garbled=0.2)
    server = serve(credit=3)
    relay = FaultyRelay(f"ipc://{tmp_path}/relay", server.endpoint, seed=1, **faults)
    stack.callback(relay.close)
    storm = Storm(server, relay.endpoint, num_actors=3, segments=40, timeout_s=0.02)

    storm.run()

    for name in ("actor1", "actor2", "actor3"):
        assert [row for source, row in storm.stored if source == name] == [ROWS * number for number in range(40)]
    assert storm.unacknowledged == 0 and server.counts["segments"] == 120 == server.counts["acknowledged"]
    assert all(relay.counts[fault] >= 5 for fault in faults)


# --- machines that join


@pytest.fixture
def join(stack: ExitStack) -> Callable[[RowServer], DataLink]:
    def make(rows: RowServer) -> DataLink:
        return stack.enter_context(closing(join_as_host(rows.endpoint, keys=None, patience_s=SOON_S)))

    return make


def test_machines_have_different_numbers_as_long_as_there_are_some(
    serve: Any, join: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = iter([6, 6, 6, 7])
    monkeypatch.setattr(secrets, "randbelow", lambda _: next(drawn, 6))
    rows = serve()

    assert [join(rows).number for _ in range(2)] == [7, 8]
    assert [state.role for state in rows.sources().values()] == ["host", "host"]
    with pytest.raises(CommError, match="host7 .* cannot join: host7 has joined already"):
        join(rows)


def test_the_number_of_a_machine_that_is_gone_is_given_again(
    serve: Any, join: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "randbelow", lambda _: 6)
    monkeypatch.setattr(zmq_rows, "_HOST_S", 0.0)
    rows = serve()
    first = join(rows)
    first.close()
    later_s = time.time() + 10.0
    monkeypatch.setattr(time, "time", lambda: later_s)
    second = join(rows)
    assert second.number == first.number and second.run_id > first.run_id


def test_endpoints_of_every_address_are_those_of_the_driver(serve: Any, join: Any) -> None:
    rows = serve(endpoint=tcp_endpoint("127.0.0.1"), welcome={"clients": "tcp://0.0.0.0:17"})
    link = join(rows)
    assert link.welcome == {"clients": "tcp://127.0.0.1:17"}


def test_a_link_ends_its_wait_at_the_end_of_the_run_and_at_a_call_to_wake(serve: Any, join: Any) -> None:
    rows = serve()
    link = join(rows)
    called = threading.Event()
    timer = threading.Timer(0.05, lambda: (called.set(), link.wake()))
    timer.start()
    assert link.wait_until(called.is_set, timeout_s=60.0)
    assert not link.wait_until(lambda: link.is_stopped, timeout_s=0.05)
    rows.stop_all()
    assert link.wait_until(lambda: link.is_stopped, timeout_s=60.0)
    timer.join()
    link.close()


def test_an_endpoint_of_every_address_is_reached_by_the_one_that_is_known() -> None:
    for endpoint, other, found in (
        ("tcp://0.0.0.0:1", "tcp://10.0.0.1:2", "tcp://10.0.0.1:1"),
        ("tcp://*:1", "tcp://host:2", "tcp://host:1"),
        ("tcp://[::]:1", "tcp://[fe80::1]:2", "tcp://[fe80::1]:1"),
        ("tcp://10.0.0.2:1", "tcp://10.0.0.1:2", "tcp://10.0.0.2:1"),
        ("ipc:///x/y", "tcp://10.0.0.1:2", "ipc:///x/y"),
    ):
        assert reached_by(endpoint, other) == found
