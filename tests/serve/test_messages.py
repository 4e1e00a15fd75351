"""Whatever bytes come, they are read or refused."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

from ding_like.agent.observations import ObservationReader
from ding_like.comm.rest.wire import RefusedError
from ding_like.serve.served import JSON, SAFETENSORS, ActResponse, format_of, read_request, write_response

SPACE = spaces.Dict({"board": spaces.Box(-1, 1, (2, 2), np.float32), "room": spaces.Discrete(3)})
READER = ObservationReader(SPACE, max_batch=4)
GOOD = {
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
    rows = read(GOOD[form], form)

    assert rows.num == 1 and not rows.is_batch and rows.obs["board"].shape == (1, 2, 2) and rows.obs["room"] == [1]


@settings(max_examples=40)
@given(st.sampled_from([JSON, SAFETENSORS]), st.data())
def test_a_body_with_other_bytes_is_read_or_refused(form: str, data: st.DataObject) -> None:
    body = bytearray(GOOD[form])
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
