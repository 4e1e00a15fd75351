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

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ding_like.comm.zmq import load_curve, load_zmq
from ding_like.comm.zmq.sockets import (
    DTYPES,
    MAX_HEAD_NBYTES,
    EndpointFolder,
    Poller,
    Socket,
    Wake,
    decode,
    encode,
    open_socket,
    tcp_endpoint,
)
from ding_like.errors import CommError, ConfigError

ROOT = Path(__file__).parents[3]


@pytest.fixture
def endpoint() -> Iterator[str]:
    with EndpointFolder() as folder:
        yield folder.endpoint("data")


def take(of: Socket, timeout_s: float = 60.0) -> list[bytes] | None:
    Poller(of).wait(timeout_s)
    frames = of.receive()
    return None if frames is None else [bytes(frame) for frame in frames]


def test_a_router_and_a_dealer_exchange_messages(endpoint: str) -> None:
    with open_socket("router", bind=endpoint) as router:
        with open_socket("dealer", connect=router.endpoint, identity="actor1") as dealer:
            assert dealer.send(encode({"kind": "rows"}, {"x": np.arange(3)}))
            name, *frames = take(router) or []
            assert router.send([name, *encode({"kind": "ack"})])
            answer = take(dealer) or []

    assert name == b"actor1" and decode(frames, max_nbytes=100).arrays["x"].tolist() == [0, 1, 2]
    assert decode(answer, max_nbytes=0).kind == "ack"


def test_what_was_sent_may_be_changed_afterwards() -> None:
    rows = np.zeros(1_000_000, np.uint8)
    with open_socket("router", bind=tcp_endpoint("127.0.0.1")) as router:
        with open_socket("dealer", connect=router.endpoint) as dealer:
            dealer.send([memoryview(rows)])
            rows[:] = 1
            _, frame = take(router) or []

    assert not any(frame)


def test_a_router_reports_at_once_that_a_receiver_is_absent(endpoint: str) -> None:
    with open_socket("router", bind=endpoint) as router:
        assert not router.send([b"absent", b"hello"])


def test_a_full_queue_is_not_waited_for() -> None:
    with open_socket("dealer", connect="tcp://127.0.0.1:9", hwm=2) as dealer:
        taken = [dealer.send([b"x"]) for _ in range(4)]

    assert taken == [True, True, False, False]


def test_a_wake_from_another_thread_ends_a_wait_and_is_heard_once() -> None:
    with open_socket("router", bind=tcp_endpoint("127.0.0.1")) as router, closing(Wake()) as wake:
        poller = Poller(router, wake)
        timer = threading.Timer(0.05, wake.wake)
        timer.start()
        assert poller.wait(60.0) == [wake]
        assert poller.wait(0.01) == []
        timer.join()


def test_ipc_sockets_are_in_a_folder_of_their_owner_that_is_deleted() -> None:
    with EndpointFolder() as folder:
        with open_socket("router", bind=folder.endpoint("data")):
            modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder.path, folder.path / "data")]
        assert modes == [0o700, 0o600]
    assert not folder.path.exists()


def test_a_path_too_long_for_a_socket_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / ("x" * 100)).mkdir()
    with EndpointFolder(where=tmp_path / ("x" * 100)) as folder:
        with pytest.raises(ConfigError, match="at most 107 work.*TMPDIR"):
            folder.endpoint("data")


def test_tcp_beyond_the_loopback_without_keys_is_refused() -> None:
    for host in ("0.0.0.0", "*", "10.77.0.1", "example.org", "::"):
        for end in ("bind", "connect"):
            with pytest.raises(ConfigError, match="no keys: anybody could train this policy. Make keys with `ding k"):
                open_socket("router", **{end: tcp_endpoint(host, 7000)})  # type: ignore[arg-type]  # one of two names


def test_what_is_no_endpoint_is_one_clear_error() -> None:
    for endpoint in ("", "7000", "tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:99999", "ipc://x"):
        with pytest.raises(ConfigError, match="no endpoint"):
            open_socket("router", bind=endpoint)


def test_an_address_in_use_is_one_clear_error() -> None:
    with open_socket("router", bind=tcp_endpoint("127.0.0.1")) as router:
        with pytest.raises(CommError, match=r"bound to tcp://127.0.0.1:\d+: Address already in use. Give another"):
            open_socket("router", bind=router.endpoint)


def test_a_closed_socket_is_one_clear_error() -> None:
    router = open_socket("router", bind=tcp_endpoint("127.0.0.1"))
    router.close()
    router.close()

    with pytest.raises(CommError, match="nothing can be sent"):
        router.send([b"a", b"b"])
    with pytest.raises(CommError, match="nothing can be received"):
        router.receive()


def test_a_frame_longer_than_allowed_cuts_off_its_sender_alone() -> None:
    with open_socket("router", bind=tcp_endpoint("127.0.0.1"), max_frame_nbytes=1000) as router:
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
    with EndpointFolder() as folder, open_socket("router", bind=folder.endpoint("data")) as router:
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
        hnp.arrays(st.sampled_from(sorted(DTYPES)), hnp.array_shapes(min_dims=0, min_side=0, max_side=4)),
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


def test_columns_that_lie_scattered_in_memory_are_sent_in_order() -> None:
    column = np.arange(12.0).reshape(3, 4)[:, ::2]

    assert np.array_equal(decode(encode({"kind": "rows"}, {"x": column}), max_nbytes=MAX).arrays["x"], column)


def test_an_array_that_stands_askew_in_what_was_received_is_aligned() -> None:
    head, body = encode({"kind": "rows"}, {"x": np.arange(4.0)})
    askew = memoryview(b"\0" + bytes(body))[1:]

    found = decode([head, askew], max_nbytes=MAX).arrays["x"]

    assert found.flags.aligned and found.tolist() == [0.0, 1.0, 2.0, 3.0]


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
        decode([b" " * (MAX_HEAD_NBYTES + 1)], max_nbytes=MAX)


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


def test_where_pyzmq_is_missing_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zmq", None)

    with pytest.raises(ConfigError, match=r'pip install "ding-like\[seed\]"'):
        open_socket("router", bind="tcp://127.0.0.1:0")


def test_a_pyzmq_without_curve_is_refused_where_keys_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_zmq(), "has", lambda name: name != "curve")

    with pytest.raises(ConfigError, match=r"without CURVE.*pip install --force-reinstall \"ding-like\[seed\]\""):
        load_curve()


def test_sockets_and_keys_are_imported_without_pyzmq_and_without_torch() -> None:
    code = "import sys, ding_like.comm.zmq.rows; print('zmq' in sys.modules, 'torch' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert done.stdout == "False False\n", done.stderr
