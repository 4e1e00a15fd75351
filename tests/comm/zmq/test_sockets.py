"""Sockets carry messages between threads and processes, wait with deadlines, and leave nothing behind."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ding_like.comm.channels import Version, Weights
from ding_like.comm.keys import load_seed_keys, make_seed_keys
from ding_like.comm.zmq import load_curve, load_zmq, sockets
from ding_like.comm.zmq.sockets import Poller, Socket, Wake, decode, encode, open_socket
from ding_like.comm.zmq.weights import Broadcaster, WeightSocket
from ding_like.errors import CommError, ConfigError
from tests.support import wait_until

ROOT = Path(__file__).parents[3]


@pytest.fixture
def endpoint() -> Iterator[str]:
    with sockets.EndpointFolder() as folder:
        yield folder.endpoint("data")


def take(of: Socket, timeout_s: float = 60.0) -> list[bytes] | None:
    Poller(of).wait(timeout_s)
    frames = of.receive()
    return None if frames is None else [bytes(frame) for frame in frames]


def test_a_router_and_a_dealer_exchange_messages(endpoint: str) -> None:
    with open_socket("router", bind=endpoint) as router:
        assert not router.send([b"actor1", b"hello"]), "a receiver that is absent is known at once"
        with open_socket("dealer", connect=router.endpoint, identity="actor1") as dealer:
            assert dealer.send(encode({"kind": "rows"}, {"x": np.arange(3)}))
            name, *frames = take(router) or []
            assert router.send([name, *encode({"kind": "ack"})])
            answer = take(dealer) or []

    assert name == b"actor1" and decode(frames, max_nbytes=100).arrays["x"].tolist() == [0, 1, 2]
    assert decode(answer, max_nbytes=0).kind == "ack"


def test_what_was_sent_may_be_changed_afterwards() -> None:
    rows = np.zeros(1_000_000, np.uint8)
    with open_socket("router", bind=sockets.tcp_endpoint("127.0.0.1")) as router:
        with open_socket("dealer", connect=router.endpoint) as dealer:
            dealer.send([memoryview(rows)])
            rows[:] = 1
            _, frame = take(router) or []

    assert not any(frame)


def test_a_full_queue_is_not_waited_for() -> None:
    with open_socket("dealer", connect="tcp://127.0.0.1:9", hwm=2) as dealer:
        taken = [dealer.send([b"x"]) for _ in range(4)]

    assert taken == [True, True, False, False]


def test_a_wake_from_another_thread_ends_a_wait_and_is_heard_once() -> None:
    with open_socket("router", bind=sockets.tcp_endpoint("127.0.0.1")) as router, closing(Wake()) as wake:
        poller = Poller(router, wake)
        timer = threading.Timer(0.05, wake.wake)
        timer.start()
        assert poller.wait(60.0) == [wake]
        assert poller.wait(0.01) == []
        timer.join()


def test_ipc_sockets_are_in_a_folder_of_their_owner_that_is_deleted(tmp_path: Path) -> None:
    (tmp_path / ("x" * 100)).mkdir()
    with sockets.EndpointFolder() as folder, sockets.EndpointFolder(where=tmp_path / ("x" * 100)) as long:
        with open_socket("router", bind=folder.endpoint("data")):
            modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder.path, folder.path / "data")]
        assert modes == [0o700, 0o600]
        with pytest.raises(ConfigError, match="at most 107 work.*TMPDIR"):
            long.endpoint("data")
    assert not folder.path.exists()


def test_tcp_beyond_the_loopback_without_keys_is_refused() -> None:
    for host in ("0.0.0.0", "*", "10.77.0.1", "example.org", "::"):
        for end in ("bind", "connect"):
            with pytest.raises(ConfigError, match="no keys: anybody could train this policy. Make keys with `ding k"):
                open_socket("router", **{end: sockets.tcp_endpoint(host, 7000)})  # type: ignore[arg-type]  # one of two names


def test_what_is_no_endpoint_or_is_in_use_is_one_clear_error() -> None:
    for endpoint in ("", "7000", "tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:99999", "ipc://x"):
        with pytest.raises(ConfigError, match="no endpoint"):
            open_socket("router", bind=endpoint)
    with open_socket("router", bind=sockets.tcp_endpoint("127.0.0.1")) as router:
        with pytest.raises(CommError, match=r"bound to tcp://127.0.0.1:\d+: Address already in use. Give another"):
            open_socket("router", bind=router.endpoint)


def test_a_closed_socket_is_one_clear_error() -> None:
    router = open_socket("router", bind=sockets.tcp_endpoint("127.0.0.1"))
    router.close()
    router.close()

    with pytest.raises(CommError, match="nothing can be sent"):
        router.send([b"a", b"b"])
    with pytest.raises(CommError, match="nothing can be received"):
        router.receive()


def test_a_frame_longer_than_allowed_cuts_off_its_sender_alone() -> None:
    with open_socket("router", bind=sockets.tcp_endpoint("127.0.0.1"), max_frame_nbytes=1000) as router:
        with (
            open_socket("dealer", connect=router.endpoint) as rude,
            open_socket("dealer", connect=router.endpoint) as fine,
        ):
            rude.send([b"x" * 1001])
            fine.send([b"x" * 1000])
            assert [len(frame) for frame in take(router) or []][1:] == [1000]
            assert take(router, 0.1) is None


def _child(endpoint: str) -> None:
    with open_socket("dealer", connect=endpoint) as dealer:
        dealer.send([str(os.getpid()).encode()])
        assert Poller(dealer).wait(60.0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_after_a_fork_has_a_context_of_its_own() -> None:
    with sockets.EndpointFolder() as folder, open_socket("router", bind=folder.endpoint("data")) as router:
        child = multiprocessing.get_context("fork").Process(target=_child, args=(router.endpoint,))
        child.start()
        name, pid = take(router, 60.0) or []
        router.send([name, b"end"])
        child.join(60.0)

    assert child.exitcode == 0 and int(pid) == child.pid


def test_a_process_ends_while_a_daemon_thread_waits_on_a_socket() -> None:
    code = """
import threading
from ding_like.comm.zmq.sockets import Poller, Wake, open_socket
router = open_socket("router", bind="tcp://127.0.0.1:0")
waits = threading.Event()
def wait():
    poller = Poller(router)
    waits.set()
    poller.wait(60.0)
threading.Thread(target=wait, daemon=True).start()
open_socket("dealer", connect="tcp://127.0.0.1:9").send([b"never sent"])
assert waits.wait(60.0)
print("end")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30)

    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


MAX = 1_000_000


def raw(head: object, *frames: bytes) -> list[bytes]:
    return [json.dumps(head).encode(), *frames]


@given(
    st.dictionaries(
        st.text(max_size=8),
        hnp.arrays(st.sampled_from(sorted(sockets.DTYPES)), hnp.array_shapes(min_dims=0, min_side=0, max_side=4)),
        max_size=4,
    )
)
def test_arrays_of_every_dtype_and_shape_come_back_bit_by_bit(arrays: dict[str, np.ndarray]) -> None:
    message = decode([bytes(frame) for frame in encode({"kind": "rows", "seq": 3}, arrays)], max_nbytes=MAX)

    assert message.kind == "rows" and message.head == {"kind": "rows", "seq": 3}
    assert list(message.arrays) == list(arrays)
    for name, array in arrays.items():
        found = message.arrays[name]
        assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())
        assert found.flags.aligned and not found.flags.writeable


def test_arrays_that_lie_scattered_or_askew_in_memory_come_back_aligned() -> None:
    column = np.arange(12.0).reshape(3, 4)[:, ::2]
    head, body = encode({"kind": "rows"}, {"x": column})
    for frame in (body, memoryview(b"\0" + bytes(body))[1:]):
        found = decode([head, frame], max_nbytes=MAX).arrays["x"]
        assert found.flags.aligned and np.array_equal(found, column)


def test_what_could_not_be_read_is_not_sent() -> None:
    for array in (
        np.array([object()]),
        np.array(["text"]),
        np.array(["2026-01-01"], "datetime64[D]"),
        np.zeros(2, np.complex64),
        np.zeros(2, ">f4"),
        np.zeros(2, [("a", "f4")]),
    ):
        with pytest.raises(CommError, match="array 'x' has dtype"):
            encode({"kind": "rows"}, {"x": array})
    with pytest.raises(CommError, match="is no JSON"):
        encode({"kind": "x", "value": object()})


def test_what_is_no_message_is_one_clear_error() -> None:
    cases = [
        ([], "no head"),
        ([b""], "no head"),
        ([b"\xff\x00"], "no head"),
        ([b"[" * 100_000], "no head"),
        ([b'{"kind": ' + b"9" * 10_000 + b"}"], "no head"),
        (raw([1, 2]), "expected a JSON object"),
        (raw({"kind": 7, "arrays": []}), "expected a JSON object"),
        (raw({"kind": "x"}), "describes arrays as None"),
        (raw({"kind": "x", "arrays": {}}), "describes arrays as {}"),
        (raw({"kind": "x", "arrays": []}, b"extra"), "has 1 frames of them"),
        (raw({"kind": "x", "arrays": [["a", "uint8", [1]]]}), "has 0 frames of them"),
        (raw({"kind": "x", "arrays": ["a"]}, b"1"), "describes an array as 'a'"),
        (raw({"kind": "x", "arrays": [["a", "uint8"]]}, b"1"), "describes an array"),
        (raw({"kind": "x", "arrays": [["a", "O", [1]]]}, b"1" * 8), "numbers only"),
        (raw({"kind": "x", "arrays": [["a", "uint8", [-1]]]}, b"1"), "describes an array"),
        (raw({"kind": "x", "arrays": [["a", "uint8", [1.0]]]}, b"1"), "describes an array"),
        (raw({"kind": "x", "arrays": [["a", "uint8", "1"]]}, b"1"), "describes an array"),
        (raw({"kind": "x", "arrays": [["a", "uint8", [1] * 40]]}, b"1"), "too long"),
        (raw({"kind": "x", "arrays": [["a", "float32", [2]]]}, b"1234567"), "came with 7 bytes"),
        (raw({"kind": "x", "arrays": [["a", "float64", [2**40, 2**40]]]}, b""), "came with 0 bytes"),
        (raw({"kind": "x", "arrays": [["a", "float64", [2**50, 0]]]}, b""), "too long"),
    ]
    for frames, said in cases:
        with pytest.raises(CommError, match=said) as raised:
            decode(frames, max_nbytes=MAX)
        assert len(str(raised.value)) < 500


def test_a_message_of_more_bytes_or_frames_than_expected_is_refused() -> None:
    frames = encode({"kind": "x"}, {"a": np.zeros(100, np.uint8)})

    assert decode(frames, max_nbytes=100).arrays["a"].size == 100
    with pytest.raises(CommError, match="100 bytes; expected at most 99"):
        decode(frames, max_nbytes=99)
    with pytest.raises(CommError, match="no head of up to"):
        decode([b" " * (sockets.MAX_HEAD_NBYTES + 1)], max_nbytes=MAX)


@given(st.lists(st.binary(max_size=64), max_size=4), st.randoms(use_true_random=False))
def test_bytes_at_random_are_refused_or_read_and_nothing_else(frames: list[bytes], random: object) -> None:
    good = [bytearray(frame) for frame in encode({"kind": "x"}, {"a": np.arange(3, dtype=np.int16)})]
    for frame in frames:  # bytes of a good message changed at random, as well as random ones
        for byte in frame:
            good[byte % 2][byte % len(good[byte % 2])] ^= frame[0]
    for tried in (frames, [bytes(frame) for frame in good], [bytes(good[0]), *frames]):
        try:
            message = decode(tried, max_nbytes=MAX)
        except CommError:
            continue
        assert isinstance(message.kind, str)


def test_where_pyzmq_or_its_curve_is_missing_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_zmq(), "has", lambda name: name != "curve")
    with pytest.raises(ConfigError, match=r"without CURVE.*pip install --force-reinstall \"ding-like\[seed\]\""):
        load_curve()
    monkeypatch.setitem(sys.modules, "zmq", None)
    with pytest.raises(ConfigError, match=r'pip install "ding-like\[seed\]"'):
        open_socket("router", bind="tcp://127.0.0.1:0")


def test_sockets_and_keys_are_imported_without_pyzmq_and_without_torch() -> None:
    code = "import sys, ding_like.comm.zmq.rows; print('zmq' in sys.modules, 'torch' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert done.stdout == "False False\n", done.stderr


SOON_S = 60.0
MOMENT_S = 0.05


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


def test_a_torn_message_is_never_loaded_and_asked_for_again(wire: Socket) -> None:
    with closing(WeightSocket(wire.endpoint)) as reader:
        asker, (head, body) = identity_of_asker(wire), frames_of(1)
        for frames in ([head], [head, bytes(body)[: len(body) // 2]], [body], [b""], [b"garbled"]):
            wire.send([asker, *frames])
            assert Poller(reader.socket).wait(SOON_S)
            assert reader.take() is None

        answer = threading.Timer(0.0, lambda: wire.send([identity_of_asker(wire), head, body]))  # a second later
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


def test_a_broadcaster_says_its_port_and_publishes_its_model_at_the_start_and_once_in_a_period() -> None:
    with Broadcaster(torch.nn.Linear(2, 1), 1000.0) as broadcaster:
        port = broadcaster.start()
        with closing(WeightSocket(f"tcp://127.0.0.1:{port}")) as reader:
            found = reader.wait(SOON_S)
        assert not broadcaster.is_due and not broadcaster.snapshot()

    assert found is not None and found.version == Version(0, 0)
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
