"""What a client sends wrongly costs it one clear answer; who may ask is checked; the port closes in good order."""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

from ding_like.agent.observations import ObservationReader
from ding_like.comm.keys import read_token
from ding_like.comm.rest.messages import RefusedError
from ding_like.errors import ConfigError
from ding_like.serve.http_server import PolicyServer
from ding_like.serve.served import JSON, SAFETENSORS, ActRequest, ActResponse, format_of, read_request, write_response
from tests.serve.runs import Run, ask, serving

SMALL = dict(model=dict(encoder_hidden_size_list=[8, 8]))
CLOSE = {"Connection": "close"}
TOKEN = "kV3-x9_Qz7Lp2wRt8sYb"


@pytest.fixture(scope="module")
def vector_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run(tmp_path_factory.mktemp("runs") / "vector", "dqn", SMALL)
    run.save(1)
    return run


@pytest.fixture(scope="module")
def dict_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run(tmp_path_factory.mktemp("runs") / "dict", "dqn", SMALL, obs="nested", mask=4)
    run.save(1)
    return run


@pytest.fixture
def url(vector_run: Run) -> Iterator[str]:
    with serving(vector_run, max_batch=8) as server:
        yield server.url


def refusal(url: str, body: Any, *, content_type: str = JSON, path: str = "/act", method: str = "POST") -> Any:
    """Return (status, code, message) of a request that is refused."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = requests.request(method, url + path, data=data, headers={"Content-Type": content_type}, timeout=60)
    error = response.json()["error"]
    assert response.headers["Content-Type"] == JSON
    return response.status_code, error["code"], error["message"]


def connect(url: str) -> socket.socket:
    """Return a connection for bytes that `requests` would not send."""
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=60)


ZEROS = [0.0, 0.0, 0.0]
SHAPE = r"expected shape \(3,\) for one observation or \(R, 3\) for a batch, float32"
WRONG: dict[str, tuple[Any, int, str, str]] = {
    "too short": ({"obs": [0.0, 0.0]}, 422, "schema", rf"'obs' has shape \(2,\), {SHAPE}"),
    "too deep": ({"obs": [[[0.0, 0.0, 0.0]]]}, 422, "schema", rf"has shape \(1, 1, 3\), {SHAPE}"),
    "ragged": ({"obs": [[0.0, 1.0], [0.0]]}, 422, "schema", "lists differ in length"),
    "empty": ({"obs": []}, 422, "schema", SHAPE),
    "no rows": ({"obs": "no"}, 422, "schema", "no array of numbers"),
    "null": ({"obs": None}, 422, "schema", "no array of numbers"),
    "texts": ({"obs": ["a", "b", "c"]}, 422, "schema", "no array of numbers"),
    "truths": ({"obs": [True, False, True]}, 422, "schema", "true and false, expected numbers of float32"),
    "a truth among numbers": ({"obs": [ZEROS, [0, 1.5, True]]}, 422, "schema", "'obs' has true or false among its num"),
    "a name twice": (b'{"obs": [0, 0, 0], "obs": [1, 1, 1]}', 400, "malformed", "has 'obs' more than once"),
    "NaN": (b'{"obs": [0, NaN, 0]}', 422, "schema", "has a NaN"),
    "infinity": (b'{"obs": [0, 0, 1e999]}', 422, "schema", r"a NaN or an infinity at \[2\]"),
    "too large for float32": ({"obs": [0, 1e39, 0]}, 422, "schema", r"an infinity at \[1\]"),
    "too large for the network": ({"obs": [ZEROS, [3e38, -3e38, 3e38]]}, 422, "schema", "computes nan .* row 1, exp"),
    "an integer beyond all": (b'{"obs": [0, 0, 1' + b"0" * 400 + b"]}", 422, "schema", "no array of numbers"),
    "more digits than Python reads": (b'{"obs": [0, 0, 1' + b"0" * 5000 + b"]}", 400, "malformed", "not JSON"),
    "too many": ({"obs": [ZEROS] * 9}, 422, "schema", "9 observations, expected 1 to 8"),
    "a dict": ({"obs": {"a": ZEROS}}, 422, "schema", rf"'obs' is a dict with 'a', {SHAPE}"),
    "no obs": ({"observation": ZEROS}, 422, "schema", "no 'obs' in the body, which has 'observation'"),
    "another key": ({"obs": ZEROS, "eps": 0.1}, 422, "schema", "the body has 'eps', expected obs, state, is_first"),
    "a list": ([ZEROS], 400, "malformed", "JSON list"),
    "no JSON": (b"obs=1", 400, "malformed", "not JSON"),
    "no text": (b"\xff\xfe\x00", 400, "malformed", "not JSON"),
    "nothing": (b"", 400, "malformed", "the body is empty"),
    "deep lists": (b'{"obs": ' + b"[" * 100_000, 400, "malformed", "not JSON"),
    "dicts in dicts": (b'{"obs": ' + b'{"a": ' * 40 + b"1" + b"}" * 41, 422, "schema", "too many dicts in dicts"),
    "a state": ({"obs": ZEROS, "state": {"h": [0.0]}}, 422, "schema", "not recurrent"),
    "not the first": ({"obs": ZEROS, "is_first": False}, 422, "schema", "needs the 'state'"),
    "flags of others": ({"obs": ZEROS, "is_first": [True]}, 422, "schema", "true or false for each observation"),
}


def test_a_wrong_body_gets_one_error_that_names_what_was_expected(url: str) -> None:
    wrong = {}
    for name, (body, status, code, message) in WRONG.items():
        found = refusal(url, body)
        if found[:2] != (status, code) or not re.search(message, found[2]):
            wrong[name] = found
        assert ask(url, ZEROS)["action"] in range(4), f"the server goes on after {name}"

    assert not wrong


WRONG_TENSORS: dict[str, tuple[bytes, str]] = {
    "not safetensors": (b"\x80\x04pickled", "not a safetensors file"),
    "cut off": (save({"obs": np.zeros(3, np.float32)})[:-2], "not a safetensors file"),
    "no obs": (save({"board": np.zeros(3, np.float32)}), "no 'obs' in the body, which has 'board'"),
    "NaN": (save({"obs": np.full(3, np.nan)}), "a NaN or an infinity"),
    "wrong shape": (save({"obs": np.zeros((2, 4), np.float32)}), SHAPE),
    "no rows": (save({"obs": np.zeros((0, 3), np.float32)}), "0 observations, expected 1 to 8"),
    "flags": (save({"obs": np.zeros(3, bool)}), "true and false"),
    "as entries": (save({"obs/a": np.zeros(3, np.float32)}), "'obs' is a dict with 'a'"),
}


def test_wrong_tensors_get_one_error_that_names_what_was_expected(url: str) -> None:
    wrong = {}
    for name, (body, message) in WRONG_TENSORS.items():
        status, _, said = refusal(url, body, content_type=SAFETENSORS)
        if status not in (400, 422) or not re.search(message, said):
            wrong[name] = status, said

    assert not wrong


GOOD = {"arm": {"angle": [0.5, 1.0]}, "room": 2, "action_mask": [1, 1, 1, 1]}
WRONG_DICTS: dict[str, tuple[Any, str]] = {
    "an array": ([1.0], "'obs' is no dict, expected one with 'arm/angle', 'room', 'action_mask'|one with"),
    "an entry less": ({"room": 1, "action_mask": [1] * 4}, "'obs' lacks 'arm/angle'"),
    "an entry more": ({**GOOD, "light": 1}, "'obs' has 'light', expected"),
    "a fraction": ({**GOOD, "room": 1.5}, "'obs/room' has numbers of float64, expected whole numbers"),
    "a number that is not": ({**GOOD, "room": 3}, "from 3 to 3, expected .* a whole number from 0 to 2"),
    "one below": ({**GOOD, "room": -1}, "a whole number from 0 to 2"),
    "a mask of nothing": ({**GOOD, "action_mask": [0] * 4}, "allows no action at all in row 0"),
    "a mask of others": ({**GOOD, "action_mask": [2, 1, 1, 1]}, "0 or 1"),
    "one and several": ({**GOOD, "room": [1, 2]}, "differ in batch size"),
    "different numbers": (
        {"arm": {"angle": [[0.5, 1.0]]}, "room": [1, 2], "action_mask": [[1] * 4] * 2},
        "'obs/arm/angle': 1 in a batch, 'obs/room': 2 in a batch|differ in batch size",
    ),
}


def test_wrong_entries_of_a_dict_are_named(dict_run: Run) -> None:
    wrong = {}
    with serving(dict_run) as server:
        for name, (obs, message) in WRONG_DICTS.items():
            found = refusal(server.url, {"obs": obs})
            if found[:2] != (422, "schema") or not re.search(message, found[2]):
                wrong[name] = found
            assert ask(server.url, GOOD)["action"] in range(4), f"the server goes on after {name}"

    assert not wrong


def test_a_number_that_does_not_fit_an_image_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path / "exp", "dqn", dict(model=dict(encoder_hidden_size_list=[4, 4, 8])), obs="image")
    run.save(1)
    image = np.zeros((1, 36, 36), np.int64)
    image[0, 0, 0] = 256

    with serving(run) as server:
        status, _, message = refusal(server.url, {"obs": image.tolist()})

    assert status == 422 and "from 0 to 256" in message, "256 would have become 0"


def test_an_unknown_path_or_method_is_answered_with_those_there_are(url: str) -> None:
    for method, path, status, code in [
        ("GET", "/act", 405, "wrong_method"),
        ("PUT", "/act", 405, "wrong_method"),
        ("POST", "/health", 405, "wrong_method"),
        ("OPTIONS", "/act", 405, "wrong_method"),
        ("POST", "/predict", 404, "unknown"),
        ("GET", "/static/x", 404, "unknown"),
    ]:
        found = refusal(url, {"obs": ZEROS}, method=method, path=path)

        assert found[:2] == (status, code) and "POST /act, GET /health" in found[2]


def test_another_content_type_is_refused_with_those_that_are_taken(url: str) -> None:
    for content_type in ["application/x-www-form-urlencoded", "text/plain", ""]:
        status, code, message = refusal(url, {"obs": ZEROS}, content_type=content_type)

        assert (status, code) == (415, "wrong_content_type") and JSON in message and SAFETENSORS in message


def test_a_body_that_is_too_large_is_refused_with_the_most_it_may_be(url: str) -> None:
    status, code, message = refusal(url, b"[" * 1_000_000)

    assert (status, code) == (413, "too_large") and "1,000,000 bytes, expected at most 131,840" in message


def test_health_shows_what_is_served_and_how_fast(url: str) -> None:
    for _ in range(3):
        ask(url, ZEROS)
    ask(url, [ZEROS] * 4)
    refusal(url, {})

    told = requests.get(url, timeout=60).json()

    assert told["status"] == "ok" and told["policy"] == "dqn" and told["env"] == "tests.serve.toy_envs:ToyEnv"
    assert told["obs"] == {"space": "Box", "shape": [3], "dtype": "float32"} and told["action"]["n"] == 4
    counts = told["requests"]
    assert (counts["answered"], counts["refused"], counts["observations"]) == (4, 1, 7)
    assert 0 < counts["p50_ms"] <= counts["p99_ms"]
    assert told["version"]["train_iter"] == 1 and told["reload"]["fault"] is None


def test_both_formats_name_the_version_in_the_header_and_in_the_answer(url: str) -> None:
    headers = {"Content-Type": SAFETENSORS}
    tensors = requests.post(f"{url}/act", data=save({"obs": np.zeros(3, np.float32)}), headers=headers, timeout=60)
    plain = requests.post(f"{url}/act", json={"obs": ZEROS}, timeout=60)

    version = plain.json()["version"]
    assert version["file"] == "iteration_1.pth.tar"
    assert json.loads(tensors.headers["X-Policy-Version"]) == json.loads(plain.headers["X-Policy-Version"]) == version
    length = int.from_bytes(tensors.content[:8], "little")
    assert json.loads(json.loads(tensors.content[8 : 8 + length])["__metadata__"]["version"]) == version
    assert load(tensors.content)["action"].shape == ()


# --- who may ask


def test_a_host_of_others_needs_a_token() -> None:
    with pytest.raises(ConfigError, match="can be reached from other machines: give --token-file"):
        PolicyServer(served(Stub()), host="0.0.0.0")


def test_with_a_token_only_those_who_have_it_are_answered(vector_run: Run) -> None:
    with serving(vector_run, token=TOKEN) as server:
        for header in (None, "Bearer wrong", f"Basic {TOKEN}", TOKEN, "Bearer "):
            sent = {} if header is None else {"Authorization": header}
            for path, method in (("/act", "POST"), ("/health", "GET"), ("/none", "GET")):
                response = requests.request(method, server.url + path, json={"obs": ZEROS}, headers=sent, timeout=60)
                assert response.status_code == 401 and response.json()["error"]["code"] == "bad_key"
                assert "Authorization: Bearer TOKEN" in response.json()["error"]["message"]
        # Spaces behind a value are no part of it (RFC 9110, 5.5).
        for header in (f"Bearer {TOKEN}", f"Bearer {TOKEN} "):
            sent = {"Authorization": header}
            assert requests.post(f"{server.url}/act", json={"obs": ZEROS}, headers=sent, timeout=60).status_code == 200


def test_a_web_page_cannot_ask_a_server_of_this_machine(url: str) -> None:
    for headers in [{"Host": "evil.example"}, {"Host": ""}, {"Origin": "http://evil.example"}]:
        response = requests.post(f"{url}/act", json={"obs": ZEROS}, headers=headers, timeout=60)

        assert response.status_code in (400, 403)


def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o640)

    with pytest.raises(ConfigError, match=r"can be read or changed by others \(mode 0640\): do `chmod 600"):
        read_token(path)
    path.chmod(0o600)
    assert read_token(path) == TOKEN


def test_a_file_without_a_token_that_is_hard_to_guess_is_refused_as_such(tmp_path: Path) -> None:
    for text in ["", "short", "a" * 40, "two words, long enough", "päßwört" * 5, TOKEN * 60, f"{TOKEN}\n{TOKEN}"]:
        path = tmp_path / "token"
        path.write_text(text)
        path.chmod(0o600)

        with pytest.raises(ConfigError, match="no token that is hard to guess: expected one line of 20 to 1,024"):
            read_token(path)


# --- the port


class Stub:
    """Policy that answers when a test sets `may_answer`."""

    max_body = 1 << 20

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.may_answer = threading.Event()
        self.fault: Exception | None = None

    def act(self, question: ActRequest) -> ActResponse:
        self.asked.set()
        assert self.may_answer.wait(60)
        if self.fault is not None:
            raise self.fault
        return ActResponse(np.array([1]), {}, {"number": 1}, False)

    def health(self) -> dict[str, Any]:
        return {}


def served(policy: Any) -> Any:
    """Return a double in place of a ServedPolicy."""
    return policy


def test_closing_answers_what_has_come_and_frees_the_port() -> None:
    policy = Stub()
    server = PolicyServer(served(policy))
    server.start()
    session, answers = requests.Session(), []
    client = threading.Thread(
        target=lambda: answers.append(session.post(f"{server.url}/act", json={"obs": [1]}, headers=CLOSE, timeout=60))
    )
    client.start()
    assert policy.asked.wait(60)

    closing = threading.Thread(target=server.close)
    closing.start()
    closing.join(0.3)
    assert closing.is_alive(), "it waits for the answer"
    with pytest.raises(requests.ConnectionError):
        requests.get(f"{server.url}/health", timeout=5)
    policy.may_answer.set()
    closing.join(60)
    client.join(60)

    (answer,) = answers
    assert answer.status_code == 200 and answer.json()["action"] == 1
    assert not closing.is_alive() and not server.is_alive
    session.close()
    socket.create_server(("127.0.0.1", int(server.url.rpartition(":")[2]))).close()


def test_closing_does_not_wait_for_connections_that_ask_nothing(vector_run: Run) -> None:
    with serving(vector_run) as server, requests.Session() as session:
        session.get(f"{server.url}/health", timeout=60)
        closing = threading.Thread(target=server.close)
        closing.start()
        closing.join(60)

        assert not closing.is_alive()


def test_closing_waits_no_longer_than_the_grace() -> None:
    policy = Stub()
    server = PolicyServer(served(policy))
    server.start()
    with connect(server.url) as connection:
        connection.sendall(b"POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\n{")  # and no more
        closing = threading.Thread(target=lambda: server.close(grace_s=0.3))
        closing.start()
        closing.join(60)

        assert not closing.is_alive()


def test_a_fault_of_the_policy_is_reported_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    policy = Stub()
    policy.may_answer.set()
    policy.fault = ZeroDivisionError("secret")
    server = PolicyServer(served(policy))
    server.start()
    try:
        status, code, message = refusal(server.url, {"obs": [1]})
    finally:
        server.close()

    assert (status, code) == (500, "internal") and "secret" not in message
    assert "ZeroDivisionError: secret" in caplog.text


SPACE = spaces.Dict({"board": spaces.Box(-1, 1, (2, 2), np.float32), "room": spaces.Discrete(3)})
READER = ObservationReader(SPACE, max_batch=4)
BODIES = {
    JSON: json.dumps({"obs": {"board": [[0.0, 1.0], [2.0, 3.0]], "room": 1}}).encode(),
    SAFETENSORS: save({"obs/board": np.zeros((2, 2), np.float32), "obs/room": np.array(1)}),
}
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def read(body: bytes, form: str) -> Any:
    """Return the rows of a body, None where it is refused."""
    try:
        return READER.read(read_request(body, form).obs)
    except RefusedError:
        return None


@pytest.mark.parametrize("form", [JSON, SAFETENSORS])
def test_what_is_well_formed_is_read(form: str) -> None:
    rows = read(BODIES[form], form)

    assert rows.num == 1 and not rows.is_batch and rows.obs["board"].shape == (1, 2, 2) and rows.obs["room"] == [1]


@settings(max_examples=40)
@given(st.sampled_from([JSON, SAFETENSORS]), st.data())
def test_a_body_with_other_bytes_is_read_or_refused(form: str, data: st.DataObject) -> None:
    body = bytearray(BODIES[form])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))

    for each in (bytes(body), bytes(body[:cut]), bytes(body[cut:])):
        rows = read(each, form)
        assert rows is None or np.isfinite(rows.obs["board"]).all()


@settings(max_examples=50)
@given(JSON_VALUES, JSON_VALUES)
def test_any_json_is_read_or_refused(board: Any, room: Any) -> None:
    for obs in (board, {"board": board, "room": room}):
        rows = read(json.dumps({"obs": obs}).encode(), JSON)
        assert rows is None or rows.obs["room"].max() <= 2


def test_tensors_of_any_dtype_are_read_or_refused() -> None:
    for dtype, size, is_read in [
        ("F64", 8, True),
        ("F16", 2, True),
        ("U64", 8, True),
        ("F8_E4M3", 1, False),
        ("C64", 8, False),
        ("NONE", 8, False),
    ]:
        head = {"obs/board": {"dtype": dtype, "shape": [2, 2], "data_offsets": [0, 4 * size]}}
        text = json.dumps({**head, "obs/room": {"dtype": "I64", "shape": [], "data_offsets": [4 * size, 4 * size + 8]}})
        body = struct.pack("<Q", len(text)) + text.encode() + bytes(4 * size + 8)

        rows = read(body, SAFETENSORS)

        assert (rows is not None) == is_read


def test_numbers_outside_their_box_are_read_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    high = np.array([0.1, np.inf])
    reader = ObservationReader(spaces.Box(-high, high, dtype=np.float64), max_batch=4)
    rounded = [float(np.float32(0.1)), 1e9]

    reader.read({"": [rounded, [-rounded[0], -1e9]]})
    assert not caplog.records
    for _ in range(2):
        assert reader.read({"": [rounded, [7.5, 0.0]]}).num == 2

    (record,) = caplog.records
    assert "'obs' has 7.5 at [1, 0], expected numbers from -0.1 to 0.1 there" in record.getMessage()


def test_content_types_of_safetensors_are_one() -> None:
    assert {format_of(each) for each in ("application/safetensors", SAFETENSORS)} == {SAFETENSORS}


@pytest.mark.parametrize("is_batch", [False, True])
def test_an_answer_has_a_batch_axis_if_the_question_had_one(is_batch: bool) -> None:
    answer = ActResponse(
        np.array([[1.5, 2.5]], np.float32), {"h": np.ones((1, 3), np.float32)}, {"number": 1}, is_batch
    )

    found = json.loads(write_response(answer, JSON))
    tensors = load(write_response(answer, SAFETENSORS))

    assert found == {
        "action": [[1.5, 2.5]] if is_batch else [1.5, 2.5],
        "state": {"h": [[1.0] * 3] if is_batch else [1.0] * 3},
        "version": {"number": 1},
    }
    assert tensors["action"].shape == ((1, 2) if is_batch else (2,)) and tensors["state/h"].shape[-1] == 3


def test_a_float32_comes_back_from_json_as_it_was() -> None:
    values = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)

    found = json.loads(write_response(ActResponse(values, {}, {}, True), JSON))

    np.testing.assert_array_equal(np.array(found["action"], np.float32), values)
